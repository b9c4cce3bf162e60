"""The tables of deploy/SCALING.md on servers and on the wire, from attnctl plan and from what our benchmark measured.

Usage: python3 tests/deploy/kubernetes/scaling_figures.py build/bin/attnctl [--plot FILE.png]

Prints them in Markdown; with --plot also draws the wire's share of a decode step (wants matplotlib).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import subprocess
import sys

# Measured by tests/bench/run, in README.md and kernels/README.md: a thread of an AMD EPYC (Zen 4), AVX2, bf16 caches.
GQA_DECODE = 78e9  # FLOP/s: decode_local_bf16
LATENT_DECODE = 101e9  # decode_absorbed_4096
PROJECTION = 105e9  # project_128: the rows of a batch
CALL = 143e-6  # s beyond computing, of a Decode of one row: wire_decode
PREFILL_MIB = 1.4e-3  # s, of a Prefill of 1 MiB that answers 1 MiB: wire_prefill
WIRE_RATE = 2 * 2**20 / (PREFILL_MIB - CALL)  # bytes/s, both ways added
THREADS = 2  # on which all of this was measured
CARD_RATE = 4.8e12  # bytes/s of an H200's memory by its data sheet: not measured

BATCHES = (1, 16, 64)
D_MODEL = {"small": 512, "medium": 2048, "large": 7168}  # core/model_config.cc
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Load:
    model: str
    context: int
    sessions: int
    tokens_per_second: float  # of a session


LOADS = (
    Load("small", 8192, 5000, 2),
    Load("medium", 16384, 400, 0.5),
    Load("medium", 65536, 400, 0.5),
    Load("large", 131072, 16, 0.1),
)
SERVER_THREADS = 16
SERVER_CACHE = 64 * GIB
USED = 0.7  # of the cache and of the threads: the autoscaler's target


@dataclasses.dataclass(frozen=True)
class Planner:
    attnctl: str

    @functools.cache
    def plan(self, model: str, context: int) -> dict:
        command = [self.attnctl, "plan", f"--model=builtin:apex1-{model}", f"--context={context}", "--json"]
        return json.loads(subprocess.run(command, text=True, capture_output=True, check=True).stdout)


def thread_seconds(plan: dict) -> float:
    """Computing of one token through all layers on one thread, in a batch."""
    layers = (
        (plan["local_layers"], plan["layer"]["gqa"], plan["flop_per_token_local_layer"], GQA_DECODE),
        (plan["global_layers"], plan["layer"]["mla"], plan["flop_per_token_global_layer"], LATENT_DECODE),
    )
    seconds = 0.0
    for count, kind, flop, attention_rate in layers:
        projections = 2 * kind["parameters"]
        seconds += count * (projections / PROJECTION + (flop - projections) / attention_rate)
    return seconds


def layers_of(plan: dict) -> int:
    return plan["local_layers"] + plan["global_layers"]


def wire_bytes(model: str) -> int:
    """Of one row through one layer, there and back, float32."""
    return 2 * D_MODEL[model] * 4


def wire_seconds(model: str, plan: dict, batch: int) -> float:
    """Of one token through all layers, where `batch` rows share a Decode."""
    return layers_of(plan) * (CALL / batch + wire_bytes(model) / WIRE_RATE)


def card_seconds(plan: dict) -> float:
    """Of one token on a card that reads its caches and does nothing else: a lower bound."""
    local = (
        plan["local_layers"] * min(plan["window_keys"], plan["context"]) * plan["layer"]["gqa"]["cache_bytes_per_token"]
    )
    return (local + plan["global_layers"] * plan["context"] * plan["layer"]["mla"]["cache_bytes_per_token"]) / CARD_RATE


def share(model: str, plan: dict, batch: int) -> float:
    """The wire's share of a decode step on a server of two threads."""
    wire = wire_seconds(model, plan, batch)
    return wire / (wire + thread_seconds(plan) / THREADS)


def card_share(model: str, plan: dict, batch: int) -> float:
    wire = wire_seconds(model, plan, batch)
    return wire / (wire + card_seconds(plan))


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def milliseconds(seconds: float) -> str:
    """Two digits, or whole milliseconds."""
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.2g} ms"


def servers_for(load: Load, plan: dict) -> tuple[int, int]:
    """Servers by the cache and by computing."""
    cache = load.sessions * plan["cache_bytes_per_session"] / (USED * SERVER_CACHE)
    threads = load.sessions * load.tokens_per_second * thread_seconds(plan) / (USED * SERVER_THREADS)
    return math.ceil(cache), math.ceil(threads)


