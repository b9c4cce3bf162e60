"""Scenario a: sessions stay where they are."""

from __future__ import annotations

import collections
import time

import attnd
import numpy as np

from .answers import Answers
from .fleet import Fleet
from .probe import OWN_CONNECTION, Probe, moved
from .report import Report
from .workers import Crew, Tally, Worker, crew_of, ids, plain

KEYS, EACH = 40, 5
ROUNDS = 12
SILENCE = 11.0  # seconds; longer than HAProxy's timeout for a request's headers


def stay(fleet: Fleet, report: Report, answers: Answers) -> None:
    """200 sessions under 40 keys: every call finds its session, also over new connections and through a
    second balancer. A silent stream is not cut."""
    tally, connections = Tally(), _connections(fleet)
    with crew_of([Worker], fleet.balancer.address, KEYS, EACH, answers, plain, tally) as crew:
        with Silent(fleet.balancer.address, answers) as silent:
            _rounds(fleet, crew, connections, report)
            silent.wait()
            report.expect(f"answers of a stream that was silent for {SILENCE:g} s", silent.answers(), 2)
        tally.tell(report)


def _rounds(fleet: Fleet, crew: Crew, connections: int, report: Report) -> None:
    """`connections`: of the balancer to the servers, before the crew's."""
    sessions = ids(crew.workers)
    with Probe(fleet.balancer.address) as probe:
        before = probe.homes(sessions)
    shares = collections.Counter(map(fleet.name_of, before.values()))
    for server in fleet.servers:
        report.tell(f"sessions on {server.name}", shares[server.name])
        there = set(server.sessions()) & set(before)
        report.expect(f"  as {server.name} says itself", len(there), shares[server.name])
    report.expect("servers that have sessions", len(shares), len(fleet.servers))
    keys_apart = {key: {before[one] for owner, one in sessions if owner == key} for key, _ in sessions}
    report.expect("keys with sessions on two servers", sum(len(s) > 1 for s in keys_apart.values()), 0)
    crew.rounds(ROUNDS)
    address = fleet.balancer.address
    # One for each worker, and for a probe and the silent stream.
    opened = _connections(fleet) - connections
    report.expect_between("connections that the balancer opened to the servers", opened, KEYS, KEYS + 10)
    report.expect("sessions elsewhere after more steps", moved(address, sessions, before), 0)
    crew.each(Worker.reconnect)
    crew.rounds(ROUNDS)
    report.expect("sessions elsewhere over new connections", moved(address, sessions, before), 0)
    twin = fleet.twin()
    try:
        elsewhere = moved(twin.address, sessions, before)
        report.expect("sessions elsewhere through a second balancer", elsewhere, 0)
    finally:
        twin.stop()


def _connections(fleet: Fleet) -> int:
    return sum(server.connections() for server in fleet.servers)


class Silent:
    """A stream of Steps on which nothing happens for a while."""

    def __init__(self, address: str, answers: Answers):
        self._rows = answers.hidden[0, :2].astype(np.float32)
        self._client = attnd.Client(address, affinity_key="silent", options=list(OWN_CONNECTION))

    def __enter__(self) -> "Silent":
        self._session = self._client.create_session()
        self._stream = self._client.steps()
        self._first = self._step(0)
        self._begun = time.monotonic()
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            self._stream.close()
        self._client.close()

    def _step(self, row: int) -> int:
        answer = self._stream.submit_decode(0, [self._session], self._rows[row : row + 1]).result(30)
        return len(answer.raise_for_error().output)

    def wait(self) -> None:
        time.sleep(max(0.0, SILENCE - (time.monotonic() - self._begun)))

    def answers(self) -> int:
        return self._first + self._step(1)
