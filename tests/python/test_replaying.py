"""Sessions that outlive their server: behind a balancer, of real servers that are killed."""

import signal
import threading
import time

import pytest

import attnd
from attnd._history import History
from attnd._proto import attnd_pb2 as pb

from test_session import rows

LAYERS = range(4)  # of the model odd


def kill(fleet, client, how=signal.SIGKILL):
    """Kills the server on which the client's sessions are."""
    server = fleet.server_of(client.affinity_key)
    server._process.send_signal(how)
    return server


def undisturbed(fleet, act):
    """What `act(session)` answers where nothing happens, with a plain session."""
    server = fleet.server_of("another")
    with attnd.Client(server.address) as direct, direct.create_session() as session:
        return act(session)


def play(session, seed=1, disturb=lambda: None):
    """A prompt and some tokens through every layer; all answers' bytes."""
    answers = []
    for layer in LAYERS:
        answers.append(session.prefill(layer, rows(90, seed + layer)).output.tobytes())
    for token in range(5):
        if token == 2:
            disturb()
        for layer in LAYERS:
            x = rows(1, 1000 * seed + 10 * token + layer)
            answers.append(session.decode(layer, x).output.tobytes())
    return answers


def test_a_killed_server_is_a_pause_and_the_same_bits(fleet, client):
    expected = undisturbed(fleet, play)
    with client.create_replaying_session() as session:
        before = client.stats().server_id
        assert play(session, disturb=lambda: kill(fleet, client)) == expected
        assert client.stats().server_id != before
        assert session.info().layer_lengths == (95,) * 4
        assert session.history_bytes == 4 * 95 * client.model().d_model * 4


def on_stream(client, session, layer, x, **options):
    with client.steps(resume=True) as stream:
        return stream.submit_prefill(session, layer, x, **options).result(60)


def by_call(client, session, layer, x, **options):
    return session.prefill(layer, x, **options)


@pytest.mark.parametrize("prefill", [by_call, on_stream])
def test_a_copy_that_was_left_behind_is_not_taken_for_the_session(fleet, client, prefill):
    """A server is out of the ring for a while: its copy has as many rows, but others."""
    home = fleet.server_of(client.affinity_key)

    def prompt(session):
        session.prefill(1, rows(30, 1))

    def other_rows(session):
        return session.prefill(1, rows(3, 3), position=30, rewind=True)

    def whole(session):
        prompt(session)
        other_rows(session)
        return session.prefill(1, rows(2, 4)).output.tobytes()

    expected = undisturbed(fleet, whole)
    session = client.create_replaying_session()
    prompt(session)
    prefill(client, session, 1, rows(3, 2))
    fleet.put_out(home)
    prefill(client, session, 1, rows(3, 3), position=30, rewind=True)
    fleet.take_back(home)
    assert prefill(client, session, 1, rows(2, 4)).output.tobytes() == expected
    assert session.info().layer_lengths[1] == 35
    with attnd.Client(home.address) as direct:
        assert [one.session_id for one in direct.list_sessions()] == [session.session_id]


def test_a_plain_session_is_lost_with_its_server(fleet, client):
    session = client.create_session()
    session.prefill(0, rows(3))
    kill(fleet, client)
    with pytest.raises(attnd.NotFound) as error:
        for _ in range(100):
            try:
                session.decode(0, rows(1))
            except attnd.Unavailable:
                time.sleep(0.05)
    assert error.value.reason == "SESSION_UNKNOWN"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_batch_of_which_some_sessions_are_plain(fleet, client, how):
    kept = [client.create_replaying_session() for _ in range(3)]
    plain = client.create_session()
    for session in [*kept, plain]:
        session.prefill(1, rows(20))
    server = kill(fleet, client, how)
    server._process.wait(30)
    x = rows(4, 7)
    result = client.decode(1, [kept[0], plain, (kept[1], 1), kept[2]], x)
    assert [one.ok for one in result.results] == [True, False, True, True]
    assert result.results[1].error.reason == "SESSION_UNKNOWN"
    for index, session in ((0, kept[0]), (2, kept[1]), (3, kept[2])):
        assert session.lengths[1] == 21
        again = undisturbed(
            fleet, lambda one: (one.prefill(1, rows(20)), one.decode(1, x[index : index + 1]))
        )
        assert again[1].output.tobytes() == result.results[index].output.tobytes()