def servers_table(planner: Planner) -> str:
    rows = []
    for load in LOADS:
        plan = planner.plan(load.model, load.context)
        cache, threads = servers_for(load, plan)
        rows.append(
            [
                f"apex1-{load.model}, {load.context:,} tokens",
                f"{load.sessions:,} x {load.tokens_per_second:g}/s",
                f"{plan['cache_bytes_per_session'] / 2**20:,.1f} MiB",
                f"{load.sessions * plan['cache_bytes_per_session'] / GIB:,.1f} GiB",
                milliseconds(thread_seconds(plan)),
                str(cache),
                str(threads),
                f"**{max(cache, threads) + 1}**",
            ]
        )
    head = [
        "model, context",
        "sessions x tokens",
        "cache of one",
        "of all",
        "a token, one thread",
        "servers by cache",
        "by threads",
    ]
    return table([*head, "and one spare"], rows)


def wire_table(planner: Planner) -> str:
    rows = []
    for model, context in (("small", 8192), ("medium", 16384), ("medium", 65536), ("large", 16384), ("large", 131072)):
        plan = planner.plan(model, context)
        layers, row = layers_of(plan), wire_bytes(model)
        rows.append(
            [
                f"apex1-{model}, {context:,} tokens",
                f"{layers} x {row // 1024} KiB = {layers * row / 2**20:.2f} MiB",
                *(milliseconds(wire_seconds(model, plan, batch)) for batch in BATCHES),
                milliseconds(thread_seconds(plan) / THREADS),
                *(f"{100 * share(model, plan, batch):.2g} %" for batch in BATCHES),
            ]
        )
    head = ["model, context", "bytes a token", *(f"wire, {batch} a call" for batch in BATCHES), "computing, 2 threads"]
    return table([*head, *(f"wire's share, {batch}" for batch in BATCHES)], rows)


def card_table(planner: Planner) -> str:
    """apex1-large on a card: a layer's reading of its cache against the row on the wire."""
    row = wire_bytes("large")
    rows = []
    for what, key, keys in (
        ("local, window 8,192", "gqa", 8192),
        ("global, 16,384 tokens", "mla", 16384),
        ("global, 131,072 tokens", "mla", 131072),
    ):
        bytes_read = planner.plan("large", 131072)["layer"][key]["cache_bytes_per_token"] * keys
        seconds = bytes_read / CARD_RATE
        rows.append(
            [
                what,
                f"{bytes_read / 2**20:.0f} MiB",
                f"{1e6 * seconds:.1f} µs",
                f"{1e6 * row / WIRE_RATE:.0f} µs",
                f"{row / seconds / 1e9:.1f} GB/s",
                f"{row / 2 / seconds / 1e9:.1f} GB/s",
            ]
        )
    head = ["a layer of apex1-large", "cache read a row", "on the card, at least", "on the wire as measured"]
    return table([*head, "wire as fast as the card, f32", "16-bit rows"], rows)


TABLES = {"servers": servers_table, "wire": wire_table, "card": card_table}


def plot(planner: Planner, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 4), dpi=80, layout="constrained")
    for model, longest, colour in (
        ("small", 8192, "#e69f00"),
        ("medium", 65536, "#009e73"),
        ("large", 131072, "#0072b2"),
    ):
        contexts = [256 * 2**i for i in range(10) if 256 * 2**i <= longest]
        plans = [planner.plan(model, context) for context in contexts]
        shares = [100 * share(model, plan, 16) for plan in plans]
        axes.plot(
            contexts, shares, "o-", color=colour, label=f"apex1-{model}, two threads (measured rates)", markersize=4
        )
    cards = [100 * card_share("large", plan, 16) for plan in plans]
    axes.plot(
        contexts, cards, "s--", color="#0072b2", label="apex1-large, a card of 4.8 TB/s (data sheet)", markersize=4
    )
    axes.axhline(50, color="k", linestyle=":", linewidth=1)
    axes.text(contexts[-1], 45.5, "above the line the wire takes longer than attention", fontsize=8, ha="right")
    axes.set(
        title="The wire's share of a decode step, 16 rows a call",
        xlabel="tokens of context",
        ylabel="%",
        xscale="log",
        ylim=(0, 100),
    )
    axes.legend(fontsize=8, frameon=False, loc="upper right", bbox_to_anchor=(1, 0.73))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attnctl", metavar="ATTNCTL", help="the built tool")
    parser.add_argument("--plot", metavar="FILE", help="also draws the wire's share into this PNG")
    options = parser.parse_args()
    planner = Planner(options.attnctl)
    for name, make in TABLES.items():
        print(f"{name}\n\n{make(planner)}\n")
    if options.plot:
        plot(planner, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
