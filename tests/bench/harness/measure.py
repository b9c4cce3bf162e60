"""Runs the measuring programs and keeps what they printed."""

import json
import os
import pathlib
import platform
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent.parent


class BenchError(Exception):
    """A line for the user."""


def _finished(command, timeout):
    """The process, ended; what keeps it from that is a line for the user."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except OSError as error:
        raise BenchError(f"{command[0]} does not start: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise BenchError(f"{command[0]} was not done after {timeout} s") from None


class Bench:
    """A build tree and how to run its programs; every figure is a median over the rounds."""

    def __init__(self, build, isa, rounds, peer_python):
        self.bin = build / "bin"
        self.rounds = rounds
        self.peer_python = peer_python
        self.isa = isa
        self._peers = {}
        if not (self.bin / "bench_kernels").exists():
            raise BenchError(f"{self.bin}/bench_kernels is missing: build it (cmake --build {build})")

    def run(self, program, *arguments, timeout=1800):
        """Standard output of a program of the build tree."""
        command = [str(self.bin / program), *map(str, arguments)]
        done = _finished(command, timeout)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise BenchError(f"{program} ended with {done.returncode}: {last}")
        return done.stdout

    def medians(self, program, names, threads=1):
        """{name: {"ms", "flop", "bytes", ...}} of benchmarks, the ceilings as ceiling_fma and
        ceiling_read. Google Benchmark interleaves them at random."""
        pattern = "^(ceiling_fma|ceiling_read|" + "|".join(names) + ")(/real_time)?$"
        arguments = [
            f"--threads={threads}", f"--benchmark_filter={pattern}", "--benchmark_format=json",
            f"--benchmark_repetitions={self.rounds}", "--benchmark_min_time=0.2",
            "--benchmark_enable_random_interleaving=true",
        ]  # fmt: skip
        if self.isa:
            arguments.insert(0, f"--isa={self.isa}")
        found = {}
        for run in json.loads(self.run(program, *arguments))["benchmarks"]:
            if run["run_type"] == "iteration":
                found.setdefault(run["run_name"].removesuffix("/real_time"), []).append(run)
        result = {}
        for name, runs in found.items():
            key = "cpu_time" if threads == 1 else "real_time"
            figures = {"ms": statistics.median(run[key] for run in runs)}
            for counter in ("flop", "bytes", "tokens"):
                if counter in runs[0]:
                    figures[counter] = statistics.median(run[counter] for run in runs)
            result[name] = figures
        missing = [name for name in names if name not in result]
        if missing:
            raise BenchError(f"{program} knows no {', '.join(missing)}")
        return result

    def once(self, program, name, threads=1):
        """The figures of one benchmark, taken once."""
        rounds, self.rounds = self.rounds, 1
        try:
            return self.medians(program, [name], threads)[name]
        finally:
            self.rounds = rounds

    def peer(self, script, case, threads=1):
        """Median ms of a case of a script in peers/, or None when its library is not there."""
        if self._peers.get(script) == "absent":
            return None
        command = [self.peer_python, str(HERE / "peers" / script), str(threads), case]
        done = _finished(command, timeout=600)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            if "ImportError" not in lines[-1] and "ModuleNotFoundError" not in lines[-1]:
                raise BenchError(f"peers/{script} {case}: {lines[-1]}")
            self._peers[script] = "absent"
            return None
        return json.loads(done.stdout.splitlines()[-1])[case]

    def against(self, script, case, program, name, threads=1):
        """(our medians, the peer's median ms or None), in turns, round by round."""
        ours, theirs = [], []
        rounds, self.rounds = self.rounds, 1
        try:
            for _ in range(rounds):
                ours.append(self.medians(program, [name], threads))
                theirs.append(self.peer(script, case, threads))
        finally:
            self.rounds = rounds
        merged = {}
        for key in ours[0]:
            merged[key] = {
                figure: statistics.median(one[key][figure] for one in ours) for figure in ours[0][key]
            }
        known = [ms for ms in theirs if ms is not None]
        return merged, statistics.median(known) if known else None

    def machine(self):
        model = platform.processor() or platform.machine()
        try:
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
                if line.startswith("model name"):
                    model = line.split(":", 1)[1].strip()
                    break
        except OSError:
            pass
        isa = self.isa or self.run("bench_ceilings", "--isa").strip()
        return {"cpu": model, "cores": os.cpu_count(), "isa": isa, "system": platform.system()}
