"""Puts the package of the source tree on the path, with its stubs made."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
PACKAGE = TESTS.parent / "client" / "python"
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "python"), str(PACKAGE)]

import generate_stubs  # noqa: E402

if generate_stubs.is_stale(PACKAGE / "attnd" / "_proto"):
    generate_stubs.generate(PACKAGE / "attnd" / "_proto")
