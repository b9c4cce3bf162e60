"""The server's resident memory over a soak."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import List, Sequence, Tuple

from .ledger import Ledger
from .scraper import PERIOD, Scraper

WARM_UP = 0.3  # of the time: arenas, connections and pages are touched for the first time
WINDOW = 0.1  # of the time: what `first` and `last` are the middle of
MIB = 1 << 20


@dataclass
class Memory:
    """Bytes."""

    first: float
    last: float
    slack: float
    fullest: float = 0  # usage ratio
    leaked: int = 0  # cache bytes used or reserved when all sessions were closed
    course: List[float] = field(default_factory=list)  # about every 5 s

    @property
    def grown(self) -> bool:
        return self.last > self.first + self.slack


def slack_of(first: float, sanitized: bool) -> float:
    """What may come on top: fragments of the heap, and the reasons of recent ends (200 bytes each)."""
    return first * (0.25 if sanitized else 0.1) + 8 * MIB


def measure(samples: Sequence[Tuple[float, float]], began: float, ended: float, sanitized: bool) -> Memory:
    def middle(begin: float, end: float) -> float:
        span = ended - began
        found: List[float] = [rss for at, rss in samples if began + begin * span <= at <= began + end * span]
        return statistics.median(found) if found else 0.0

    first = middle(WARM_UP, WARM_UP + WINDOW)
    return Memory(first, middle(1 - WINDOW, 1), slack_of(first, sanitized))


def judge_memory(scraper: Scraper, began: float, ended: float, sanitized: bool, ledger: Ledger) -> Memory:
    memory = measure(scraper.rss, began, ended, sanitized)
    memory.fullest = scraper.fullest
    memory.course = [rss for _, rss in scraper.rss[:: round(5 / PERIOD)]]
    if memory.grown:
        ledger.find(
            "memory grows",
            f"RSS was {memory.first / MIB:.1f} MiB after the warm-up and {memory.last / MIB:.1f} MiB in the end; "
            f"{memory.slack / MIB:.1f} MiB more are allowed",
        )
    return memory
