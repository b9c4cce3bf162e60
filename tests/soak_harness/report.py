"""The table at the end of the log."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

from .ledger import Ledger
from .memory import MIB, Memory

CALLS = ("Prefill", "Decode", "CreateSession", "RewindSession", "ForkSession", "ExportSession", "ImportSession")
CHAOS = ("cancels", "deadlines", "kills", "streams", "slow readers", "broken streams", "repeats", "found out")
CHAOS += ("malformed calls", "malformed connections")
ALWAYS = ("wrong answer", "stuck")  # findings that are told also when there is none


@dataclass
class Table:
    ledger: Ledger
    clients: int
    minutes: float
    seed: int
    phases: List[Tuple[str, Memory]] = field(default_factory=list)

    def figures(self) -> Dict[str, Any]:
        ledger = self.ledger
        return {
            "clients": self.clients,
            "minutes": self.minutes,
            "seed": self.seed,
            "counts": dict(ledger.counts),
            "refused": dict(ledger.refused),
            "findings": dict(ledger.found),
            "phases": {
                name: {
                    "rss_first": m.first,
                    "rss_last": m.last,
                    "rss_course": m.course,
                    "leaked_bytes": m.leaked,
                    "fullest": m.fullest,
                }
                for name, m in self.phases
            },
        }

    def lines(self) -> List[str]:
        counts, found = self.ledger.counts, self.ledger.found
        rows: List[Tuple[str, str]] = []
        for name in CALLS:
            if counts[f"{name} calls"]:
                rows.append((f"calls: {name}", f"{counts[f'{name} calls']}, answered {counts[f'{name} answered']}"))
        rows.append(("steps on Steps", str(counts["Steps steps"])))
        rows += [(name, str(counts[name])) for name in CHAOS]
        rows += [(f"refused: {name}", str(n)) for name, n in sorted(self.ledger.refused.items(), key=lambda x: -x[1])]
        rows.append(("sessions begun", str(counts["sessions begun"])))
        rows.append(("rows checked", str(counts["rows checked"])))
        rows.append(("scrapes of /metrics", str(counts["scrapes"])))
        rows.append(("wrong answers", str(found["wrong answer"])))
        rows.append(("stuck", str(found["stuck"])))
        rows += [(name, str(n)) for name, n in found.items() if name not in ALWAYS]
        for name, memory in self.phases:
            rows.append((f"{name}: fullest cache", f"{memory.fullest:.0%}"))
            rows.append((f"{name}: pages leaked", f"{memory.leaked} bytes" if memory.leaked else "0"))
            rss = f"first {memory.first / MIB:.1f} MiB, last {memory.last / MIB:.1f} MiB"
            rows.append((f"{name}: RSS", f"{rss} (allowed: {memory.slack / MIB:.1f} MiB more)"))
        verdict = "FAILED" if self.ledger.failed else "passed"
        head = f"soak: {self.clients} clients, {self.minutes:g} min, seed {self.seed}: {verdict}"
        return [head, *(f"  {name:28} {value}" for name, value in rows)]


def write_json(path: pathlib.Path, table: Table) -> None:
    path.write_text(json.dumps(table.figures(), indent=1) + "\n")
