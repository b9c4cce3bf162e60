"""What sessions on their way in and out may hold of a server's memory, whatever clients do."""

import re
import threading
import time
import urllib.request
from contextlib import ExitStack

import grpc
import numpy as np
import pytest

import attnd
from attnd import _channel
from attnd._proto import attnd_pb2 as pb
from attnd._proto import attnd_pb2_grpc as rpc
from support.server_process import ServerProcess

STREAMS = 8
LARGE = 64 << 20
BUDGET = 16 << 20
LAYERS = 12


@pytest.fixture
def server(request):
    budget = getattr(request, "param", BUDGET)
    model = ("--model=builtin:apex1-small", "--kv_cache_bytes=64MiB")
    process = ServerProcess(*model, f"--max_inflight_bytes={budget}")
    yield process
    process.stop()


@pytest.fixture
def sessions(server):
    with ExitStack() as open_channels:

        def connected(extra=()):
            options = _channel.channel_options(_channel.MAX_MESSAGE_BYTES, extra)
            channel = grpc.insecure_channel(server.address, options=options)
            return rpc.SessionServiceStub(open_channels.enter_context(channel))

        yield connected


def metric(server, name):
    page = urllib.request.urlopen(f"http://{server.ready['http']}/metrics", timeout=10).read()
    return float(re.search(rf"^{name} (\S+)$", page.decode(), re.MULTILINE)[1])


def becomes(server, name, value):
    end = time.monotonic() + 20
    while metric(server, name) != value:
        assert time.monotonic() < end, f"{name} is {metric(server, name)}; expected {value}"
        time.sleep(0.02)


def rows(count, seed):
    return np.random.default_rng(seed).standard_normal((count, 512), dtype=np.float32)


def exported(server, count):
    """The header and the parts of a session of `count` rows, which stays there as "a"."""
    with attnd.Client(server.address) as client:
        session = client.create_session(session_id="a")
        for layer in range(LAYERS):
            session.prefill(layer, rows(count, layer))
    with grpc.insecure_channel(server.address) as channel:
        request = pb.ExportSessionRequest(session_id="a")
        chunks = [r.chunk for r in rpc.SessionServiceStub(channel).ExportSession(request)]
    return chunks[0].header, chunks[1:]


@pytest.mark.parametrize("server", [1 << 30], indirect=True)
def test_imports_that_stall_hold_no_message(server, sessions):
    header, _ = exported(server, 3)
    before = metric(server, "process_resident_memory_bytes")
    release = threading.Event()
    large = pb.ImportSessionRequest(session_id="x" * LARGE)  # only the first message's counts

    def requests(i):
        yield pb.ImportSessionRequest(session_id=f"i{i}", chunk=pb.SessionChunk(header=header))
        yield large
        sent.release()
        release.wait(60)

    sent = threading.Semaphore(0)
    calls = []
    try:
        for i in range(STREAMS):
            calls.append(sessions().ImportSession.future(requests(i)))
            assert sent.acquire(timeout=30)
        time.sleep(2)  # until the last has arrived
        becomes(server, "attnd_inflight_bytes", 0)
        held = metric(server, "process_resident_memory_bytes") - before
        assert held < STREAMS * LARGE * 0.6, f"{held / 2**20:.0f} MiB for {STREAMS} stalled imports"
    finally:
        release.set()
        for call in calls:
            call.cancel()
    becomes(server, "attnd_inflight_bytes", 0)


def test_exports_that_nobody_reads_are_bounded_by_the_budget(server, sessions):
    _, parts = exported(server, 300)
    data_bytes = sum(len(part.data) for part in parts)
    refused, calls = [], []
    narrow = sessions(_channel.NARROW)
    try:
        for _ in range(40):
            calls.append(narrow.ExportSession(pb.ExportSessionRequest(session_id="a")))
            try:
                next(calls[-1])
            except grpc.RpcError as error:
                refused.append(error)
        held = metric(server, "attnd_inflight_bytes")
        per_stream = 2 * min(data_bytes, 1 << 20)
        assert BUDGET - per_stream < held <= BUDGET
        assert len(refused) == 40 - held // per_stream
        for error in refused:
            trailing = dict(error.trailing_metadata())
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
            assert trailing["attnd-reason"] == "QUEUE_FULL"
            assert "grpc-status-details-bin" in trailing  # when to try again
    finally:
        for call in calls:
            call.cancel()
    becomes(server, "attnd_inflight_bytes", 0)
    assert len(list(narrow.ExportSession(pb.ExportSessionRequest(session_id="a")))) > 1


def test_a_message_larger_than_a_part_arrives_whole(server, sessions):
    header, parts = exported(server, 300)
    data = b"".join(part.data for part in parts)
    assert len(data) > 1 << 20
    chunks = [pb.SessionChunk(header=header, data=data, digest=parts[-1].digest)]
    requests = [pb.ImportSessionRequest(session_id="b", chunk=chunk) for chunk in chunks]
    copy = sessions().ImportSession(iter(requests))
    assert list(copy.layer_lengths) == [300] * LAYERS
    with attnd.Client(server.address) as client:
        bits = [client.get_session(i).decode(0, rows(1, 9)).output for i in "ab"]
        assert bits[0].tobytes() == bits[1].tobytes()
    becomes(server, "attnd_inflight_bytes", 0)