def test_rewinds_prefixes_and_caps_are_as_they_were(fleet, client):
    def act(session, disturb=lambda: None):
        answers = []
        session.prefill(0, rows(30))
        disturb()
        done = session.prefill(0, rows(30, 2))  # completes the prefix of 50
        answers += [done.output_position, done.output.tobytes()]
        session.prefill(0, rows(10, 3))
        session.rewind(62)
        answers.append(session.decode(0, rows(1, 4)).output.tobytes())
        disturb()
        # The last step can be repeated, also after the replay.
        again = session.decode(0, rows(1, 5), position=62, rewind=True)
        answers.append(again.output.tobytes())
        disturb()
        with pytest.raises(attnd.OutOfRange) as error:
            session.prefill(0, rows(20, 6))
        assert error.value.reason == "PAST_MAX_TOKENS"
        answers.append(session.decode(0, rows(2, 7)).output.tobytes())
        return answers

    options = dict(prefix_length=50, max_tokens=70)
    with attnd.Client(fleet.server_of("another").address) as direct:
        expected = act(direct.create_session(**options))
    session = client.create_replaying_session(**options)
    assert act(session, disturb=session_lost(client, session)) == expected


def session_lost(client, session):
    """Ends the session behind its back, as an eviction or a restart would."""

    def lose():
        client.close_session(session.session_id)
        session._client._once = forgetful(session._client)

    def forgetful(one):
        once = type(one)._once.__get__(one)

        def forget(method, request, timeout):
            try:
                return once(method, request, timeout)
            except attnd.NotFound as error:  # as the server says of an evicted one
                error.reason = "SESSION_EVICTED"
                raise

        return forget

    return lose


def test_an_expired_session_is_made_anew(fleet, client):
    session = client.create_replaying_session(idle_ttl=0.3)
    x = rows(20)
    session.prefill(2, x)
    expected = session.decode(2, rows(1, 5)).output.tobytes()
    time.sleep(1)
    again = session.decode(2, rows(1, 5), position=20, rewind=True)
    assert again.output.tobytes() == expected and session.lengths[2] == 21


def test_a_session_that_was_closed_by_others_stays_closed(fleet, client):
    session = client.create_replaying_session()
    session.prefill(0, rows(3))
    client.close_session(session.session_id)
    with pytest.raises(attnd.NotFound) as error:
        session.decode(0, rows(1))
    assert error.value.reason == "SESSION_CLOSED"
    assert session.close() == 0


def test_without_a_server_the_last_error_comes_in_time(fleet):
    with attnd.Client(fleet.address, recovery_timeout=1.5) as client:
        session = client.create_replaying_session()
        session.prefill(0, rows(3))
        for server in fleet.servers:
            server._process.kill()
        start = time.monotonic()
        with pytest.raises(attnd.Unavailable, match="not mended within recovery_timeout, 1.5 s"):
            session.decode(0, rows(1))
        assert time.monotonic() - start < 30
        assert session.lengths[0] == 3


def test_a_fork_replays_too(fleet, client):
    session = client.create_replaying_session()
    for layer in LAYERS:
        session.prefill(layer, rows(40, layer))
    fork = session.fork(position=25)
    expected = [
        one.prefill(1, rows(3, 9), position=25, rewind=one is session).output.tobytes()
        for one in (fork, session)
    ]
    assert expected[0] == expected[1]
    kill(fleet, client)
    answers = [
        one.prefill(1, rows(3, 9), position=25, rewind=True).output.tobytes()
        for one in (fork, session)
    ]
    assert answers == expected
    assert fork.info().layer_lengths == (25, 28, 25, 25)


def test_past_its_limit_a_history_is_let_go(fleet, client):
    row = client.model().d_model * 4
    session = client.create_replaying_session(max_history_bytes=20 * row)
    session.prefill(0, rows(20))
    assert session.replayable and session.history_bytes == 20 * row
    session.decode(0, rows(1))
    assert not session.replayable and session.history_bytes == 0
    kill(fleet, client)
    with pytest.raises(attnd.NotFound) as error:
        session.decode(0, rows(1))
    assert error.value.reason == "SESSION_UNKNOWN"


