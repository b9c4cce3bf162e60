"""Scenario d: a server is added."""

from __future__ import annotations

from .answers import Answers
from .fleet import Fleet, wait_for_servers
from .probe import Probe
from .report import Report
from .witnesses import kept_and_lost
from .workers import Crew, ids

NEW_KEYS = 4000
# A quarter of the keys, give or take what 1024 points a server leave to chance.
SHARE = (0.20, 0.30)


def add(fleet: Fleet, report: Report, answers: Answers) -> None:
    """A fourth server: a quarter of the keys go there and no key goes between the others. Sessions under
    those keys are not found any more; ReplayingSession makes its own anew."""
    with kept_and_lost(fleet, report, answers) as (crew, witnesses):
        _add(fleet, crew, witnesses, report)


def _add(fleet: Fleet, crew: Crew, witnesses: Crew, report: Report) -> None:
    address = fleet.balancer.address
    keys = [f"key-{number}" for number in range(NEW_KEYS)]
    with Probe(address) as probe:
        keys_before = probe.places(keys)
        before = probe.homes(ids(witnesses.workers))
    with crew.under_way():
        added = fleet.start_server()
        fleet.balancer.add(added.endpoint)
        took = wait_for_servers(address, [server.id for server in fleet.servers])
    report.tell("seconds until calls reached the added server", round(took, 2))
    with Probe(address) as probe:
        keys_after = probe.places(keys)
        after = probe.homes(ids(witnesses.workers))
        places = probe.places(worker.key for worker in witnesses.workers)
    changed = [key for key in keys if keys_after[key] != keys_before[key]]
    there = sum(server == added.id for server in keys_after.values())
    report.tell("keys asked for", len(keys))
    report.expect_between("  share that goes to the added server", round(there / len(keys), 3), *SHARE)
    report.expect("  that changed places among the others", len(changed) - there, 0)
    remapped = sum(place == added.id for place in places.values())
    report.tell("sessions that nobody replays, a key each", len(before))
    lost = [one for one in before if after[one] is None]
    elsewhere = [one for one in before if after[one] not in (None, before[one])]
    report.expect("  not found any more: their key goes to the added server", len(lost), remapped)
    report.expect("  found on another server than before", len(elsewhere), 0)
