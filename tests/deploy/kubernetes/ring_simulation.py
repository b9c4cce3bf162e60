"""Simulates what a hash ring does to affinity keys when a fleet grows and shrinks.

Usage: build/deploy-venv/bin/python tests/deploy/kubernetes/ring_simulation.py [--plot FILE.png]

Prints the tables of deploy/SCALING.md, in Markdown; with --plot also draws them (wants matplotlib). Everything is
computed from fixed names: two runs print the same. The rings are those of hash_rings.py; tests/deploy/helm makes the
environment.
"""

from __future__ import annotations

import argparse
import functools
import sys

import hash_rings
import numpy as np

KEYS = 20000
FLEETS = 8  # so many fleets, with names and keys of their own, of which means and extremes are taken
SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
KEY_COUNTS = (10, 40, 100, 400, 1000, 4000, 20000)
LOADED_SERVERS = 8


@functools.cache
def keys_of(fleet: int) -> list[str]:
    """The keys of a fleet's workers; no two fleets share one."""
    return [f"{fleet}-worker-{i}" for i in range(KEYS)]


class Envoy:
    """`each` points to a server; None: Envoy's own choice, 1,024 shared out."""

    def __init__(self, name: str, each: int | None):
        self.name, self.each = name, each

    @staticmethod
    @functools.cache
    def hashes(fleet: int) -> np.ndarray:
        return hash_rings.envoy_hashes(keys_of(fleet))

    @functools.cache
    def place(self, fleet: int, servers: int) -> np.ndarray:
        """The server of each of the fleet's keys."""
        names = [f"attnd-{fleet}-{i}" for i in range(servers)]
        ring = hash_rings.envoy_ring(names, self.each or -(-1024 // servers))
        return hash_rings.place(ring, self.hashes(fleet))


class Haproxy:
    def __init__(self, name: str, weight: int):
        self.name, self.weight = name, weight

    @staticmethod
    @functools.cache
    def hashes(fleet: int) -> np.ndarray:
        return hash_rings.haproxy_hashes(keys_of(fleet))

    @functools.cache
    def place(self, fleet: int, servers: int) -> np.ndarray:
        ids = [1 + fleet * 100 + i for i in range(servers)]
        return hash_rings.place(hash_rings.haproxy_ring(ids, self.weight), self.hashes(fleet))


class HaproxyMap:
    name = "HAProxy's default, map-based"

    @staticmethod
    @functools.cache
    def hashes(fleet: int) -> np.ndarray:
        return hash_rings.sdbm(keys_of(fleet))

    @functools.cache
    def place(self, fleet: int, servers: int) -> np.ndarray:
        return hash_rings.haproxy_map(servers, self.hashes(fleet))


RINGS = (
    Envoy("Envoy, 1,024 points a server", 1024),
    Haproxy("HAProxy, weight 64", 64),
    Envoy("Envoy's default, 1,024 points in all", None),
    Haproxy("HAProxy, weight 1", 1),
    HaproxyMap(),
)


def moved_shares(ring, servers: int) -> list[float]:
    """Share of keys that go elsewhere with one server more, of each fleet. The same go back when it leaves."""
    return [float(np.mean(ring.place(fleet, servers) != ring.place(fleet, servers + 1))) for fleet in range(FLEETS)]


def moved_between_old(ring, servers: int) -> float:
    """Share of keys that one server more moves from an old server to another old one; the largest of the fleets."""
    shares = []
    for fleet in range(FLEETS):
        before, after = ring.place(fleet, servers), ring.place(fleet, servers + 1)
        shares.append(float(np.mean((before != after) & (after != servers))))
    return max(shares)


def busiest(ring, servers: int, keys: int) -> float:
    """Keys on the busiest server over the mean, with the first `keys` of each fleet; mean of the fleets."""
    counts = [np.bincount(ring.place(fleet, servers)[:keys], minlength=servers).max() for fleet in range(FLEETS)]
    return float(np.mean(counts)) / (keys / servers)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def moved_table() -> str:
    rows = []
    for servers in SIZES:
        shares = [percent(float(np.mean(moved_shares(ring, servers)))) for ring in RINGS]
        rows.append([f"{servers} to {servers + 1}", percent(1 / (servers + 1)), *shares])
    return table(["servers", "1/(n+1)", *(ring.name for ring in RINGS)], rows)


def load_table() -> str:
    rows = [[f"{keys:,}", *(f"{busiest(ring, LOADED_SERVERS, keys):.2f}" for ring in RINGS[:4])] for keys in KEY_COUNTS]
    return table(["affinity keys", *(ring.name for ring in RINGS[:4])], rows)


TABLES = {"moved": moved_table, "load": load_table}


def plot(path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (moved, load) = pyplot.subplots(1, 2, figsize=(11, 4), dpi=80, layout="constrained")
    colours = ("#0072b2", "#009e73", "#e69f00", "#cc79a7", "#555555")
    for ring, colour in zip(RINGS, colours):
        shares = np.array([moved_shares(ring, servers) for servers in SIZES]) * 100
        moved.plot(SIZES, shares.mean(axis=1), "o-", color=colour, label=ring.name, markersize=4)
        moved.fill_between(SIZES, shares.min(axis=1), shares.max(axis=1), color=colour, alpha=0.15, linewidth=0)
    moved.plot(SIZES, [100 / (n + 1) for n in SIZES], "k:", label="1/(n+1), the least possible")
    moved.set(title="Keys that move when a server is added", xlabel="servers before", ylabel="% of keys", ylim=(0, 100))
    for ring, colour in zip(RINGS[:4], colours):
        factors = [busiest(ring, LOADED_SERVERS, keys) for keys in KEY_COUNTS]
        load.plot(KEY_COUNTS, factors, "o-", color=colour, label=ring.name, markersize=4)
    load.axhline(1, color="k", linestyle=":")
    load.set(title=f"The busiest of {LOADED_SERVERS} servers", xlabel="affinity keys", xscale="log")
    load.set(ylabel="its keys, times the mean", ylim=(0.8, None))
    for axes in (moved, load):
        axes.legend(fontsize=7.5, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", metavar="FILE", help="also draws the first two tables into this PNG")
    options = parser.parse_args()
    for name, make in TABLES.items():
        print(f"{name}\n\n{make()}\n")
    if options.plot:
        plot(options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
