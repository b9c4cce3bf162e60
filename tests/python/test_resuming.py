"""Streams that go on when their server stops, dies, or hands their sessions over."""

import signal
import threading
import time

import pytest

import attnd
from attnd._proto import attnd_pb2 as pb

from test_replaying import LAYERS, kill
from test_session import rows


def stream_of_steps(client, session, tokens, pause=0.0, disturb_at=None, disturb=None):
    """Prompt and tokens through every layer, four steps in flight; the answers' bytes."""
    futures = []
    with client.steps(resume=True) as stream:
        for layer in LAYERS:
            futures.append(stream.submit_prefill(session, layer, rows(90, layer)))
        for token in range(tokens):
            if token == disturb_at:
                disturb()
            for layer in LAYERS:
                x = rows(1, 1000 + 10 * token + layer)
                futures.append(stream.submit_decode(layer, [session], x))
            futures[-4].result(60)
            time.sleep(pause)
        return [future.result(60).output.tobytes() for future in futures]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_stream_goes_on_with_the_same_bits(fleet, client, how):
    server = fleet.server_of("another")
    with attnd.Client(server.address) as direct, direct.create_session() as plain:
        expected = stream_of_steps(direct, plain, 40)
    session = client.create_replaying_session()
    answers = stream_of_steps(client, session, 40, 0.03, 10, lambda: kill(fleet, client, how))
    assert answers == expected
    assert session.info().layer_lengths == session.lengths == (130,) * 4


def test_no_step_fails_when_a_server_with_64_streams_is_stopped(fleet):
    stop, failed, done, ready = threading.Event(), [], [], threading.Semaphore(0)

    def work(number):
        steps = 0
        with attnd.Client(fleet.address, timeout=60) as client:
            session = client.create_replaying_session()
            try:
                with client.steps(resume=True) as stream:
                    while not stop.is_set():
                        layer, token = steps % 4, steps // 4
                        future = stream.submit_decode(layer, [session], rows(1, number + token))
                        future.result(120)
                        steps += 1
                        if steps == 8:
                            ready.release()
                        time.sleep(0.02)
            except Exception as error:
                failed.append(error)
                ready.release()
            lengths = session.info().layer_lengths
            done.append(sum(lengths) == steps)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert ready.acquire(timeout=120)
    fleet.servers[0]._process.terminate()
    assert fleet.servers[0]._process.wait(60) == 0
    time.sleep(1)
    stop.set()
    for thread in threads:
        thread.join(120)
    assert failed == [] and done == [True] * 64


def moved(fleet, client, session_id):
    """Moves a session to where its key goes now, slowly."""
    old = next(
        server for server in fleet.servers if server is not fleet.server_of(client.affinity_key)
    )
    request = pb.ExportSessionRequest(session_id=session_id, move=True)
    with attnd.Client(old.address) as source:
        parts = [one.chunk for one in source._stubs.sessions.ExportSession(request)]
        time.sleep(0.3)
        again = [pb.ImportSessionRequest(chunk=part) for part in parts]
        metadata = [("attnd-session-key", client.affinity_key)]
        client._stubs.sessions.ImportSession(iter(again), metadata=metadata)
        time.sleep(0.3)
        source.close_session(session_id)


def test_plain_sessions_of_a_stream_move_one_by_one(fleet):
    with attnd.Client(fleet.address, timeout=30) as patient:
        move_one_by_one(fleet, patient)


def move_one_by_one(fleet, client):
    sessions = [client.create_session() for _ in range(3)]
    server = fleet.server_of(client.affinity_key)
    stop, errors, count = threading.Event(), [], [0]

    def work():
        try:
            with client.steps(resume=True) as stream:
                while not stop.is_set():
                    x = rows(3, count[0])
                    result = stream.submit_decode(0, sessions, x).result(60)
                    result.raise_for_error()
                    count[0] += 1
                    time.sleep(0.03)  # the model ends at 512 tokens
        except Exception as error:
            errors.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.3)
    with attnd.Client(server.address) as admin:
        admin.drain()
    while fleet.server_of(client.affinity_key) is server:
        time.sleep(0.05)
    for session in sessions:
        moved(fleet, client, session.session_id)
    time.sleep(0.5)
    stop.set()
    worker.join(60)
    assert errors == []
    assert [client.get_session(one.session_id).lengths[0] for one in sessions] == [count[0]] * 3


def test_a_step_that_cannot_be_mended_fails_and_the_stream_goes_on(fleet, client):
    session, other = client.create_session(), client.create_replaying_session()
    with client.steps(resume=True) as stream:
        stream.submit_decode(0, [other], rows(1)).result(30)
        with pytest.raises(attnd.FailedPrecondition) as error:
            stream.submit_prefill(session, 0, rows(1), 7).result(30)
        assert error.value.reason == "POSITION_MISMATCH"
        kill(fleet, client)
        lost = stream.submit_prefill(session, 0, rows(1), 0)
        kept = stream.submit_decode(0, [other], rows(1, 2))
        with pytest.raises(attnd.NotFound) as error:
            lost.result(60)
        assert error.value.reason == "SESSION_UNKNOWN"
        assert kept.result(60).results[0].length == 2


def test_a_stream_left_with_an_exception_does_not_wait(fleet, client):
    session = client.create_replaying_session()
    for server in fleet.servers:
        server._process.kill()
    start = time.monotonic()
    with pytest.raises(KeyError):
        with client.steps(resume=True) as stream:
            future = stream.submit_decode(0, [session], rows(1))
            time.sleep(0.3)
            raise KeyError("something else")
    assert time.monotonic() - start < 20
    assert isinstance(future.exception(1), attnd.AttndError)


def test_a_stream_left_with_an_exception_gives_up_what_came_while_it_mended(fleet, client):
    session = client.create_replaying_session()
    futures = []

    def work():
        with pytest.raises(KeyError):
            with client.steps(resume=True) as stream:
                stream.submit_decode(0, [session], rows(1)).result(30)
                for server in fleet.servers:
                    server._process.kill()
                    server._process.wait()
                futures.append(stream.submit_decode(0, [session], rows(1)))
                time.sleep(0.5)  # it waits for a server by now
                futures.append(stream.submit_decode(0, [session], rows(1)))
                raise KeyError("something else")

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(20)
    assert not worker.is_alive()
    assert isinstance(futures[0].exception(0), attnd.AttndError)
    assert isinstance(futures[1].exception(0), attnd.Cancelled)


def test_a_cancelled_step_is_not_sent_again(fleet, client):
    session = client.create_replaying_session()
    with client.steps(resume=True) as stream:
        session.prefill(0, rows(3))
        stream.cancel(99)
        for server in fleet.servers:
            server._process.kill()
        waiting = stream.submit_decode(0, [session], rows(1))
        time.sleep(0.5)
        stream.cancel(waiting.step_id)
        assert isinstance(waiting.exception(10), attnd.Cancelled)


def test_a_replaying_session_needs_a_stream_that_resumes(fleet, client):
    session = client.create_replaying_session()
    with client.steps() as stream:
        with pytest.raises(ValueError, match="resume=True"):
            stream.submit_decode(0, [session], rows(1))
