"""Shared by the Python tests: golden data, a reference model, a fake server, the real one."""
