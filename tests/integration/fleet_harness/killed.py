"""Scenario b: a server is killed."""

from __future__ import annotations

from typing import Set

from .answers import Answers
from .fleet import Fleet, wait_for_servers
from .probe import Probe
from .report import Report
from .witnesses import EACH, kept_and_lost
from .workers import Crew, ids

NEW_KEYS = 2000  # without sessions


def kill(fleet: Fleet, report: Report, answers: Answers) -> None:
    """SIGKILL: the sessions of that server are lost, no others; ReplayingSession makes its own anew, and all
    answers stay right. Started again under its name, the server has its keys again, and their sessions are
    made anew once more, as they are when it is killed again."""
    with kept_and_lost(fleet, report, answers) as (crew, witnesses):
        _kill(fleet, crew, witnesses, report)
        _start_again(fleet, crew, report)


def _kill(fleet: Fleet, crew: Crew, witnesses: Crew, report: Report) -> None:
    address = fleet.balancer.address
    keys = [f"key-{number}" for number in range(NEW_KEYS)]
    victim, rest = fleet.servers[1], [fleet.servers[0], fleet.servers[2]]
    with Probe(address) as probe:
        replayed_before = list(probe.homes(ids(crew.workers)).items())
        before = probe.homes(ids(witnesses.workers))
        keys_before = probe.places(keys)
    report.expect("servers that have keys", len(set(keys_before.values())), len(fleet.servers))
    with crew.under_way():
        victim.kill()
        took = wait_for_servers(address, [server.id for server in rest])
    report.tell("seconds until no new call went to the killed server", round(took, 2))
    there = [one for one, server in before.items() if server == victim.id]
    with Probe(address) as probe:
        after = probe.homes(ids(witnesses.workers))
        replayed_after = list(probe.homes(ids(crew.workers)).items())
        keys_after = probe.places(keys)
    report.tell("sessions that nobody replays", len(before))
    report.expect("  lost", sum(server is None for server in after.values()), len(there))
    apart = set(before) - set(there)
    report.expect("  lost that were not on the killed server", sum(after[one] is None for one in apart), 0)
    elsewhere = [one for one in before if after[one] not in (None, before[one])]
    report.expect("  found on another server than before", len(elsewhere), 0)
    replayed = list(zip(replayed_before, replayed_after))
    on_victim = [(past, now) for past, now in replayed if past[1] == victim.id]
    anew = sum(now[0] != past[0] and now[1] in (rest[0].id, rest[1].id) for past, now in on_victim)
    stayed = sum(now == past for past, now in replayed)
    report.tell("replaying sessions", len(replayed))
    report.expect("  made anew on another server, under another id", anew, len(on_victim))
    report.expect("  that stayed where they were", stayed, len(replayed) - len(on_victim))
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
    returned = sum(server == again.id for server in after.values())
    report.expect("  replaying sessions that it has, made anew there", returned, EACH * len(its_own))
    elsewhere = [one for one in after if one not in before and after[one] != again.id]
    report.expect("  made anew elsewhere", len(elsewhere), 0)
    left = before.keys() - after.keys()
    report.expect("  copies left behind on the others", _held(fleet, left), returned)
    _kill_again(fleet, crew, left, report)


def _kill_again(fleet: Fleet, crew: Crew, left: Set[str], report: Report) -> None:
    """Its sessions go back to where the copies are that were left behind there."""
    first, victim, third = fleet.servers
    with crew.under_way():
        victim.kill()
        wait_for_servers(fleet.balancer.address, [first.id, third.id])
    with Probe(fleet.balancer.address) as probe:
        homes = list(probe.homes(ids(crew.workers)).values())
    report.expect("killed again: replaying sessions", sum(home in (first.id, third.id) for home in homes), len(homes))
    report.expect("  copies that were left behind on the others", _held(fleet, left), 0)


def _held(fleet: Fleet, sessions: Set[str]) -> int:
    """How many of the sessions are on a server."""
    return sum(len(sessions.intersection(server.sessions())) for server in fleet.servers if server.running)
