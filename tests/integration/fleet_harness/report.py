"""Counts, each with what it had to be."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional


@dataclass(frozen=True)
class Count:
    what: str
    value: Any
    expected: str  # "" where the value is only told
    ok: bool


@dataclass
class Report:
    """What one scenario found."""

    balancer: str
    scenario: str
    counts: List[Count] = field(default_factory=list)
    seconds: float = 0.0

    def tell(self, what: str, value: Any) -> None:
        self.counts.append(Count(what, value, "", True))

    def expect(self, what: str, value: Any, expected: Any) -> None:
        self.counts.append(Count(what, value, str(expected), value == expected))

    def expect_some(self, what: str, value: int) -> None:
        self.counts.append(Count(what, value, "some", value > 0))

    def expect_between(self, what: str, value: float, low: float, high: float) -> None:
        self.counts.append(Count(what, value, f"{low} to {high}", low <= value <= high))

    @property
    def passed(self) -> bool:
        return bool(self.counts) and all(count.ok for count in self.counts)

    def lines(self) -> List[str]:
        verdict = "passed" if self.passed else "FAILED"
        rows = [f"{self.balancer}, {self.scenario}: {verdict} in {self.seconds:.1f} s"]
        for count in self.counts:
            wanted = f"(expected {count.expected})" if count.expected else ""
            mark = "  " if count.ok else "! "
            rows.append(f"{mark}  {count.what:58} {count.value!s:>10}  {wanted}".rstrip())
        return rows

    def figures(self) -> Dict[str, Any]:
        return {
            "balancer": self.balancer,
            "scenario": self.scenario,
            "passed": self.passed,
            "seconds": round(self.seconds, 1),
            "counts": [vars(count) for count in self.counts],
        }


def eventually(condition: Callable[[], bool], seconds: float) -> Optional[float]:
    """Seconds until the condition held; None where it did not in time."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            return None
        time.sleep(0.05)
    return time.monotonic() - begun
