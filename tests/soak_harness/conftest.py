"""The paths and the stubs that tests/soak sets up for itself."""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = TESTS.parent / "client" / "python"
sys.path[:0] = [str(TESTS), str(TESTS / "python"), str(PACKAGE)]

import generate_stubs  # noqa: E402

if generate_stubs.is_stale(PACKAGE / "attnd" / "_proto"):
    generate_stubs.generate(PACKAGE / "attnd" / "_proto")
