"""Rows that need a server: what the wire costs, throughput, start."""

import json
import pathlib
import statistics
import tempfile

from . import servers

PAGE_BYTES = 256 << 20


def wire(kind, model, calls, most):
    """A call's time beyond its computing, against a generated echo of the same bytes, in turns."""

    def measure(bench):
        arguments = (f"--model=builtin:{model}", "--weights=random:1", f"--kv_cache_bytes={PAGE_BYTES}")
        with servers.attnd(bench, *arguments) as server, servers.echo(bench) as echo:
            rounds = []
            for _ in range(bench.rounds):
                printed = bench.run("bench_wire", kind, calls, f"attnd={server.address}", f"echo={echo.address}")
                targets = {target["name"]: target["overhead_p50"] for target in json.loads(printed)["targets"]}
                rounds.append((targets["attnd"] / targets["echo"], targets["attnd"], targets["echo"]))
        ratio, ours, theirs = sorted(rounds)[len(rounds) // 2]
        return {"measured": f"{ours:.0f} us", "ceiling": f"echo {theirs:.0f} us", "share": f"{ratio:.2f} x",
                "budget": f"<= {most:g} x the echo", "ok": ratio <= most, "value": ratio}  # fmt: skip

    return measure


def throughput(least):
    """Tokens/s of 4 steps of 16 sessions in flight on one stream, against the engine alone."""

    def measure(bench):
        threads = bench.machine()["cores"]
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "medium.yaml"
            model.write_text(servers.MEDIUM)
            arguments = (f"--model={model}", "--weights=random:1", "--weight_dtype=bf16", "--cache_dtype=bf16",
                         f"--kv_cache_bytes={4 * PAGE_BYTES}")  # fmt: skip
            with servers.attnd(bench, *arguments) as server:
                pairs = []
                for _ in range(bench.rounds):
                    through = json.loads(bench.run("bench_stream", server.address, 1))["tokens_per_s"]
                    alone = bench.once("bench_engine", "medium_decode/64", threads)["tokens"]
                    pairs.append((through / alone, through, alone))
        share, through, alone = sorted(pairs)[len(pairs) // 2]
        return {"measured": f"{through:.0f} tokens/s", "ceiling": f"in process {alone:.0f} tokens/s",
                "share": f"{100 * share:.0f} %", "budget": f">= {100 * least:.0f} %", "ok": share >= least,
                "value": share}  # fmt: skip

    return measure


def start(most):
    def measure(bench):
        seconds = []
        for _ in range(bench.rounds):
            with servers.attnd(bench, "--model=builtin:apex1-small", "--weights=random:1") as server:
                seconds.append(server.start_seconds)
        took = statistics.median(seconds)
        return {"measured": f"{took:.2f} s", "ceiling": "", "share": "", "budget": f"<= {most:g} s",
                "ok": took <= most, "value": took}  # fmt: skip

    return measure
