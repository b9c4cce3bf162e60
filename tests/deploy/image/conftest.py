"""The built server, and the times that it takes to stop."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def attnd():
    return os.environ.get("ATTND_BIN", str(ROOT / "build/bin/attnd"))


@pytest.fixture(scope="session")
def stop_seconds(attnd):
    """How long the server may take to stop, by its defaults."""
    flags = json.loads(
        subprocess.run([attnd, "--dump_flags"], capture_output=True, check=True).stdout
    )
    defaults = {flag["name"]: flag["default"] for flag in flags}
    return float(defaults["drain_seconds"]) + float(defaults["shutdown_grace_seconds"])
