"""Calls and steps on streams of one session: what comes on one path is behind what came before on
another, answered or not, also after a loss."""

import threading
import time

import numpy as np
import pytest

import attnd

from test_left_behind import answer_of, client, expected, home, session  # noqa: F401
from test_replaying import undisturbed
from test_session import rows


class Held(threading.Event):
    """Until it is set, no answer of a stream arrives; what they were for is done."""

    def __init__(self, fleet):
        super().__init__()
        self.answers = threading.Semaphore(0)  # those that are held
        fleet.lose = self._asked

    def _asked(self, method, server):
        if method == "Steps":
            self.answers.release()
            self.wait(20)
        return False


@pytest.fixture
def held(fleet):
    one = Held(fleet)
    yield one
    one.set()


def soon(go, seconds=0.5):
    threading.Timer(seconds, go.set).start()


def draft(stream, session):
    """A step that replaces three rows."""
    return stream.submit_prefill(session, 1, rows(3, 2), position=27, rewind=True)


# ---------------------------------------------------------------- one order


@pytest.mark.parametrize("then", ["prefill", "decode", "rewind"])
def test_a_call_comes_behind_the_steps_of_a_stream(fleet, client, home, held, session, then):
    with client.steps(resume=True) as stream:
        step = draft(stream, session)
        soon(held)
        if then == "prefill":
            session.prefill(1, rows(1, 3), position=29, rewind=True)
        elif then == "decode":
            step_of = attnd.SequenceStep(session, 1, 29, rewind=True)
            client.decode(1, [step_of], rows(1, 3)).raise_for_error()
        else:
            session.rewind(29)
        step.result(20)
    fleet.put_out(home)
    behind = [] if then == "rewind" else [(1, 3, 29)]

    def act(one):
        one.prefill(1, rows(30, 1))
        one.prefill(1, rows(3, 2), position=27, rewind=True)
        for count, seed, position in behind:
            one.prefill(1, rows(count, seed), position=position, rewind=True)
        if not behind:
            one.rewind(29)
        return answer_of(one)

    assert answer_of(session) == undisturbed(fleet, act)


def test_a_fork_has_the_steps_of_a_stream(fleet, client, home, held, session):
    with client.steps(resume=True) as stream:
        step = draft(stream, session)
        soon(held)
        twin = session.fork()
        step.result(20)
    fleet.put_out(home)
    assert answer_of(twin) == expected(fleet, (3, 2, 27))
    assert answer_of(session) == expected(fleet, (3, 2, 27))


def test_steps_of_another_stream_come_behind(fleet, client, home, held, session):
    with client.steps(resume=True) as first, client.steps(resume=True) as second:
        step = draft(first, session)
        soon(held)
        second.submit_prefill(session, 1, rows(1, 3), position=29, rewind=True).result(20)
        step.result(20)
    fleet.put_out(home)
    assert answer_of(session) == expected(fleet, (3, 2, 27), (1, 3, 29))


def test_a_default_position_is_behind_the_step_that_failed(client, held, session):
    with client.steps(resume=True) as stream:
        failed = stream.submit_prefill(session, 1, np.full_like(rows(3), np.nan))
        soon(held)
        assert session.prefill(1, rows(1, 3)).length == 31
        with pytest.raises(attnd.InvalidArgument):
            failed.result(20)


def test_other_layers_and_sessions_do_not_wait(client, held, session):
    other = client.create_replaying_session()
    with client.steps(resume=True) as stream:
        step = draft(stream, session)
        session.prefill(0, rows(5, 3))
        other.prefill(1, rows(5, 3))
        assert not step.done()
        held.set()
        step.result(20)


