"""Proves and times the CUDA kernels on this machine's card, in eight minutes.

Needs a card, CMake, Ninja and nvcc with cuBLAS; no network and no other library. Builds the kernels
for the card's own architecture, holds them against float64 (first under compute-sanitizer, where
there is one), runs the golden cases, and takes the benchmark. Writes one results file, Markdown
with all of it as JSON at its end.

Exit status: 0 all checks held; 1 one did not, or could not be run to its end; 2 wrong arguments;
3 no card; 4 no CMake, Ninja or nvcc.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import card as cards
import flatten
import plan
import results as output

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_CARD, NO_TOOLS = 3, 4
SANITIZER_FOUND_ERRORS = 99


class Stopped(Exception):
    """A step did not end well; the text says how."""


class Runner:
    """Runs programs within the limit of the step that is under way."""

    def __init__(self, log):
        self.log = log
        self.deadline = 0.0

    def run(self, *command, accept=(0,)):
        """The exit status of a program, which must be in `accept`; its output goes to the log."""
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(map(str, command))}\n")
            log.flush()
            # A session of its own: what it started is stopped with it.
            process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log,
                                       cwd=ROOT, start_new_session=True)
            try:
                status = process.wait(max(0.1, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise Stopped("out of time") from None
        if status not in accept:
            raise Stopped(f"{pathlib.Path(str(command[0])).name} exits with {status}")
        return status


    def tail(self, since, lines=30):
        """The last lines of the log from byte `since` on."""
        text = self.log.read_bytes()[since:].decode(errors="replace")
        return [line[:400] for line in text.splitlines()[-lines:]]


class Check:
    """The steps; each is a method of its name and returns a remark or None."""

    def __init__(self, args, card, runner):
        self.args, self.card, self.runner = args, card, runner
        self.build_dir = args.build
        self.checks, self.bench_rows, self.peer_rows = [], [], []

    def golden(self):
        count = flatten.flatten(ROOT / "tests" / "golden", self.build_dir / "golden")
        return f"{count} cases"

    def configure(self):
        command = ["cmake", "-S", ROOT / "tests" / "gpu", "-B", self.build_dir, "-G", "Ninja",
                   f"-DCMAKE_CUDA_ARCHITECTURES={self.args.arch}"]
        if self.args.nvcc:
            command.append(f"-DCMAKE_CUDA_COMPILER={self.args.nvcc}")
        self.runner.run(*command)

    def build(self):
        self.runner.run("ninja", "-C", self.build_dir, *self.args.ninja.split())

    def _check(self, name, *options, wrapper=()):
        """Runs gpu_check and keeps its lines under the step's name."""
        out = self.build_dir / f"{name}.jsonl"
        out.unlink(missing_ok=True)
        try:
            status = self.runner.run(*wrapper, self.build_dir / "gpu_check", "--out", out, *options,
                                     accept=(0, 1, SANITIZER_FOUND_ERRORS))
        finally:
            entries = output.read_lines(out)
            self.checks += [{**entry, "step": name} for entry in entries]
        if status == SANITIZER_FOUND_ERRORS:
            raise Stopped("compute-sanitizer reports errors: see the log")
        if not entries:
            raise Stopped("no check was made: see the log")
        if status != 0:
            raise Stopped(f"{sum(not entry['ok'] for entry in entries)} checks failed")
        return f"{len(entries)} checks"

    def _sanitize(self, name, *options):
        tool = self.args.sanitizer or shutil.which("compute-sanitizer")
        if not tool:
            return "not run: there is no compute-sanitizer"
        wrapper = [tool, "--tool", name, "--error-exitcode", SANITIZER_FOUND_ERRORS]
        before = len(self.checks)
        try:
            return self._check(name, *options, wrapper=wrapper)
        except Stopped as stopped:
            if len(self.checks) == before and "reports errors" not in str(stopped):
                return f"not run: compute-sanitizer does not work here ({stopped})"
            if str(stopped) == "out of time" and all(c["ok"] for c in self.checks[before:]):
                return f"{len(self.checks) - before} checks, then out of time"
            raise

    def memcheck(self):
        return self._sanitize("memcheck", "--small", "--suites",
                              "fragments,elementwise,latent,gqa,plain")

    def racecheck(self):
        return self._sanitize("racecheck", "--tiny", "--suites", "fragments,latent,gqa,plain")

    def kernels(self):
        return self._check("kernels", "--suites", "fragments,elementwise,plain,gqa,latent",
                           "--seed", str(self.args.seed))

    def layers(self):
        return self._check("layers", "--suites", "golden", "--golden", self.build_dir / "golden")

    def bench(self):
        out = self.build_dir / "bench.jsonl"
        out.unlink(missing_ok=True)
        seconds = max(1.0, self.runner.deadline - time.monotonic() - 15)
        try:
            self.runner.run(self.build_dir / "gpu_bench", "--seconds", f"{seconds:.0f}", "--out", out)
        finally:
            self.bench_rows = output.read_lines(out)
        return f"{sum('name' in row for row in self.bench_rows)} rows"

    def peers(self):
        out = self.build_dir / "peers.jsonl"
        out.unlink(missing_ok=True)
        probe = [self.args.python, "-c", "import torch; assert torch.cuda.is_available()"]
        try:
            self.runner.run(*probe)
        except (Stopped, OSError):
            return "not run: Python has no torch that sees the card"
        try:
            self.runner.run(self.args.python, ROOT / "tests" / "gpu" / "peers.py", out)
        except Stopped as stopped:
            return f"incomplete: {stopped}"
        finally:
            self.peer_rows = output.read_lines(out)
        return f"{len(self.peer_rows)} rows"

    def results(self, steps):
        return {"card": {"name": self.card.name, "architecture": self.card.architecture},
                "steps": steps, "checks": self.checks, "bench": self.bench_rows,
                "peers": self.peer_rows}


