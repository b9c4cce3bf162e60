"""Scenario e: a server gets SIGTERM under streaming clients."""

from __future__ import annotations

import signal

from .answers import Answers
from .fleet import Fleet, wait_for_servers
from .report import Report, eventually
from .workers import Crew, StreamingWorker, Tally, crew_of, replaying

CLIENTS = 64


def stop(fleet: Fleet, report: Report, answers: Answers) -> None:
    """SIGTERM under 64 clients with a stream of Steps each: no step fails, all answers stay right."""
    tally = Tally()
    with crew_of([StreamingWorker], fleet.balancer.address, CLIENTS, 1, answers, replaying, tally) as crew:
        _stop(fleet, crew, report)
        tally.tell(report)


def _stop(fleet: Fleet, crew: Crew, report: Report) -> None:
    address = fleet.balancer.address
    leaving, rest = fleet.servers[1], [fleet.servers[0], fleet.servers[2]]
    with crew.under_way():
        there = len(leaving.sessions())
        leaving.signal(signal.SIGTERM)
        took = wait_for_servers(address, [server.id for server in rest])
        ended = eventually(lambda: not leaving.running, 60)
    report.tell("streaming clients", len(crew.workers))
    report.tell("  of them on the stopped server", there)
    report.tell("seconds until no new call went to the stopped server", round(took, 2))
    report.expect("the server ended", ended is not None, True)
    report.expect("  exit code", leaving.exit_code, 0)
