"""What is raised when something is not as it should be, with one line for the user."""


class Failure(Exception):
    pass
