"""The soak of core alone: engine_test's EngineSoak, for minutes instead of seconds."""

from __future__ import annotations

import os
import pathlib
import subprocess

from .server import StartError

_FILTER = "*EngineSoakTest.*"
_OPTIONS = "exitcode=66 halt_on_error=1"


def run(build: pathlib.Path, minutes: float, threads: int, seed: int) -> int:
    """0 when the test passed, 1 when not; its table goes to stdout."""
    program = build / "bin" / "engine_test"
    if not program.exists():
        raise StartError(f"{program} is missing: build engine_test, or name another tree with --build")
    environment = {
        **os.environ,
        "ATTND_SOAK_SECONDS": f"{minutes * 60:g}",
        "ATTND_SOAK_THREADS": str(threads),
        "ATTND_SOAK_SEED": str(seed),
        "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", _OPTIONS),
    }
    command = [str(program), f"--gtest_filter={_FILTER}"]
    listed = subprocess.run([*command, "--gtest_list_tests"], capture_output=True, text=True)
    if not listed.stdout.strip():
        raise StartError(f"{program} has no test {_FILTER}: build it anew")
    try:
        done = subprocess.run(command, env=environment, timeout=minutes * 60 + 600)
    except subprocess.TimeoutExpired:
        print(f"{program} has not ended 10 minutes after its time")
        return 1
    return 0 if done.returncode == 0 else 1
