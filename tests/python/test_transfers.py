"""Fork, export, import and moves of both clients, against the fake server."""

import asyncio
import io
import os
import threading
import time

import numpy as np
import pytest

import attnd
from attnd import _transfer
from attnd._proto import attnd_pb2 as pb

from test_session import rows


class Awaited:
    """An AsyncClient whose calls block, so that one test serves both clients."""

    def __init__(self, address, **options):
        self._loop = asyncio.new_event_loop()
        self._client = attnd.AsyncClient(address, **options)

    def __getattr__(self, name):
        def call(*arguments, **options):
            answer = self._loop.run_until_complete(
                getattr(self._client, name)(*arguments, **options)
            )
            return Session(self._loop, answer) if isinstance(answer, attnd.AsyncSession) else answer

        return call

    def decode(self, layer, sessions, hidden):
        return self.__getattr__("decode")(layer, [one._session for one in sessions], hidden)

    def close(self):
        self.__getattr__("close")()
        self._loop.close()


class Session:
    def __init__(self, loop, session):
        self._loop, self._session = loop, session

    def __getattr__(self, name):
        value = getattr(self._session, name)
        if not callable(value):
            return value

        def call(*arguments, **options):
            answer = self._loop.run_until_complete(value(*arguments, **options))
            return Session(self._loop, answer) if isinstance(answer, attnd.AsyncSession) else answer

        return call


@pytest.fixture(params=["blocking", "asyncio"])
def make(request, fake):
    made = []

    def client(**options):
        kind = attnd.Client if request.param == "blocking" else Awaited
        made.append(kind(fake.address, timeout=20, **options))
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def client(make):
    return make()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.session"


def filled(client, name="a"):
    session = client.create_session(session_id=name, max_tokens=50)
    for layer in range(4):
        session.prefill(layer, rows(20 - layer))
    return session


def test_a_fork_continues_on_its_own(client, fake):
    session = filled(client)
    fork = session.fork(5, "b", max_tokens=30, idle_ttl=2.0)
    assert (fork.session_id, fork.lengths) == ("b", (5, 5, 5, 5))
    assert fork.info().max_tokens == 30
    x = rows(3, seed=9)
    np.testing.assert_array_equal(
        fork.prefill(0, x).output, session.prefill(0, x, position=5, rewind=True).output
    )
    fork.decode(1, rows(1))
    assert session.info().layer_lengths == (8, 19, 18, 17)
    assert session.fork().session_id not in ("", "a", "b")
    with pytest.raises(attnd.AlreadyExists):
        session.fork(session_id="b")


def test_a_session_comes_back_from_its_file(client, fake, path):
    session, seen = filled(client), []
    size = client.export_session("a", path, progress=lambda *bytes: seen.append(bytes))
    assert size == (20 + 19 + 18 + 17) * 400
    assert seen[0] == (0, size) and seen[-1] == (size, size) and len(seen) == 32
    assert list(path.parent.iterdir()) == [path] and path.stat().st_mode & 0o777 == 0o600
    seen.clear()
    again = client.import_session(path, "b", progress=lambda *bytes: seen.append(bytes))
    assert seen[-1] == (size, size) and len(seen) == 32
    assert (again.session_id, again.lengths) == ("b", (20, 19, 18, 17))
    for layer in range(4):
        x = rows(2, seed=layer)
        np.testing.assert_array_equal(
            again.decode(layer, x).output, session.decode(layer, x).output
        )
    with pytest.raises(attnd.AlreadyExists) as error:
        client.import_session(str(path))
    assert error.value.reason == "SESSION_EXISTS"


def test_open_files_are_taken_too(client, fake):
    filled(client)
    file = io.BytesIO()
    client.export_session("a", file)
    client.close_session("a")
    file.seek(0)
    assert client.import_session(file).session_id == "a" and not file.closed


def test_an_import_carries_the_sessions_own_key(make, fake, path):
    filled(make(affinity_key="worker-7"))
    one = make(affinity_key="other", metadata=[("x-more", "1")])
    one.export_session("a", path)
    assert one.import_session(path, "b").info().affinity_key == "worker-7"
    sent = [one for one in fake.metadata if one.get("x-more")]
    assert [one["attnd-session-key"] for one in sent] == ["other", "worker-7", "other"]


