"""Exports that break or are cancelled: what becomes of the file, and of a session that was to move."""

import asyncio
import io
import os
import threading
import time

import grpc
import pytest

import attnd

from test_session import rows
from test_transfers import client, filled, make, path  # noqa: F401


def until(seen):
    end = time.monotonic() + 10
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("parts", [0, 3, None])
def test_a_move_whose_stream_breaks_is_undone(client, fake, path, parts):
    session = filled(client)
    fake.exporting.cut_after, fake.exporting.lost = parts, True
    fake.exporting.end = grpc.StatusCode.UNAVAILABLE
    with pytest.raises(attnd.Unavailable):
        client.export_session("a", path, move=True)
    assert list(path.parent.iterdir()) == []
    until(lambda: not fake.engine.moving)
    session.decode(0, rows(1))


def test_a_move_is_not_undone_once_the_file_is_whole(client, fake):
    filled(client)
    fake.exporting.end, fake.exporting.lost = grpc.StatusCode.UNAVAILABLE, True
    file = io.BytesIO()
    with pytest.raises(attnd.Unavailable):
        client.export_session("a", file, move=True)
    time.sleep(0.2)
    assert fake.engine.moving == {"a"} and fake.exports == 1
    client.close_session("a")
    file.seek(0)
    assert client.import_session(file).lengths == (20, 19, 18, 17)


def test_a_move_that_was_refused_is_not_undone(client, fake, path):
    with pytest.raises(attnd.NotFound):
        client.export_session("nobody", path, move=True)
    assert fake.exports == len(fake.metadata) == 1  # nor has anybody asked


def test_a_file_is_durable_in_its_folder(client, path, monkeypatch):
    filled(client)
    synced, sync = [], os.fsync

    def note(fd):
        synced.append((os.path.realpath(f"/proc/self/fd/{fd}"), path.exists()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    client.export_session("a", path)
    assert [there for _, there in synced] == [False, True]
    assert synced[1][0] == str(path.parent)


def test_an_export_cancelled_while_its_file_is_put_in_place(fake, path, monkeypatch):
    replacing, go_on, replace = threading.Event(), threading.Event(), os.replace

    def slow(*names):
        replacing.set()
        assert go_on.wait(10)
        replace(*names)
        time.sleep(0.2)

    monkeypatch.setattr(os, "replace", slow)

    async def act():
        async with attnd.AsyncClient(fake.address) as client:
            await client.create_session(session_id="a")
            task = asyncio.ensure_future(client.export_session("a", path))
            assert await asyncio.to_thread(replacing.wait, 10)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0.05)
                assert not task.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert os.listdir(path.parent) == ["a.session"]
            assert (await client.import_session(path, "b")).session_id == "b"

    asyncio.run(asyncio.wait_for(act(), 20))
