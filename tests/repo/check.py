#!/usr/bin/env python3
"""Checks of the repository itself: layering, documentation against sources and binary, a tidy tree.

Usage: check.py ATTND, the built server.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What a room may include: itself and what lies further down the flow.
ROOMS = {
    "kernels": {"kernels"},
    "core": {"core", "kernels"},
    "server": {"server", "core", "kernels", "attnd"},
    "client": {"client", "core", "kernels", "attnd"},
}
GRPC = re.compile(r'#include\s+[<"](grpc|google/protobuf|attnd/v1)')


def tracked(*patterns):
    out = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, text=True, capture_output=True,
                         check=True).stdout
    return [ROOT / name for name in out.splitlines() if (ROOT / name).exists()]


def layering():
    """Includes only point down the flow; kernels and core know no gRPC."""
    for room, allowed in ROOMS.items():
        for path in tracked(f"{room}/*.h", f"{room}/*.cc", f"{room}/*.cu", f"{room}/*.cuh"):
            text = path.read_text()
            for included in re.findall(r'#include "([a-z_]+)/', text):
                if included in set(ROOMS) | {"attnd", "tests"} and included not in allowed:
                    yield f"{path.relative_to(ROOT)} includes {included}/"
            if room in ("kernels", "core") and GRPC.search(text):
                yield f"{path.relative_to(ROOT)} includes gRPC or protobuf"


def compiler_flags():
    """No flag that breaks infinities or ties a binary to the machine that built it."""
    for path in tracked("*CMakeLists.txt", "*.cmake"):
        for flag in ("-ffast-math", "-Ofast", "-march=native", "-mcpu=native", "use_fast_math",
                     "-ftz=true", "-prec-div=false"):
            if flag in path.read_text():
                yield f"{path.relative_to(ROOT)} has {flag}"


def flags_documented(attnd):
    """Every flag of the server is in the README's table and in deploy/attnd.conf, with its default."""
    flags = json.loads(subprocess.run([attnd, "--dump_flags"], text=True, capture_output=True,
                                      check=True).stdout)
    readme = (ROOT / "README.md").read_text()
    rows = dict(re.findall(r"^\| `--([a-z0-9_]+)` \| ([^|]*) \|", readme, re.M))
    sample = dict(re.findall(r"^#?--([a-z0-9_]+)=(.*)$", (ROOT / "deploy/attnd.conf").read_text(),
                             re.M))
    for flag in flags:
        name, default = flag["name"], str(flag["default"])
        for place, values in (("README.md", rows), ("deploy/attnd.conf", sample)):
            if name not in values:
                yield f"{place} does not know --{name}"
            elif values[name].strip().strip("`") != default:
                yield f"{place} says --{name} is {values[name]!r}, the server says {default!r}"
    known = {flag["name"] for flag in flags}
    for place, values in (("README.md", rows), ("deploy/attnd.conf", sample)):
        for name in sorted(set(values) - known):
            yield f"{place} documents --{name}, which does not exist"


def metrics_documented():
    """The README names exactly the metrics that the server has."""
    source = "".join(path.read_text() for path in tracked("server/metrics*.cc", "server/metrics*.h"))
    served = set(re.findall(r'"(attnd_[a-z_]+)"', source))
    rows = re.findall(r"^\| (attnd_[^|]*)\|", (ROOT / "README.md").read_text(), re.M)
    readme = set(re.findall(r"\battnd_[a-z_]+\b", " ".join(rows)))
    for name in sorted(served - readme):
        yield f"README.md does not know the metric {name}"
    for name in sorted(readme - served):
        yield f"README.md documents {name}, which the server does not have"


def reported_faults():
    """Every row of a fault in tests/README.md has its report, and tests that are in the sources."""
    known = set()
    for path in tracked("tests/*.cc"):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.M):
            known.add(f"{suite}.{name}")
    for path in tracked("tests/*.py"):
        for name in re.findall(r"^def (\w+)\(", path.read_text(), re.M):
            known.add(f"{path.relative_to(ROOT)}::{name}")
    faults = (ROOT / "tests/README.md").read_text().partition("## Faults")[2]
    rows = re.findall(r"^\| (?!symptom)(.*) \| (.*) \| (.*) \|$", faults, re.M)
    if not rows:
        yield "tests/README.md has no table of reported faults"
    for symptom, reported, tests in rows:
        if "](https://" not in reported:
            yield f"tests/README.md, {symptom!r}: no address of a report"
        names = re.findall(r"`([^`]+)`", tests)
        if not names:
            yield f"tests/README.md, {symptom!r}: no test"
        for name in names:
            if name not in known:
                yield f"tests/README.md, {symptom!r}: there is no test {name}"


def changelog():
    """Unreleased changes stand on top."""
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not headings or not headings[0].startswith("Unreleased"):
        yield "CHANGELOG.md does not begin with '## Unreleased'"


def tidy_tree():
    """Only what the house has at its top; no skipped tests, nothing left for later."""
    top = {"proto", "server", "core", "kernels", "client", "deploy", "tests", "CMakeLists.txt",
           "Dockerfile", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
    for name in sorted({path.relative_to(ROOT).parts[0] for path in tracked()}):
        if name not in top and not name.startswith("."):
            yield f"{name} does not belong at the top level"
    skipped = re.compile(r"GTEST_" r"SKIP|(?<!HWY_)DISAB" r"LED_|pytest\.sk" r"ip|xf" r"ail")
    later = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
    for path in tracked("*.cc", "*.h", "*.py", "*.sh", "*.cu", "*.cuh"):
        text = path.read_text()
        if path.relative_to(ROOT).parts[0] == "tests" and skipped.search(text):
            yield f"{path.relative_to(ROOT)} skips a test"
        if later.search(text):
            yield f"{path.relative_to(ROOT)} leaves something for later"


def main():
    attnd = str(pathlib.Path(sys.argv[1]).resolve())
    checks = {
        "includes point down the flow": layering(),
        "compiler flags": compiler_flags(),
        "flags are documented": flags_documented(attnd),
        "metrics are documented": metrics_documented(),
        "reported faults have tests": reported_faults(),
        "changelog": changelog(),
        "tidy tree": tidy_tree(),
    }
    bad = 0
    for name, problems in checks.items():
        problems = list(problems)
        bad += len(problems)
        print(f"{name}: {'ok' if not problems else ''}")
        for problem in problems:
            print(f"  {problem}")
    long_files = [(len(p.read_text().splitlines()), p.relative_to(ROOT))
                  for p in tracked("*.cc", "*.h", "*.py")]
    for lines, path in sorted(long_files, reverse=True):
        if lines > 400:
            print(f"note: {path} has {lines} lines, more than the soft cap of 400")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
