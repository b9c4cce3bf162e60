"""Sessions that their clients make anew, beside sessions that nobody does: what becomes of each."""

from __future__ import annotations

import contextlib
from typing import Iterator, Tuple

from .answers import Answers
from .fleet import Fleet
from .report import Report
from .workers import Crew, Tally, Worker, crew_of, plain, replaying

KEYS, EACH = 40, 5


@contextlib.contextmanager
def kept_and_lost(fleet: Fleet, report: Report, answers: Answers) -> Iterator[Tuple[Crew, Crew]]:
    """A crew of replaying sessions whose counts are told at the end, and under the same keys an idle one of
    plain sessions, one a key: the witnesses of what was lost."""
    tally = Tally()
    address = fleet.balancer.address
    with crew_of([Worker], address, KEYS, EACH, answers, replaying, tally) as crew:
        with crew_of([Worker], address, KEYS, 1, answers, plain, Tally()) as witnesses:
            yield crew, witnesses
            tally.tell(report)