def run_steps(check, runner, steps, total, write, clock=time.monotonic):
    """Runs the steps one after the other, each within its limit and what is left of `total`."""
    done = []
    start = clock()
    for step in steps:
        begin = clock()
        left = total - (begin - start)
        runner.deadline = begin + min(step.seconds, left)
        logged = runner.log.stat().st_size
        entry = {"name": step.name, "result": "passed", "seconds": 0.0}
        if left < 1:
            entry.update(result="left out", detail="no time")
        else:
            print(f"{step.name}: {step.what}", flush=True)
            try:
                entry["detail"] = getattr(check, step.name)() or ""
            except (Stopped, OSError, ValueError) as problem:
                # The log may stay on a machine that is given back.
                entry.update(result="FAILED", detail=str(problem), log=runner.tail(logged))
                print("\n".join(entry["log"]))
        entry["seconds"] = clock() - begin
        print(f"  {entry['result']}, {entry['seconds']:.1f} s  {entry.get('detail', '')}",
              flush=True)
        done.append(entry)
        write(check.results(done))  # what is there already, should the machine go away
        if step.needed and entry["result"] != "passed":
            break
    return check.results(done)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/gpu/check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true",
                        help="print the steps and their time limits, and do nothing")
    parser.add_argument("--build-only", action="store_true",
                        help="configure and build, which needs no card (with --arch)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-gpu-check",
                        metavar="FOLDER", help="build tree and log (%(default)s)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="results, Markdown and JSON (FOLDER/results.md)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="the JSON alone, besides")
    parser.add_argument("--arch", help="CMAKE_CUDA_ARCHITECTURES (the card's: 90a-real)")
    parser.add_argument("--nvcc", help="nvcc (found in PATH or /usr/local/cuda/bin)")
    parser.add_argument("--sanitizer", help="compute-sanitizer (found in PATH)")
    parser.add_argument("--python", default=sys.executable, help="a Python that may have torch")
    parser.add_argument("--ninja", default="", help="options for ninja (-j1)")
    parser.add_argument("--seed", type=int, default=1, help="of the random cases (%(default)s)")
    parser.add_argument("--only", default="", metavar="STEP,...", help="these steps alone")
    args = parser.parse_args(arguments)
    known = {step.name for step in plan.STEPS}
    args.only = set(filter(None, args.only.split(",")))
    if args.only - known:
        parser.error(f"unknown steps: {', '.join(sorted(args.only - known))}")
    return args


def missing_tools(args):
    """What is not there, for a message."""
    nvcc = args.nvcc or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    tools = {"cmake": shutil.which("cmake"), "ninja": shutil.which("ninja"),
             "nvcc": shutil.which(nvcc)}
    return [name for name, path in tools.items() if not path]


def main(arguments=None, find_card=cards.find):
    args = parse(arguments)
    if args.dry_run:
        print(plan.text(args.build, args.arch or "the card's architecture"))
        return 0
    card = cards.Card("none: built only", 0)
    if not args.build_only:
        try:
            card = find_card()
        except cards.NoCard as problem:
            print(f"tests/gpu/check: {problem}; nothing was checked", file=sys.stderr)
            return NO_CARD
    missing = missing_tools(args)
    if missing:
        print(f"tests/gpu/check: {', '.join(missing)} not found", file=sys.stderr)
        return NO_TOOLS
    args.arch = args.arch or (cards.arch_option(card.architecture) if card.architecture else "90a-real")
    args.build.mkdir(parents=True, exist_ok=True)
    out = args.out or args.build / "results.md"
    steps = [s for s in plan.STEPS if not args.only or s.name in args.only]
    total = plan.TOTAL_SECONDS
    if args.build_only:
        steps = [s._replace(seconds=3600) for s in steps if s.name in ("configure", "build")]
        total = 7200
    runner = Runner(args.build / "log.txt")
    runner.log.write_text("")

    def write(so_far):
        out.write_text(output.markdown(so_far))
        if args.json:
            args.json.write_text(json.dumps(so_far, indent=1) + "\n")

    outcome = run_steps(Check(args, card, runner), runner, steps, total, write)
    print(f"results: {out}; log: {runner.log}")
    if args.build_only or args.only:
        return 0 if all(s["result"] == "passed" for s in outcome["steps"]) else 1
    return 0 if output.all_well(outcome) else 1