def test_a_file_cut_anywhere_is_refused(client, fake, path):
    fake.exporting.chunk_bytes = 10000
    filled(client)
    client.export_session("a", path)
    whole = path.read_bytes()
    end = len(whole)
    for size in [*range(0, 200, 3), *range(200, end, 3001), *range(end - 25, end)]:
        path.write_bytes(whole[:size])
        with pytest.raises(attnd.AttndError) as error:
            client.import_session(path, "b")
        expected = attnd.DataLoss if size >= 8 else attnd.InvalidArgument
        assert type(error.value) is expected, (size, error.value)
        assert error.value.reason == ("TRUNCATED" if size >= 8 else ""), size
    assert list(fake.engine.sessions) == ["a"]


def test_a_file_damaged_anywhere_is_refused(client, fake, path):
    fake.exporting.chunk_bytes = 10000
    filled(client)
    client.export_session("a", path)
    whole = path.read_bytes()
    for at in [*range(0, 150), *range(150, len(whole), 3001), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[at] ^= 0x20
        path.write_bytes(damaged)
        with pytest.raises((attnd.DataLoss, attnd.InvalidArgument, attnd.FailedPrecondition)):
            client.import_session(path, "b")
    path.write_bytes(whole + b"\0\0\0\0")
    with pytest.raises(attnd.DataLoss, match="comes after the digest"):
        client.import_session(path, "b")
    assert list(fake.engine.sessions) == ["a"]


def test_a_failed_export_leaves_nothing_and_keeps_what_was_there(client, fake, path):
    filled(client)
    path.write_bytes(b"before")
    for fault, reason in [({"damage": True}, "BAD_DIGEST"), ({"cut_after": 3}, "TRUNCATED")]:
        vars(fake.exporting).clear()
        vars(fake.exporting).update(fault)
        with pytest.raises(attnd.DataLoss) as error:
            client.export_session("a", path, move=True)
        assert error.value.reason == reason
        assert path.read_bytes() == b"before" and list(path.parent.iterdir()) == [path]
        assert not fake.engine.moving
    with pytest.raises(attnd.NotFound):
        client.export_session("nobody", path)
    assert path.read_bytes() == b"before" and list(path.parent.iterdir()) == [path]


def test_an_export_replaces_nothing_but_a_file(client, path):
    filled(client)
    os.mkfifo(path)  # as root, /dev/null became a file
    with pytest.raises(FileExistsError, match="not a file"):
        client.export_session("a", path, move=True)
    assert path.is_fifo() and list(path.parent.iterdir()) == [path]
    assert client.rewind_session("a", 512)  # it has not begun to move


def test_an_error_of_the_callers_own_ends_the_transfer(client, fake, path):
    filled(client)

    def stop(done, total):
        if done > 5000:
            raise KeyError("the caller's own")

    with pytest.raises(KeyError):
        client.export_session("a", path, move=True, progress=stop)
    assert not path.exists() and not fake.engine.moving
    client.export_session("a", path)
    with pytest.raises(KeyError):
        client.import_session(path, "b", progress=stop)
    assert list(fake.engine.sessions) == ["a"]


def test_a_time_limit_ends_a_silent_export(client, fake, path):
    filled(client)
    fake.exporting.cut_after, fake.exporting.silent = 2, True
    with pytest.raises(attnd.DeadlineExceeded):
        client.export_session("a", path, timeout=0.3)
    assert list(path.parent.iterdir()) == []


def test_a_cancelled_export_leaves_nothing(fake, path):
    async def act():
        async with attnd.AsyncClient(fake.address) as client:
            await client.create_session(session_id="a")
            fake.exporting.cut_after, fake.exporting.silent = 1, True
            task = asyncio.ensure_future(client.export_session("a", path, move=True))
            while not fake.engine.moving:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while fake.engine.moving:  # until the cancel has reached the server
                await asyncio.sleep(0.01)
        assert os.listdir(path.parent) == []

    asyncio.run(asyncio.wait_for(act(), 20))


def test_a_moved_session_refuses_steps_until_it_is_let_go(make, fake, path):
    session = filled(make(move_wait=0.2))
    one = make()
    one.export_session("a", path, move=True)
    with pytest.raises(attnd.Unavailable) as error:
        session.decode(0, rows(1))
    assert error.value.reason == "SESSION_MOVING" and session.lengths[0] == 20
    one.cancel_move("a")
    session.decode(0, rows(1))
    one.export_session("a", path, move=True)
    assert one.close_session("a") == 1


def when(seen, act, *arguments):
    """Acts on a thread of its own once seen() is true."""

    def wait():
        while not seen():
            time.sleep(0.01)
        act(*arguments)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_move_is_waited_for(client, fake, path):
    session = filled(client)
    fake.engine.moving.add("a")
    refused = len(fake.metadata) + 2
    ends = when(lambda: len(fake.metadata) >= refused, fake.engine.moving.discard, "a")
    assert session.prefill(0, rows(2)).length == 22
    ends.join()
    assert not any(request.rewind for request in fake.requests)
    fake.engine.moving.add("a")
    refused = len(fake.metadata) + 2
    ends = when(lambda: len(fake.metadata) >= refused, fake.engine.moving.discard, "a")
    assert session.rewind(10).layer_lengths == (10, 10, 10, 10)
    ends.join()


def test_a_move_is_waited_for_within_the_timeout(client, fake):
    session = filled(client)
    fake.engine.moving.add("a")
    start = time.monotonic()
    with pytest.raises(attnd.AttndError):
        session.prefill(0, rows(2), timeout=0.3)
    assert time.monotonic() - start < 2


def test_one_moving_session_holds_up_that_part_of_a_decode(client, fake):
    a, b, c = (client.create_session(session_id=name) for name in "abc")
    fake.engine.moving.add("b")
    ends = when(lambda: len(fake.requests) > 1, fake.engine.moving.discard, "b")
    answer = client.decode(0, [a, b, c], rows(3)).raise_for_error()
    ends.join()
    assert [one.length for one in answer.results] == [1, 1, 1]
    assert (a.lengths[0], b.lengths[0], c.lengths[0]) == (1, 1, 1)
    assert [len(request.sequences) for request in fake.requests][:2] == [3, 1]
    for one, x in zip(answer.results, rows(3)):
        alone = client.create_session().decode(0, x[None]).output
        np.testing.assert_array_equal(one.output, alone)


def test_one_session_that_moves_for_too_long_fails_alone(make, fake):
    client = make(move_wait=0.2)
    a, b = (client.create_session(session_id=name) for name in "ab")
    fake.engine.moving.add("a")
    answer = client.decode(0, [a, b], rows(2))
    assert answer.results[0].error.reason == "SESSION_MOVING" and answer.results[1].ok
    assert not answer.results[0].output.any() and (a.lengths[0], b.lengths[0]) == (0, 1)


def test_a_session_is_waited_for_where_another_replica_answers(client, fake):
    session = filled(client)
    held = fake.engine.sessions.pop("a")
    with pytest.raises(attnd.NotFound):
        session.decode(0, rows(1))
    fake.server_id = "fake-2"
    refused = len(fake.metadata) + 2
    arrives = when(
        lambda: len(fake.metadata) >= refused, fake.engine.sessions.__setitem__, "a", held
    )
    session.decode(0, rows(1))
    arrives.join()


def test_memory_is_bounded_by_a_part(tmp_path):
    """A file of 300 parts is read one part ahead."""
    path = tmp_path / "large"
    header = pb.SessionHeader(session_id="a", data_bytes=300 << 10)
    with open(path, "wb") as file:
        file.write(b"ATTNDS1\n")
        for chunk in [
            pb.SessionChunk(header=header),
            *(pb.SessionChunk(data=bytes(1 << 10)) for _ in range(300)),
            pb.SessionChunk(digest=bytes(16)),
        ]:
            data = chunk.SerializeToString()
            file.write(len(data).to_bytes(4, "little") + data)
    sender = _transfer.Sender(path, None, None)
    assert sender._file.raw.tell() < 20 << 10
    assert sum(1 for _ in sender) == 302 and sender.failure is None
    sender.close()
