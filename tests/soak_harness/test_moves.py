"""Forks, exports and imports, against stubs that answer as they are told."""

import asyncio
import random
import time
from types import SimpleNamespace

import grpc
import attnd
import pytest
from attnd._proto import attnd_pb2 as pb
from soak_harness import moves
from soak_harness.history import History, Step
from soak_harness.ledger import Ledger
from soak_harness.sessions import Judge, Outcome, SoakSession
from soak_harness.test_verdicts import RULES, family


def error(code, reason):
    trailers = grpc.aio.Metadata(("attnd-reason", reason))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details="text")


class Stubs:
    """SessionService: `refuse` fails a method, `lengths` are what new sessions are said to have."""

    def __init__(self, lengths):
        self.sessions = self
        self.lengths = lengths
        self.refuse = {}
        self.imported = []

    def _session(self, name):
        if name in self.refuse:
            raise self.refuse[name]
        return pb.Session(session_id="new", layer_lengths=self.lengths)

    async def ForkSession(self, _request):  # noqa: N802
        return self._session("ForkSession")

    async def ExportSession(self, _request):  # noqa: N802
        self._session("ExportSession")
        yield pb.ExportSessionResponse(chunk=pb.SessionChunk(header=pb.SessionHeader(format_version=1)))
        yield pb.ExportSessionResponse(chunk=pb.SessionChunk(data=b"rows"))
        yield pb.ExportSessionResponse(chunk=pb.SessionChunk(digest=b"0123456789abcdef"))

    async def ImportSession(self, requests):  # noqa: N802
        try:
            self.imported = [request async for request in requests]
        except ConnectionError:
            raise asyncio.CancelledError() from None  # as grpc.aio does
        return self._session("ImportSession")


class Handle:
    session_id = "old"

    async def close(self, timeout):
        return 0


class Caller:
    """Answers every prefill with `reason`."""

    reason = "SESSION_MOVING"

    async def prefill(self, _session, _step):
        return Outcome(attnd.Unavailable("text", reason=self.reason))


def bench(seed, lengths=(60, 40)):
    """A client with one session, whose two layers are 60 and 40 rows long."""
    history = History(family(), RULES)
    history.apply(Step(0, 0, 60, 0))
    history.apply(Step(1, 0, 40, 0))
    ledger = Ledger()
    session = SoakSession(Handle(), history, 20.0, False, time.monotonic())
    setting = SimpleNamespace(missing=set(), rules=RULES, idle_ttl=20.0, evicts=False)

    async def raw_channel():
        return None

    return SimpleNamespace(
        choose=random.Random(seed), ledger=ledger, judge=Judge(ledger), sessions=[session], setting=setting,
        settled=lambda: [session], raw=Stubs(lengths), client=None, relay=None, name=lambda: "name",
        raw_channel=raw_channel, caller=Caller())  # fmt: skip


def seed_of(action, accept):
    """The first seed with which the client of `bench` comes to what is to be tested."""
    for seed in range(500):
        client = bench(seed)
        asyncio.run(action(client))
        if accept(client):
            return seed
    raise AssertionError("no seed does that")


def test_a_fork_is_a_session_of_its_own():
    seed = seed_of(moves.fork, lambda c: len(c.sessions) == 2 and not c.ledger.failed)
    client = bench(seed)
    asyncio.run(moves.fork(client))
    fork = client.sessions[1].history
    assert [layer.length for layer in fork.layers] == [60, 40] and all(layer.fuzzy for layer in fork.layers)
    fork.apply(Step(0, 60, 1, 0))
    assert client.sessions[0].history.layers[0].length == 60

    client = bench(seed, lengths=(60, 39))
    asyncio.run(moves.fork(client))
    assert dict(client.ledger.found) == {"wrong answer": 1}


@pytest.mark.parametrize("first, position, refused", [
    (0, 0, False), (0, 40, False), (0, 41, True), (33, 40, False), (34, 40, True)])  # fmt: skip
def test_a_fork_needs_a_position_that_every_layer_could_be_cut_to(first, position, refused):
    history = bench(1).sessions[0].history
    history.layers[0].first = first
    assert moves.must_not_fork(history, position) == refused


@pytest.mark.parametrize("reason, found", [
    ("CACHE_FULL", {}), ("QUEUE_FULL", {}), ("BAD_LAYER", {"unexpected refusal": 1})])  # fmt: skip
def test_refusals_of_a_fork(reason, found):
    client = bench(1)
    client.raw.refuse["ForkSession"] = error(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
    asyncio.run(moves.fork(client))
    assert dict(client.ledger.found) == found and len(client.sessions) == 1


def test_an_import_that_was_harmed_must_be_refused():
    harmed = seed_of(moves.export_import, lambda c: c.ledger.found["unexpected success"])
    client = bench(harmed)
    client.raw.refuse["ImportSession"] = error(grpc.StatusCode.DATA_LOSS, "BAD_DIGEST")
    asyncio.run(moves.export_import(client))
    assert not client.ledger.failed and len(client.sessions) == 1


def test_an_import_goes_on_with_the_exported_rows():
    whole = seed_of(moves.export_import, lambda c: len(c.sessions) == 2)
    client = bench(whole)
    asyncio.run(moves.export_import(client))
    assert [request.chunk.data for request in client.raw.imported] == [b"", b"rows", b""]
    assert client.raw.imported[0].session_id == "name" and not client.ledger.failed
    assert [layer.length for layer in client.sessions[1].history.layers] == [60, 40]

    client = bench(whole)
    client.raw.refuse["ImportSession"] = error(grpc.StatusCode.DATA_LOSS, "BAD_DIGEST")
    asyncio.run(moves.export_import(client))
    assert dict(client.ledger.found) == {"unexpected refusal": 1}


def test_a_session_that_moves_takes_no_steps():
    def moved(client):
        return client.ledger.refused["SESSION_MOVING"] and len(client.sessions) == 2

    seed = seed_of(moves.export_import, moved)
    client = bench(seed)
    client.caller.reason = "NOT_READY"
    asyncio.run(moves.export_import(client))
    assert dict(client.ledger.found) == {"unexpected success": 1} and client.sessions[0].gone
