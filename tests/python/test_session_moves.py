"""Fork, export, import and moves on real servers: the same bits as if nothing had happened."""

import asyncio
import json
import subprocess
from pathlib import Path

import grpc
import numpy as np
import pytest

import attnd
from attnd._proto import attnd_pb2 as pb
from support import server_process
from support.server_process import ServerProcess

from test_refusals import refused
from test_session import rows

ATTNCTL = Path(server_process.BINARY).with_name("attnctl")
LAYERS = range(4)  # of the model odd: a window of 7, pages of 64, max_rewind of 64
DECODES = 100


@pytest.fixture(scope="module")
def elsewhere():
    """A second server with the model of servers("odd")."""
    server = ServerProcess.of_golden("odd")
    yield server
    server.stop()


@pytest.fixture
def here(connect):
    return connect("odd")


@pytest.fixture
def there(elsewhere):
    with attnd.Client(elsewhere.address, timeout=60) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_left(here, there):
    yield
    for client in (here, there):
        for info in list(client.list_sessions()):
            client.close_session(info.session_id)
        assert client.stats().kv_cache_used_bytes == 0


def attnctl(server, *words):
    command = [str(ATTNCTL), "session", *map(str, words), "--target", server.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def step_rows(count, seed):
    return [rows(count, 100 * seed + layer) for layer in LAYERS]


def fill(session, count):
    """`count` rows in every layer, the last of them decoded."""
    for layer, x in zip(LAYERS, step_rows(count, 1)):
        session.prefill(layer, x[: count - 1])
        session.decode(layer, x[count - 1 :])
    return session


def cut_back(session):
    """Past the window, then behind a page's end."""
    fill(session, 150)
    session.rewind(120)
    for layer, x in zip(LAYERS, step_rows(3, 2)):
        session.decode(layer, x)
    return session


HISTORIES = {
    "empty": lambda session: session,
    "inside the window": lambda session: fill(session, 5),
    "a whole page": lambda session: fill(session, 64),
    "past the window": lambda session: fill(session, 200),
    "cut back": cut_back,
}


def answers(session, seed=3):
    """The bits of further decodes on all layers, of a rewind, and of more after it."""
    bits = []
    for i in range(DECODES):
        for layer, x in zip(LAYERS, step_rows(1, seed + i)):
            bits.append(session.decode(layer, x).output.tobytes())
    session.rewind(min(session.lengths) - 40)
    for layer, x in zip(LAYERS, step_rows(20, seed + DECODES)):
        bits.append(session.decode(layer, x).output.tobytes())
    return bits


@pytest.mark.parametrize("history", HISTORIES)
def test_a_fork_continues_bit_for_bit_and_on_its_own(here, history):
    undisturbed = HISTORIES[history](here.create_session())
    session = HISTORIES[history](here.create_session())
    fork = session.fork()
    assert fork.lengths == session.lengths
    for layer, x in zip(LAYERS, step_rows(30, 77)):  # what the parent does meanwhile is its own
        session.decode(layer, x)
    expected = answers(undisturbed)
    assert answers(fork) == expected
    session.close()
    again = fork.fork()
    fork.close()
    x = rows(1, 5)
    assert again.decode(0, x).output.tobytes() == undisturbed.decode(0, x).output.tobytes()


def test_the_parent_does_not_see_its_fork(here):
    undisturbed, session = (fill(here.create_session(), 100) for _ in range(2))
    fork = session.fork()
    answers(fork, seed=500)
    assert answers(session) == answers(undisturbed)


def test_a_fork_of_the_beginning(here):
    session, expected = fill(here.create_session(), 100), here.create_session()
    for layer, x in zip(LAYERS, step_rows(100, 1)):
        expected.prefill(layer, x[:99])
    expected.rewind(70)
    fork = session.fork(70, "the-fork", max_tokens=300)
    assert fork.lengths == (70,) * 4 and fork.info().max_tokens == 300
    assert answers(fork) == answers(expected)
    refused(attnd.FailedPrecondition, "POSITION_MISMATCH", session.fork, 101)
    refused(attnd.AlreadyExists, "SESSION_EXISTS", session.fork, session_id="the-fork")
    refused(attnd.NotFound, "SESSION_UNKNOWN", here.fork_session, "nobody")


@pytest.mark.parametrize("history", HISTORIES)
def test_an_imported_session_continues_bit_for_bit(here, there, tmp_path, history):
    undisturbed = HISTORIES[history](here.create_session())
    session = HISTORIES[history](here.create_session(session_id="a"))
    here.export_session("a", tmp_path / "file")
    moved = there.import_session(tmp_path / "file")
    assert (moved.session_id, moved.lengths) == ("a", session.lengths)
    expected = answers(undisturbed)
    assert answers(moved) == expected
    assert answers(session) == expected  # an export changes nothing
    here.close_session("a")
    back = here.import_session(tmp_path / "file")
    assert answers(back) == expected


def test_the_last_step_can_be_repeated_after_the_move(here, there, tmp_path):
    session, expected = fill(here.create_session(session_id="a"), 150), []
    for layer, x in zip(LAYERS, step_rows(40, 4)):
        expected.append(session.prefill(layer, x).output.tobytes())
    here.export_session("a", tmp_path / "file")
    moved = there.import_session(tmp_path / "file")
    for layer, x in zip(LAYERS, step_rows(40, 4)):
        again = moved.prefill(layer, x, position=150, rewind=True, expected_length=190)
        assert again.output.tobytes() == expected[layer]


def test_a_prefix_is_completed_after_the_move(here, there, tmp_path):
    session = here.create_session(prefix_length=90, session_id="a")
    x = rows(110, 6)
    for layer in LAYERS:
        session.prefill(layer, x[: 40 + layer])
    here.export_session("a", tmp_path / "file")
    moved = there.import_session(tmp_path / "file")
    assert moved.prefix_length == 90 and moved.lengths == (40, 41, 42, 43)
    refused(attnd.FailedPrecondition, "PREFIX_INCOMPLETE", moved.decode, 0, rows(1))
    for layer in LAYERS:
        rest = x[40 + layer :]
        answer, expected = moved.prefill(layer, rest), session.prefill(layer, rest)
        assert answer.output_position == expected.output_position == 0
        assert answer.output.tobytes() == expected.output.tobytes()
    assert answers(moved) == answers(session)


def test_layers_at_different_lengths_reservation_and_time_to_live(here, there, tmp_path):
    session = here.create_session(max_tokens=300, idle_ttl=123.0, session_id="a")
    for layer in LAYERS:
        session.prefill(layer, rows(65 * layer + 1))
    before = session.info()
    here.export_session("a", tmp_path / "file")
    after = there.import_session(tmp_path / "file").info()
    assert after.layer_lengths == before.layer_lengths == (1, 66, 131, 196)
    assert (after.max_tokens, after.reserved_bytes) == (300, before.reserved_bytes)
    assert after.cache_bytes == before.cache_bytes and after.rewind_floor == before.rewind_floor
    left = (after.expire_time - after.create_time).total_seconds()
    assert 100 < left < 130


def test_what_is_refused_leaves_nothing_behind(here, there, tmp_path):
    path = tmp_path / "file"
    fill(here.create_session(session_id="a"), 100)
    here.export_session("a", path)
    whole, used = path.read_bytes(), there.stats().kv_cache_used_bytes
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(attnd.DataLoss, "BAD_DIGEST", there.import_session, path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    refused(attnd.DataLoss, "BAD_DIGEST", there.import_session, path)
    path.write_bytes(whole[:middle])
    refused(attnd.DataLoss, "TRUNCATED", there.import_session, path)
    assert there.stats().kv_cache_used_bytes == used and there.stats().sessions == 0
    path.write_bytes(whole)
    there.import_session(path)
    refused(attnd.AlreadyExists, "SESSION_EXISTS", there.import_session, path)
    assert there.import_session(path, "b").lengths == (100,) * 4


def parts_of(client, session_id):
    call = client._stubs.sessions.ExportSession(pb.ExportSessionRequest(session_id=session_id))
    return [response.chunk for response in call]


def imported(client, parts):
    """The reason with which a server refuses these parts; "" when it takes them."""
    requests = [pb.ImportSessionRequest(chunk=part) for part in parts]
    try:
        client._stubs.sessions.ImportSession(iter(requests), timeout=60)
        return ""
    except grpc.RpcError as error:
        return dict(error.trailing_metadata()).get("attnd-reason", str(error))


def test_the_server_itself_finds_what_is_cut_or_out_of_place(here, there):
    fill(here.create_session(session_id="a"), 100)
    parts = parts_of(here, "a")
    assert parts[0].HasField("header") and len(parts[-1].digest) == 16
    assert sum(len(part.data) for part in parts) == parts[0].header.data_bytes
    assert imported(there, parts[:-1]) == "TRUNCATED"
    assert imported(there, parts[:1]) == "TRUNCATED"
    assert imported(there, parts[1:]) != "" and imported(there, []) != ""
    other = pb.SessionChunk()
    other.CopyFrom(parts[0])
    other.header.max_tokens = 400
    assert imported(there, [other, *parts[1:]]) == "BAD_DIGEST"
    other.header.format_version = 99
    assert imported(there, [other, *parts[1:]]) == "FORMAT_MISMATCH"
    assert there.stats().sessions == 0
    assert imported(there, parts) == ""


@pytest.mark.parametrize(
    "flags, reason",
    [
        (["--weights", "random:2"], "MODEL_MISMATCH"),
        (["--weights", "random:1", "--cache_dtype", "bf16"], "FORMAT_MISMATCH"),
    ],
)
def test_another_kind_of_server_refuses_and_the_session_stays(tmp_path, flags, reason):
    tiny = ["--model", "builtin:apex1-tiny"]
    source, target = ServerProcess(*tiny, "--weights", "random:1"), ServerProcess(*tiny, *flags)
    try:
        with attnd.Client(source.address) as here, attnd.Client(target.address) as there:
            session = here.create_session(session_id="a")
            width = here.model().d_model
            x = np.random.default_rng(0).standard_normal((100, width)).astype(np.float32)
            session.prefill(0, x)
            here.export_session("a", tmp_path / "file")
            refused(attnd.FailedPrecondition, reason, there.import_session, tmp_path / "file")
            moved = attnctl(source, "move", "a", "--to", target.address)
            assert moved.returncode == 1 and moved.stderr.endswith(f"({reason})\n")
            assert session.decode(0, x[:1]).results[0].length == 101
            assert there.stats().sessions == 0
    finally:
        source.stop()
        target.stop()


def test_attnctl_moves_a_session(here, there, servers, elsewhere):
    undisturbed = fill(here.create_session(), 150)
    fill(here.create_session(session_id="a"), 150)
    moved = attnctl(servers("odd"), "move", "a", "--to", elsewhere.address, "--json")
    assert (moved.returncode, moved.stderr) == (0, "")
    assert json.loads(moved.stdout)["layer_lengths"] == ["150"] * 4
    refused(attnd.NotFound, "SESSION_CLOSED", here.get_session, "a")
    assert answers(there.get_session("a")) == answers(undisturbed)


def test_attnctl_and_python_read_the_same_files(here, there, servers, elsewhere, tmp_path):
    session = fill(here.create_session(session_id="a"), 100)
    assert attnctl(servers("odd"), "export", "a", tmp_path / "file").returncode == 0
    here.export_session("a", tmp_path / "python")
    assert (tmp_path / "file").read_bytes() == (tmp_path / "python").read_bytes()
    assert attnctl(elsewhere, "import", tmp_path / "python", "--id", "b").returncode == 0
    assert attnctl(elsewhere, "fork", "b", "--id", "c").returncode == 0
    assert answers(there.get_session("c")) == answers(session)


@pytest.mark.parametrize("count", [0, 2, 300])
def test_a_moving_session_refuses_steps_until_it_is_let_go_or_closed(servers, here, count, tmp_path):
    with attnd.Client(servers("odd").address, move_wait=0) as hasty:
        session = hasty.create_session(session_id="a")
        if count:
            fill(session, count)
        here.export_session("a", tmp_path / "file", move=True)
        error = refused(attnd.Unavailable, "SESSION_MOVING", session.decode, 0, rows(1))
        assert error.retry_after is not None
        refused(attnd.Unavailable, "SESSION_MOVING", session.prefill, 0, rows(1))
        refused(attnd.Unavailable, "SESSION_MOVING", session.rewind, 0)
        assert session.info().layer_lengths == (count,) * 4
        here.cancel_move("a")
        assert session.decode(0, rows(1)).results[0].length == count + 1
        here.export_session("a", tmp_path / "file", move=True)
        session.close()
        refused(attnd.NotFound, "SESSION_CLOSED", session.decode, 0, rows(1))


def test_a_move_is_cancelled_with_its_stream(here):
    session = fill(here.create_session(session_id="a"), 300)
    request = pb.ExportSessionRequest(session_id="a", move=True)
    call = here._stubs.sessions.ExportSession(request)
    next(iter(call))
    call.cancel()
    here.cancel_move("a")  # the server may have sent all by then
    assert session.decode(0, rows(1)).results[0].length == 301


def test_a_step_waits_for_the_move_and_goes_on(here, there, servers, elsewhere):
    """The client of a session that is moved and moved back notices nothing but the time."""
    undisturbed, session = (fill(here.create_session(session_id=name), 150) for name in "ua")
    with attnd.Client(servers("odd").address) as mover:
        request = pb.ExportSessionRequest(session_id="a", move=True)
        parts = [one.chunk for one in mover._stubs.sessions.ExportSession(request)]
        with session._client.steps() as stream:
            step = stream.submit_decode(0, [session], rows(1))
            refused(attnd.Unavailable, "SESSION_MOVING", step.result, 60)
        assert imported(there, parts) == ""
        asyncio.run(decode_while_moving(servers("odd").address, mover))
    assert there.get_session("a").lengths == (150,) * 4
    session.rewind(150)
    assert answers(session) == answers(undisturbed)


async def decode_while_moving(address, mover):
    async with attnd.AsyncClient(address) as client:
        session = await client.get_session("a")
        step = asyncio.ensure_future(session.decode(0, rows(1)))
        await asyncio.sleep(0.2)
        assert not step.done()
        await asyncio.to_thread(mover.cancel_move, "a")
        assert (await step).results[0].length == 151


def test_asyncio_exports_and_imports(servers, elsewhere, tmp_path):
    async def act():
        async with attnd.AsyncClient(servers("odd").address) as here:
            async with attnd.AsyncClient(elsewhere.address) as there:
                session = await here.create_session(session_id="a")
                await session.prefill(0, rows(100))
                await here.export_session("a", tmp_path / "file")
                fork = await session.fork()
                moved = await there.import_session(tmp_path / "file")
                x = rows(1, 8)
                outputs = [(await one.decode(0, x)).output for one in (session, fork, moved)]
                assert len({output.tobytes() for output in outputs}) == 1

    asyncio.run(act())
