"""The Python examples run to their end against a real server."""

import os
import subprocess
import sys

import pytest

from support import golden

EXAMPLES = golden.ROOT / "client" / "examples" / "python"


@pytest.mark.parametrize(
    "name, options",
    [
        ("generate.py", ["--sessions", "2", "--prompt", "5", "--tokens", "3"]),
        ("pipeline.py", ["--batches", "2", "--sessions", "2", "--tokens", "3"]),
    ],
)
def test_example(servers, name, options):
    command = [sys.executable, str(EXAMPLES / name), "--target", servers("odd").address, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "tokens" in done.stdout