def test_decodes_of_the_same_sessions_on_two_streams_do_not_wait_for_each_other(client):
    pair = [client.create_replaying_session() for _ in range(2)]
    errors = []

    def work(stream, sessions):
        try:
            steps = [stream.submit_decode(0, sessions, rows(2, i)) for i in range(20)]
            for step in steps:
                step.result(30).raise_for_error()
        except Exception as error:
            errors.append(error)

    with client.steps(resume=True) as one, client.steps(resume=True) as two:
        threads = [
            threading.Thread(target=work, args=args) for args in ((one, pair), (two, pair[::-1]))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert errors == []
    assert [one.lengths[0] for one in pair] == [40, 40]


@pytest.mark.parametrize("kind", ["replaying", "plain"])
@pytest.mark.parametrize("length, position", [(40, 26), (40, 27), (40, 29), (40, 30), (30, 30)])
def test_a_step_does_not_overtake_one_that_is_refused_for_a_moment(
    fleet, client, home, held, tmp_path, kind, length, position
):
    """Its session moves, and then does not; the answer is late, and more has come meanwhile."""
    session = client.create_replaying_session() if kind == "replaying" else client.create_session()
    session.prefill(1, rows(length, 1))
    with attnd.Client(home.address) as direct, client.steps(resume=True) as stream:
        direct.export_session(session.session_id, tmp_path / "file", move=True)
        first = stream.submit_prefill(session, 1, rows(3, 2), position=27, rewind=True)
        assert held.answers.acquire(timeout=20)
        direct.cancel_move(session.session_id)
        second = stream.submit_prefill(session, 1, rows(2, 3), position=position, rewind=True)
        soon(held, 0.3)
        answers = [one.result(20).output.tobytes() for one in (first, second)]

    def act(one):
        one.prefill(1, rows(length, 1))
        steps = [(rows(3, 2), 27), (rows(2, 3), position)]
        own = [one.prefill(1, x, position=at, rewind=True).output.tobytes() for x, at in steps]
        return own, answer_of(one)

    assert (answers, answer_of(session)) == undisturbed(fleet, act)


def test_a_batch_is_refused_for_a_moment_though_its_sessions_are_for_different_reasons(
    fleet, client, home, held, session, tmp_path
):
    """The one is not where its step before it should have brought it, the other moves."""
    other = client.create_replaying_session()
    other.prefill(1, rows(30, 1))
    with attnd.Client(home.address) as direct, client.steps(resume=True) as stream:
        direct.export_session(session.session_id, tmp_path / "file", move=True)
        first = stream.submit_prefill(session, 1, rows(3, 2))
        assert held.answers.acquire(timeout=20)
        direct.cancel_move(session.session_id)
        direct.export_session(other.session_id, tmp_path / "other", move=True)
        both = stream.submit_decode(1, [session, other], np.concatenate([rows(1, 9)] * 2))
        time.sleep(0.3)  # it is refused, the answer stands behind the first
        direct.cancel_move(other.session_id)
        held.set()
        first.result(20)
        answers = [one.output.tobytes() for one in both.result(20).raise_for_error().results]
    assert answers == [expected(fleet, (3, 2, 30)), expected(fleet)]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("how", ["call", "stream", "batch"])
@pytest.mark.parametrize("guard", [{}, {"rewind": True, "expected_length": 29}])
def test_a_step_that_the_server_would_refuse_is_refused_after_a_loss(
    fleet, client, home, session, how, guard
):
    """It is not taken for one that was done before the loss."""
    fleet.put_out(home)
    with pytest.raises(attnd.FailedPrecondition, match="28.*30|30.*28"):
        if how == "call":
            session.prefill(1, rows(2, 2), position=28, **guard)
        elif how == "batch":
            client.decode(1, [attnd.SequenceStep(session, 2, 28, **guard)], rows(2, 2))
        else:
            with client.steps(resume=True) as stream:
                stream.submit_prefill(session, 1, rows(2, 2), position=28, **guard).result(20)
    assert answer_of(session) == expected(fleet)


# ---------------------------------------------------------------- waiting


def test_a_call_waits_no_longer_than_its_timeout(fleet, client, held, session):
    client._recovery_timeout = 0.1
    with client.steps(resume=True) as stream:
        step = draft(stream, session)
        for act in (
            lambda: session.prefill(1, rows(1, 3), timeout=0.2),
            lambda: session.decode(1, rows(1, 3), timeout=0.2),
            lambda: session.rewind(29, timeout=0.2),
            lambda: session.fork(timeout=0.2),
        ):
            with pytest.raises(attnd.DeadlineExceeded, match="unanswered steps"):
                act()
        held.set()
        step.result(20)
    assert answer_of(session) == expected(fleet, (3, 2, 27))


def test_a_callback_that_would_wait_for_its_own_stream_is_an_error(client, held, session):
    """It runs where the answers are taken: none would come any more."""
    errors = []

    def act(_):
        for wait in (lambda: session.rewind(29), stream.close):
            try:
                wait()
            except RuntimeError as error:
                errors.append(str(error))

    with client.steps(resume=True) as stream:
        draft(stream, session).add_done_callback(act)
        second = stream.submit_prefill(session, 1, rows(1, 3))
        held.set()
        second.result(20)
    assert len(errors) == 2 and all("callback" in error for error in errors)


def test_the_last_steps_callback_can_call(client, session):
    answers, done = [], threading.Event()

    def act(_):
        answers.append(session.prefill(1, rows(1, 3)).length)
        done.set()

    with client.steps(resume=True) as stream:
        draft(stream, session).add_done_callback(act)
        assert done.wait(20)
    assert answers == [31]


def test_a_step_that_waits_for_an_answer_holds_up_no_other_session(client, held, session):
    other = client.create_replaying_session()
    with client.steps(resume=True) as stream, client.steps(resume=True):
        stream.submit_prefill(session, 1, rows(2, 2))
        draft(stream, session)
        behind = stream.submit_prefill(session, 1, rows(1, 4))
        free = stream.submit_prefill(other, 1, rows(5, 3))
        assert len(stream._held) == 2 and len(stream._stream._book) == 2
        held.set()
        assert free.result(20).length == 5 and behind.result(20).length == 31
