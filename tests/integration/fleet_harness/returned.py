"""Scenario f: a server is out of the balancer's reach for a while, and lives."""

from __future__ import annotations

from .answers import Answers
from .fleet import Fleet, wait_for_servers
from .probe import Probe
from .report import Report
from .workers import AFTER, Crew, StreamingWorker, Tally, Worker, crew_of, ids, replaying

KEYS, EACH = 40, 5


def leave(fleet: Fleet, report: Report, answers: Answers) -> None:
    """It leaves the ring and returns: streams go on there meanwhile, calls go elsewhere, where their sessions are
    made anew, and again when it returns, for what it holds of them is old. All answers stay right."""
    tally = Tally()
    with crew_of([Worker, StreamingWorker], fleet.balancer.address, KEYS, EACH, answers, replaying, tally) as crew:
        _leave(fleet, crew, report)
        tally.tell(report)


def _leave(fleet: Fleet, crew: Crew, report: Report) -> None:
    address = fleet.balancer.address
    away, rest = fleet.servers[1], [fleet.servers[0], fleet.servers[2]]
    before = set(away.sessions())
    streaming = {one[1] for one in ids([w for w in crew.workers if isinstance(w, StreamingWorker)])} & before
    with crew.under_way():
        fleet.balancer.take_out(away.endpoint)
        wait_for_servers(address, [server.id for server in rest])
        crew.await_rounds(AFTER)
        elsewhere = before - {one[1] for one in ids(crew.workers)}
        fleet.balancer.put_back(away.endpoint)
        wait_for_servers(address, [server.id for server in fleet.servers])
    now = ids(crew.workers)
    with Probe(address) as probe:
        homes = probe.homes(now)
    report.tell("replaying sessions on the server that leaves", len(before))
    report.expect("  of calls, made anew elsewhere", len(elsewhere), len(before - streaming))
    report.expect("  of streams, which stayed there", len({one[1] for one in now} & before), len(streaming))
    report.expect("sessions under their keys in the end", sum(home is not None for home in homes.values()), len(now))
    report.expect("  of them on the server that returned", sum(home == away.id for home in homes.values()), len(before))
    report.expect("old copies there", len(elsewhere & set(away.sessions())), 0)