def test_many_threads_lose_their_sessions_at_once(fleet):
    expected, wrong = undisturbed(fleet, play), []

    def work():
        with attnd.Client(fleet.address, timeout=30) as client:
            with client.create_replaying_session() as session:
                go = threading.Barrier(1)
                if (
                    play(session, disturb=lambda: (meet.wait(60), killed.wait(60), go.wait()))
                    != expected
                ):
                    wrong.append(client.affinity_key)

    meet, killed = threading.Barrier(9), threading.Event()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    meet.wait(60)
    fleet.servers[0]._process.kill()
    killed.set()
    for thread in threads:
        thread.join(120)
    assert not wrong and not any(thread.is_alive() for thread in threads)


# ---------------------------------------------------------------- the history itself


def tensor(count, first, dtype=pb.DTYPE_F32):
    size = 4 if dtype == pb.DTYPE_F32 else 2
    data = b"".join(bytes([first + i]) * size * 3 for i in range(count))
    return pb.Tensor(dtype=dtype, shape=[count, 3], data=data)


def calls(history, start=0, room=1 << 20):
    return [
        (at, list(part.shape), part.data[:: 12 if part.dtype == pb.DTYPE_F32 else 6])
        for at, part in history.tensors(0, start, room)
    ]


def test_a_history_sends_its_last_step_alone():
    history = History(1)
    history.put(0, 0, tensor(3, 0))
    history.put(0, 3, tensor(2, 3))
    history.put(0, 5, tensor(2, 5))
    assert calls(history) == [(0, [5, 3], bytes(range(5))), (5, [2, 3], bytes([5, 6]))]
    assert calls(history, 4) == [(4, [1, 3], bytes([4])), (5, [2, 3], bytes([5, 6]))]
    assert calls(history, 6) == [(6, [1, 3], bytes([6]))] and calls(history, 7) == []
    assert [at for at, _, _ in calls(history, 0, 24)] == [0, 2, 4, 5]


def test_a_history_is_cut_and_overwritten():
    history = History(1)
    history.put(0, 0, tensor(5, 0))
    history.put(0, 5, tensor(2, 5, pb.DTYPE_BF16))
    assert history.bytes == 5 * 12 + 2 * 6
    history.put(0, 3, tensor(1, 9))
    assert [call[2] for call in calls(history)] == [bytes([0, 1, 2]), bytes([9])]
    history.cut(2)
    assert calls(history) == [(0, [2, 3], bytes([0, 1]))] and history.bytes == 24
    twin = history.copy(1)
    history.put(0, 0, tensor(1, 7))
    assert calls(twin) == [(0, [1, 3], bytes([0]))]


def test_a_history_with_a_gap_is_none():
    history = History(1)
    history.put(0, 0, tensor(2, 0))
    history.put(0, 3, tensor(1, 3))
    assert not history.complete and calls(history) == []


def test_keys_are_chosen_sent_with_every_call_and_stored(fleet, client, tmp_path):
    session = client.create_replaying_session()
    assert session.info().affinity_key == client.affinity_key
    with client.create_session() as plain:
        plain.prefill(0, rows(2))
        plain.rewind(1)
        plain.fork().close()
        client.decode(0, [plain, session], rows(2))
        client.export_session(plain.session_id, tmp_path / "file")
        client.cancel_move(plain.session_id)
        again = client.import_session(tmp_path / "file", "again")
    with client.steps() as stream:
        stream.submit_prefill(again, 1, rows(2)).result(20)
    client.model(), client.stats(), client.health(), list(client.list_sessions()), client.drain()
    assert {key for _, key in fleet.calls} == {client.affinity_key}
    assert {method for method, _ in fleet.calls} == {
        *("Prefill", "Decode", "Steps", "GetModel", "GetStats", "Drain", "Check"),
        *(
            f"{what}Session"
            for what in ("Create", "Get", "Rewind", "Fork", "Close", "Export", "Import")
        ),
        "ListSessions",
    }
    with attnd.Client(fleet.address) as other:
        assert len(other.affinity_key) == 32 and other.affinity_key != client.affinity_key


def test_a_key_is_printable_or_none(fleet):
    with pytest.raises(ValueError, match="expected printable ASCII"):
        attnd.Client(fleet.address, affinity_key="a\nb")
    with attnd.Client(fleet.address, affinity_key="") as none:
        none.model()
    assert fleet.calls[-1] == ("GetModel", "")
