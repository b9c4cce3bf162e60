"""The package's version, alone in a file so that a build can read it without importing."""

__version__ = "0.1.0"
