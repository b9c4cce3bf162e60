"""Scenario b: a server is killed."""

from __future__ import annotations

from .answers import Answers
from .balancers import Envoy
from .fleet import Fleet, wait_for_servers
from .probe import Probe
from .report import Report
from .witnesses import EACH, kept_and_lost
from .workers import Crew, ids

NEW_KEYS = 2000  # without sessions


def kill(fleet: Fleet, report: Report, answers: Answers) -> None:
    """SIGKILL: the sessions of that server are lost, no others; ReplayingSession makes its own anew, and all
    answers stay right. Started again under its name, the server has its keys again, and their sessions are
    made anew once more."""
    with kept_and_lost(fleet, report, answers) as (crew, witnesses):
        _kill(fleet, crew, witnesses, report)
        _start_again(fleet, crew, report)


def _kill(fleet: Fleet, crew: Crew, witnesses: Crew, report: Report) -> None:
    address = fleet.balancer.address
    keys = [f"key-{number}" for number in range(NEW_KEYS)]
    victim, rest = fleet.servers[1], [fleet.servers[0], fleet.servers[2]]
    with Probe(address) as probe:
        replayed_before = probe.homes(ids(crew.workers))
        before = probe.homes(ids(witnesses.workers))
        keys_before = probe.places(keys)
    if isinstance(fleet.balancer, Envoy):
        for name, count in fleet.balancer.ring().items():
            report.tell(f"before the kill: {name}", count)
    report.expect("servers that have keys", len(set(keys_before.values())), len(fleet.servers))
    with crew.under_way():
        victim.kill()
        took = wait_for_servers(address, [server.id for server in rest])
    report.tell("seconds until no new call went to the killed server", round(took, 2))
    there = [one for one, server in before.items() if server == victim.id]
    with Probe(address) as probe:
        after = probe.homes(ids(witnesses.workers))
        replayed_after = probe.homes(ids(crew.workers))
        keys_after = probe.places(keys)
    report.tell("sessions that nobody replays", len(before))
    report.expect("  lost", sum(server is None for server in after.values()), len(there))
    apart = set(before) - set(there)
    report.expect("  lost that were not on the killed server", sum(after[one] is None for one in apart), 0)
    elsewhere = [one for one in before if after[one] not in (None, before[one])]
    report.expect("  found on another server than before", len(elsewhere), 0)
    on_victim = [one for one, server in replayed_before.items() if server == victim.id]
    anew = [one for one in on_victim if replayed_after[one] in (rest[0].id, rest[1].id)]
    stayed = [one for one in replayed_before if replayed_after[one] == replayed_before[one]]
    report.tell("replaying sessions", len(replayed_before))
    report.expect("  made anew on another server", len(anew), len(on_victim))
    report.expect("  that stayed where they were", len(stayed), len(replayed_before) - len(on_victim))
    survivors = [key for key in keys if keys_before[key] != victim.id]
    report.tell("keys of the other servers", len(survivors))
    report.expect("  that changed places", sum(keys_after[key] != keys_before[key] for key in survivors), 0)


def _start_again(fleet: Fleet, crew: Crew, report: Report) -> None:
    """The second server is dead, and its sessions live elsewhere."""
    address, keys = fleet.balancer.address, [f"key-{number}" for number in range(NEW_KEYS)]
    with Probe(address) as probe:
        keys_before, before = probe.places(keys), probe.homes(ids(crew.workers))
    with crew.under_way():
        again = fleet.start_again(fleet.servers[1])
        wait_for_servers(address, [server.id for server in fleet.servers])
    with Probe(address) as probe:
        keys_after, after = probe.places(keys), probe.homes(ids(crew.workers))
        its_own = [key for key, server in probe.places(w.key for w in crew.workers).items() if server == again.id]
    back = sum(server == again.id for server in keys_after.values())
    moved = sum(keys_after[key] != keys_before[key] for key in keys)
    report.tell("the killed server is started again: keys that it has", back)
    report.expect("  that changed places among the others", moved - back, 0)
    copies = sum(len(before.keys() & set(server.sessions())) for server in fleet.servers)
    returned = sum(after[one] == again.id for one in before)
    report.expect("  replaying sessions that it has, made anew there", returned, EACH * len(its_own))
    elsewhere = [one for one in before if after[one] not in (before[one], again.id)]
    report.expect("  elsewhere than before, but not there", len(elsewhere), 0)
    report.expect("  copies left behind on the others", copies - len(before), returned)
