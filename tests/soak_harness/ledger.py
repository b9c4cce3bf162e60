"""What happened: counts of everything, and every finding that makes the soak fail."""

from __future__ import annotations

import collections
import sys
import threading
import time
from typing import Dict, List

MAX_TEXTS = 12  # of one kind of finding; further ones are only counted


class Ledger:
    """Counters by name, and findings by kind. Thread-safe: the scraper writes too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self.counts: Dict[str, int] = collections.Counter()
        self.refused: Dict[str, int] = collections.Counter()  # by reason, or by code without one
        self.findings: Dict[str, List[str]] = {}
        self.found: Dict[str, int] = collections.Counter()

    def count(self, name: str, n: int = 1) -> None:
        with self._lock:
            self.counts[name] += n

    def refuse(self, reason: str) -> None:
        """A call or a step was refused in a way that the contract allows here."""
        with self._lock:
            self.refused[reason] += 1

    def find(self, kind: str, text: str) -> None:
        """Something that must not happen: the soak fails. The first of a kind are told at once."""
        with self._lock:
            self.found[kind] += 1
            texts = self.findings.setdefault(kind, [])
            if len(texts) >= MAX_TEXTS:
                return
            texts.append(text)
        print(f"[{time.monotonic() - self._begin:6.1f} s] {kind}: {text}", file=sys.stderr, flush=True)

    @property
    def failed(self) -> bool:
        return bool(self.found)
