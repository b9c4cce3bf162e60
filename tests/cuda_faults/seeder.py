"""Seeds faults into a copy of the CUDA backend's sources, one at a time, and runs the tests that
must fail for it.

The copy is trimmed to the kernels that the tests of faults.py run, so that a fault costs two or
three compilations. First the copy as it is has to pass these tests.

Exit code: 0 every fault was caught, 1 one was not, 2 called wrongly, a fault's text is not in the
sources, or the unmodified copy fails.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from typing import NamedTuple

import faults

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("CMakeLists.txt", "kernels", "core", "tests")
MESSAGE = 80  # characters
TEST_SECONDS = 120  # the slowest takes 6 on a free core


class SeederError(Exception):
    """What keeps the run from judging a fault, in a line."""


class Outcome(NamedTuple):
    test: str  # that failed; empty: none did
    message: str
    tests: int = 0  # that ran


class Row(NamedTuple):
    fault: faults.Fault
    caught: bool
    test: str
    message: str
    seconds: float


def seeded(fault, read):
    """The files of a fault with its new text, by path. `read` gives a file's text."""
    texts = {}
    for edit in fault.edits:
        text = texts.get(edit.path) or read(edit.path)
        count = text.count(edit.old)
        if count != 1:
            first = edit.old.strip().splitlines()[0].strip()
            raise SeederError(f"fault {fault.name}: its old text is found {count} times in "
                              f"{edit.path}, not once: {first}")
        texts[edit.path] = text.replace(edit.old, edit.new)
    return texts


def read_source(path):
    try:
        return (ROOT / path).read_text()
    except OSError:
        raise SeederError(f"{path} is not there") from None


def trimmed(path, text):
    """A source, or in place of an instantiation that no test here runs one that compiles at once."""
    folder = re.fullmatch(r"kernels/cuda/((gqa|latent)/\S+)\.cu", path)
    if not folder or folder[1] in faults.INSTANCES:
        return text
    kernel = {"gqa": "gqa/gqa_kernel.cuh", "latent": "latent/latent_instance.cuh"}[folder[2]]
    include = f'#include "kernels/cuda/{kernel}"\n'
    if text.count(include) != 1:
        raise SeederError(f"{path} does not include {kernel}")
    return text.replace(include, faults.TRIMMED[folder[2]])


def outcome(status, output):
    """The first test that failed and what it said, from a test program's exit status and output."""
    test, block, running, loose, said = "", [], "", [], 0
    for line in output.splitlines():
        if match := re.match(r"\[ RUN +\] (\S+)", line):
            running, loose = match[1], []
        elif match := re.match(r"\[ +(OK|FAILED) +\] (\S+)", line):
            said += 1
            if match[1] == "FAILED" and not test:
                test = match[2].rstrip(",")
            running = "" if match[2].rstrip(",") == running else running
        elif test == "" and re.search(r": Failure$", line):
            block.append([])
        elif test == "" and block and line.strip() and not line.startswith("["):
            block[-1].append(line.strip())
        elif line.strip():
            loose.append(line.strip())
        if test:
            break
    if status == 0:
        return Outcome("", "", said)
    if test:
        return Outcome(test, _short(block[0] if block else loose), said)
    # The program ended within a test.
    text = _short(loose[:1] or (block[0] if block else []))
    if status < 0 and not text:
        text = f"ended by {signal.Signals(-status).name}"
    return Outcome(running or "(no test)", text, said)


def _short(lines):
    """What counts of a message: without who noticed it and what every message says."""
    text = " ".join(" ".join(lines).split())
    if match := re.search(r"Actual: false \((.*?)\)(?: Expected|$)", text):
        text = match[1]
    text = re.sub(r"^emulated device: block \d+, thread \d+: |^Expected equality of these values: ",
                  "", text)
    text = re.sub(r"\S*/source/(\S*/)?", "", text)  # the copy's folders
    if text.startswith("relative error"):
        text = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.3g}", text)
    return text if len(text) <= MESSAGE else text[:MESSAGE - 3] + "..."


