"""Scenario c: a server is drained."""

from __future__ import annotations

import signal
import subprocess
import time

from .answers import Answers
from .fleet import Fleet, Server, wait_for_servers
from .probe import Probe
from .report import Report, eventually
from .workers import AFTER, Crew, StreamingWorker, Tally, Worker, crew_of, ids, plain

KEYS, EACH = 40, 5


def drain(fleet: Fleet, report: Report, answers: Answers) -> None:
    """`attnctl drain TARGET --via BALANCER` while all clients decode, half of them on Steps: the sessions
    of that server move, under their keys, and no step fails."""
    tally = Tally()
    with crew_of([Worker, StreamingWorker], fleet.balancer.address, KEYS, EACH, answers, plain, tally) as crew:
        _drain(fleet, crew, report)
        tally.tell(report)


def _drain(fleet: Fleet, crew: Crew, report: Report) -> None:
    address = fleet.balancer.address
    leaving, rest = fleet.servers[1], [fleet.servers[0], fleet.servers[2]]
    sessions = ids(crew.workers)
    with Probe(address) as probe:
        before = probe.homes(sessions)
    with crew.under_way():
        _leave(fleet, leaving, report)
        wait_for_servers(address, [server.id for server in rest])
        crew.await_rounds(AFTER)
        report.expect("sessions left on the drained server", len(leaving.sessions()), 0)
        leaving.signal(signal.SIGTERM)
        ended = eventually(lambda: not leaving.running, 60)
    report.expect("it ended upon SIGTERM", ended is not None, True)
    with Probe(address) as probe:
        after = probe.homes(sessions)
    there = sum(server == leaving.id for server in before.values())
    report.tell("sessions", len(before))
    report.tell("  of them on the drained server", there)
    elsewhere = [one for one in before if after[one] != before[one]]
    report.expect("  found on another server than before", len(elsewhere), there)
    report.expect("  lost", sum(server is None for server in after.values()), 0)


def _leave(fleet: Fleet, leaving: Server, report: Report) -> None:
    begun = time.monotonic()
    command = [str(fleet.attnctl), "drain", leaving.address, "--via", fleet.balancer.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report.expect("exit code of attnctl drain", done.returncode, 0)
    if done.returncode != 0:
        report.tell(f"  {done.stderr.strip()[-200:]}", "")
    report.tell("seconds that it took", round(time.monotonic() - begun, 2))
