"""Scenario: messages of many MiB, and a client that gives up."""

from __future__ import annotations

import re
import urllib.request

import attnd
import grpc
import numpy as np
from attnd import _channel
from attnd._proto import attnd_pb2 as pb

from .answers import Answers
from .fleet import Fleet, Server
from .probe import KEY, OWN_CONNECTION
from .report import Report, eventually

ROWS = 8192  # of 512 float32: 16 MiB there and 16 MiB back
FLAGS = ("--model", "builtin:apex1-small", "--kv_cache_bytes", "1GiB")


def large(fleet: Fleet, report: Report, _: Answers) -> None:
    """A Prefill of 16 MiB is answered as without a balancer, unary and on Steps; a cancel gets through."""
    (server,) = fleet.servers
    with attnd.Client(server.address) as direct:
        hidden = np.random.default_rng(2).standard_normal((ROWS, direct.model().d_model)).astype(np.float32)
        with direct.create_session() as session:
            expected = session.prefill(0, hidden).output.tobytes()
    address = fleet.balancer.address
    with attnd.Client(address, affinity_key="large", options=list(OWN_CONNECTION)) as client:
        with client.create_session() as session:
            answer = session.prefill(0, hidden).output
            report.tell("bytes of a unary answer", answer.nbytes)
            report.expect("  the same as without a balancer", answer.tobytes() == expected, True)
        with client.create_session() as session, client.steps() as stream:
            answer = stream.submit_prefill(session, 0, hidden).result(60).output
            report.expect("the same on Steps", answer.tobytes() == expected, True)
        with client.create_session() as session:
            _cancel(address, session.session_id, hidden, server, report)
            report.expect("  rows that it left", session.info().layer_lengths[1], 0)


def _cancel(address: str, session_id: str, hidden: np.ndarray, server: Server, report: Report) -> None:
    """Gives a Prefill up once the server has begun it; for the server it is CANCELLED."""
    tensor = pb.Tensor(dtype=pb.DTYPE_F32, shape=list(hidden.shape), data=hidden.tobytes())
    request = pb.PrefillRequest(session_id=session_id, layer=1, hidden=tensor)
    with _channel_of(address) as channel:
        call = _channel.Stubs(channel).attention.Prefill.future(request, metadata=((KEY, "large"),))
        begun = eventually(lambda: metric(server, "attnd_inflight_rpcs") > 0, 20)
        call.cancel()
        code = 'attnd_rpc_requests_total{code="CANCELLED",method="Prefill"}'
        cancelled = eventually(lambda: metric(server, code) > 0, 20)
    report.expect("a Prefill that was given up had begun", begun is not None, True)
    report.expect("  and was CANCELLED for the server", cancelled is not None, True)


def _channel_of(address: str):

    return grpc.insecure_channel(address, _channel.channel_options(256 << 20, OWN_CONNECTION))


def metric(server: Server, name: str) -> float:
    with urllib.request.urlopen(f"http://{server.endpoint.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(found[1]) if found else 0.0