class Copy:
    """The sources that faults go into, and their build tree."""

    def __init__(self, build):
        self.source = build / "source"
        self.tree = build / "tree"
        self.log = build / "log.txt"
        # ccache's keys then do not hold where the build is.
        self.environment = {**os.environ, "CCACHE_BASEDIR": str(build), "CCACHE_NOHASHDIR": "1"}
        for name in [name for name in self.environment if name.startswith("GTEST_")]:
            del self.environment[name]
        build.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")

    def refresh(self):
        """What git knows, and what is new, as it lies in the working tree."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *FOLDERS],
            cwd=ROOT, text=True, capture_output=True)
        if listed.returncode != 0:
            raise SeederError(f"git ls-files: {listed.stderr.strip()}")
        names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
        for name in names:
            data = (ROOT / name).read_bytes()
            if name.endswith(".cu"):
                data = trimmed(name, data.decode()).encode()
            self.put(name, data)
        for path in self.source.rglob("*"):
            if path.is_file() and str(path.relative_to(self.source)) not in names:
                path.unlink()

    def put(self, name, data):
        path = self.source / name
        if path.is_file() and path.read_bytes() == data:
            return  # its objects stay
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def call(self, *command):
        """Exit status and output, which also goes to the log."""
        with subprocess.Popen(command, text=True, errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=self.environment) as process:
            try:
                output, _ = process.communicate(timeout=TEST_SECONDS if "--gtest_fail_fast" in command
                                                else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                return None, ""
            finally:
                if process.poll() is None:
                    process.kill()
        with self.log.open("a") as log:
            log.write(f"\n$ {' '.join(command)}\n{output}status {process.returncode}\n")
        return process.returncode, output

    def configure(self):
        # -O1 compiles twice as fast as -O3 and runs nearly as fast. A fault may leave a variable
        # unused: no warnings.
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        status, output = self.call(
            "cmake", "-S", str(self.source), "-B", str(self.tree), "-G", "Ninja",
            "-DATTND_SERVER=OFF", "-DATTND_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Debug",
            "-DCMAKE_CXX_FLAGS_DEBUG=-O1", "-DCMAKE_CXX_FLAGS=-w -DHWY_COMPILE_ONLY_STATIC",
            *launcher)
        if status != 0:
            raise SeederError(f"the copy cannot be configured, see {self.log}: {last_line(output)}")

    def build(self, targets):
        """Empty, or what the compiler said."""
        status, output = self.call("ninja", "-C", str(self.tree), *targets)
        if status == 0:
            return ""
        errors = [line for line in output.splitlines() if re.search(r"\berror:|Error\b", line)]
        return (errors[0] if errors else last_line(output)) or "ninja failed"

    def test(self, target, tests):
        status, output = self.call(str(self.tree / "bin" / target), f"--gtest_filter={tests}",
                                   "--gtest_fail_fast", "--gtest_color=no")
        if status is None:
            return Outcome("", f"no end after {TEST_SECONDS} s")
        return outcome(status, output)


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def check_unmodified(copy, chosen):
    """The tests pass without a fault, and each filter names some."""
    if problem := copy.build(sorted({fault.target for fault in chosen})):
        raise SeederError(f"the unmodified copy does not compile, see {copy.log}: {problem}")
    count = 0
    for target, tests in dict.fromkeys((fault.target, fault.tests) for fault in chosen):
        result = copy.test(target, tests)
        if result.test or result.message:
            raise SeederError(f"the unmodified copy fails {target} {tests}: "
                              f"{result.test} {result.message}")
        if result.tests == 0:
            raise SeederError(f"{target} has no test {tests}")
        count += result.tests
    return count


def run_fault(copy, fault):
    start = time.monotonic()
    texts = seeded(fault, lambda path: (copy.source / path).read_text())
    originals = {path: (copy.source / path).read_bytes() for path in texts}
    try:
        for path, text in texts.items():
            copy.put(path, text.encode())
        problem = copy.build([fault.target])
        result = (Outcome("", f"does not compile: {problem}") if problem else
                  copy.test(fault.target, fault.tests))
    finally:
        for path, data in originals.items():
            copy.put(path, data)
    message = result.message or ("" if result.test else f"{result.tests} tests passed")
    caught = bool(result.test) and faults.TRIMMED_MESSAGE not in message
    return Row(fault, caught, result.test, message, time.monotonic() - start)


def table(rows):
    header = ("fault", "file", "caught by", "what it said", "s")
    cells = [(row.fault.name, row.fault.edits[0].path.removeprefix("kernels/cuda/"),
              row.test if row.caught else "NOT CAUGHT", row.message, f"{row.seconds:.1f}")
             for row in rows]
    widths = [max(len(line[i]) for line in [header, *cells]) for i in range(len(header))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
                     for line in [header, tuple("-" * width for width in widths), *cells])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/cuda_faults/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the faults, why they happen, and stop")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these faults alone")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda-faults",
                        metavar="DIR", help="copy, build tree and log (build/cuda-faults)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the table, besides")
    options = parser.parse_args(arguments)
    names = list(filter(None, options.only.split(",")))
    known = {fault.name: fault for fault in faults.FAULTS}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown faults: {', '.join(unknown)} (see --list)")
    return options, [known[name] for name in names] or list(faults.FAULTS)


def judge(rows):
    return 0 if rows and all(row.caught for row in rows) else 1


def run(options, chosen):
    for fault in chosen:
        seeded(fault, read_source)  # all of them, before anything is built
    start = time.monotonic()
    copy = Copy(options.build.resolve())
    copy.refresh()
    copy.configure()
    count = check_unmodified(copy, chosen)
    print(f"the unmodified copy passes: {count} tests, {time.monotonic() - start:.0f} s", flush=True)
    rows = []
    for fault in chosen:
        rows.append(run_fault(copy, fault))
        print(f"{fault.name}: {'caught' if rows[-1].caught else 'NOT CAUGHT'}", flush=True)
    print()
    print(table(rows))
    caught = sum(row.caught for row in rows)
    print(f"{caught} of {len(rows)} faults caught, {time.monotonic() - start:.0f} s; log: {copy.log}")
    if options.json:
        options.json.write_text(json.dumps(
            [{"fault": row.fault.name, "why": row.fault.why, "caught": row.caught, "test": row.test,
              "message": row.message, "seconds": round(row.seconds, 2)} for row in rows],
            indent=1) + "\n")
    return judge(rows)


def main(arguments=None):
    options, chosen = parse(arguments)
    if options.list:
        for fault in chosen:
            print(f"{fault.name:28} {fault.why}")
        return 0
    try:
        return run(options, chosen)
    except SeederError as problem:
        print(f"tests/cuda_faults/run: {problem}", flush=True)
        return 2
