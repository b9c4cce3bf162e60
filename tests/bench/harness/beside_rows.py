"""What a long prefill and the decodes of others cost each other."""

import json
import pathlib
import tempfile
import time

from . import servers

GIB = 1 << 30
KINDS = ("local", "global")  # the layers of servers.MEDIUM, in order


def prefill_beside_decodes(rows: int, sessions: int = 16, history: int = 1024):
    """Steps of `sessions` decoding sessions while one prefills `rows`, against the same without.
    Once, whatever the rounds: the global layer alone takes minutes."""

    def measure(bench) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "medium.yaml"
            model.write_text(servers.MEDIUM)
            arguments = (f"--model={model}", "--weights=random:1", "--weight_dtype=bf16", "--cache_dtype=bf16",
                         f"--kv_cache_bytes={2 * GIB}")  # fmt: skip
            with servers.attnd(bench, *arguments) as server:
                return judged(one_round(bench, server, rows, sessions, history), rows)

    return measure


def one_round(bench, server: servers.Server, rows: int, sessions: int, history: int) -> dict:
    """The four figures, taken one after the other on an otherwise idle server."""
    with servers.decoding(bench, server, sessions, history) as decode_alone:
        time.sleep(5)
    alone = json.loads(bench.run("bench_load", server.address, "prefill", rows))["seconds"]
    with servers.decoding(bench, server, sessions, history) as decode_beside:
        beside = json.loads(bench.run("bench_load", server.address, "prefill", rows))["seconds"]
    return {"decode_alone": decode_alone, "decode_beside": decode_beside,
            "prefill_alone": alone, "prefill_beside": beside}  # fmt: skip


def judged(found: dict, rows: int) -> dict:
    """For information."""
    alone, beside = found["decode_alone"], found["decode_beside"]
    rates = [f"{kind} {rows / found['prefill_beside'][i]:.0f} rows/s, alone {rows / found['prefill_alone'][i]:.0f}"
             for i, kind in enumerate(KINDS)]  # fmt: skip
    return {"measured": f"p99 {beside['p99']:.1f} ms", "ceiling": f"alone {alone['p99']:.1f} ms",
            "share": f"{beside['p99'] / alone['p99']:.1f} x", "verdict": "for information",
            "value": beside["p99"] / alone["p99"],
            "note": f"decode p50 {beside['p50']:.1f} ms, longest {beside['max']:.1f} ms; "
                    f"alone {alone['p50']:.1f} and {alone['max']:.1f} ms; prefill of a layer: {'; '.join(rates)}"}  # fmt: skip
