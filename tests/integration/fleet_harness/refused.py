"""Scenario: servers that refuse are not broken servers."""

from __future__ import annotations

import collections
import io
from typing import Callable, Counter, Optional

import attnd
import grpc
import numpy as np

from .answers import Answers
from .balancers import Envoy
from .fleet import Fleet
from .probe import KEY, OWN_CONNECTION, Probe
from .report import Report, eventually

REFUSALS = 60  # of each kind at each server, one after the other; Envoy ejects after 5 where it is asked to
FLAGS = ("--max_sessions", "4")


def refuse(fleet: Fleet, report: Report, _: Answers) -> None:
    """RESOURCE_EXHAUSTED, UNAVAILABLE (SESSION_MOVING) and UNIMPLEMENTED, many in a row: every server stays
    in its place."""
    codes: Counter[str] = collections.Counter()
    with Probe(fleet.balancer.address) as probe:
        keys = [f"key-{number}" for number in range(200)]
        before = probe.places(keys)
        for server in fleet.servers:
            _refusals(fleet.balancer.address, next(key for key in keys if before[key] == server.id), codes)
        after = probe.places(keys)
    for code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNIMPLEMENTED"):
        report.expect(f"answers {code}", codes[code], REFUSALS * len(fleet.servers))
    report.expect("keys that go elsewhere afterwards", sum(after[key] != before[key] for key in keys), 0)
    if isinstance(fleet.balancer, Envoy):
        ejections = fleet.balancer.counter("cluster.attnd.outlier_detection.ejections_enforced_total")
        report.expect("ejections", ejections, 0)
    _without_servers(fleet, report)


def _without_servers(fleet: Fleet, report: Report) -> None:
    """What the balancer itself answers, with no server left."""
    for server in fleet.servers:
        server.kill()
    word = "upstream" if isinstance(fleet.balancer, Envoy) else "no attnd server is ready"

    def refused() -> Optional[str]:
        with attnd.Client(fleet.balancer.address, affinity_key="any", options=list(OWN_CONNECTION)) as client:
            try:
                client.model()
            except attnd.AttndError as error:
                return error.code.name if word in str(error) else None
        return None

    told = eventually(lambda: refused() == "UNAVAILABLE", 30)
    report.expect(f"with no server left UNAVAILABLE, '{word}'", told is not None, True)


def _refusals(address: str, key: str, codes: Counter[str]) -> None:
    """Every kind of refusal, by the server of that key."""
    with attnd.Client(address, affinity_key=key, move_wait=0, options=list(OWN_CONNECTION)) as client:
        width = client.model().d_model
        row = np.zeros((1, width), np.float32)
        sessions = [client.create_session() for _ in range(4)]
        _repeat(client.create_session, codes)
        client.export_session(sessions[0].session_id, io.BytesIO(), move=True)
        _repeat(lambda: sessions[0].decode(0, row, position=0), codes)
    with grpc.insecure_channel(address, OWN_CONNECTION) as channel:
        unknown = channel.unary_unary("/attnd.v1.AdminService/Unknown")
        _repeat(lambda: unknown(b"", metadata=((KEY, key),)), codes)


def _repeat(call: Callable[[], object], codes: Counter[str]) -> None:
    for _ in range(REFUSALS):
        try:
            call()
        except attnd.AttndError as error:
            codes[error.code.name] += 1
        except grpc.RpcError as error:
            codes[error.code().name] += 1
