"""Calls and steps on streams of one session: what comes on one path is behind what came before on
another, answered or not, also after a loss."""

import asyncio
import math
import threading
import time

import numpy as np
import pytest

import attnd

from test_left_behind import LAYERS, answer_of, client, expected, home, lose, session  # noqa: F401
from test_replaying import undisturbed
from test_session import rows


@pytest.fixture
def held(fleet):
    """Until it is set, no answer of a stream arrives; what they were for is done."""
    go = threading.Event()
    fleet.lose = lambda method, server: method == "Steps" and not go.wait(20)
    yield go
    go.set()


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
@pytest.mark.parametrize("position", [26, 27, 29, 30])
def test_a_step_does_not_overtake_one_that_is_refused_for_a_moment(
    fleet, client, home, tmp_path, kind, position
):
    """Its session moves, and then does not; the answer is late, and more has come meanwhile."""
    refused, go = threading.Event(), threading.Event()

    def late(method, server):
        if method == "Steps" and not go.is_set():
            refused.set()
            go.wait(20)
        return False

    fleet.lose = late
    session = client.create_replaying_session() if kind == "replaying" else client.create_session()
    session.prefill(1, rows(40, 1))
    with attnd.Client(home.address) as direct, client.steps(resume=True) as stream:
        direct.export_session(session.session_id, tmp_path / "file", move=True)
        first = stream.submit_prefill(session, 1, rows(3, 2), position=27, rewind=True)
        assert refused.wait(20)
        direct.cancel_move(session.session_id)
        second = stream.submit_prefill(session, 1, rows(2, 3), position=position, rewind=True)
        soon(go, 0.3)
        answers = [one.result(20).output.tobytes() for one in (first, second)]

    def act(one):
        one.prefill(1, rows(40, 1))
        steps = [(rows(3, 2), 27), (rows(2, 3), position)]
        own = [one.prefill(1, x, position=at, rewind=True).output.tobytes() for x, at in steps]
        return own, answer_of(one)

    assert (answers, answer_of(session)) == undisturbed(fleet, act)


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


# ---------------------------------------------------------------- timeouts of steps


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("timeout", [math.nan, 1e300, -1e300])
def test_a_timeout_that_is_none_is_refused_and_leaves_nothing(client, resume, timeout):
    session = client.create_session()
    with client.steps(resume=resume) as stream:
        with pytest.raises(ValueError, match="expected"):
            stream.submit_prefill(session, 1, rows(3, 2), timeout=timeout)
        assert session.lengths[1] == 0
        assert stream.submit_prefill(session, 1, rows(3, 2), timeout=math.inf).result(20).length == 3
    with pytest.raises(ValueError):
        client.create_session(idle_ttl=timeout)


# ---------------------------------------------------------------- lengths without a history


def test_without_its_history_a_session_asks_for_what_it_does_not_know(client):
    session = client.create_replaying_session(max_history_bytes=1)
    session.prefill(0, rows(200, 1))
    assert not session.replayable
    with pytest.raises(attnd.AttndError):
        session.prefill(0, rows(1, 2), position=3, rewind=True)
    assert session.info().layer_lengths[0] == 200
    assert session.lengths[0] == 200
    with client.steps(resume=True) as stream:
        with pytest.raises(attnd.AttndError):
            stream.submit_prefill(session, 0, rows(1, 2), position=3, rewind=True).result(20)
    assert session.prefill(0, rows(1, 3)).length == 201
    with pytest.raises(attnd.AttndError):
        session.prefill(0, rows(1, 2), position=3, rewind=True)
    session.rewind(200)
    assert session.lengths[0] == 200


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("what", ["answer lost", "no server"])
def test_a_close_gets_over_a_loss(fleet, client, home, session, what):
    if what == "answer lost":
        lose(fleet, "CloseSession")
    else:
        for server in fleet.servers:
            fleet.put_out(server)
        threading.Timer(0.3, lambda: [fleet.take_back(one) for one in fleet.servers]).start()
    session.close()
    with attnd.Client(home.address) as direct:
        assert list(direct.list_sessions()) == []


def test_what_is_made_while_the_session_is_closed_goes_too(fleet, client, home, session):
    """Of the making, the Create is answered when the session has been closed."""
    made, go = threading.Event(), threading.Event()

    def asked(method, server):
        if method == "CreateSession":
            made.set()
            go.wait(20)
        return False

    fleet.put_out(home)
    fleet.lose = asked
    failed = []

    def work():
        try:
            session.prefill(1, rows(1, 3))
        except attnd.NotFound as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    assert made.wait(20)
    session.close()
    go.set()
    worker.join(30)
    fleet.take_back(home)
    session.close()
    assert len(failed) == 1
    for server in fleet.servers:
        with attnd.Client(server.address) as direct:
            assert list(direct.list_sessions()) == []


def test_a_rewind_that_was_done_and_is_refused_when_it_is_repeated(fleet, client, session):
    once, left = client._once, [attnd.Unavailable("lost"), attnd.Aborted("no", reason="NO")]

    def losing(method, request, timeout):
        answer = once(method, request, timeout) if len(left) != 1 else None
        if left and hasattr(request, "position"):
            raise left.pop(0)
        return answer

    client._once = losing
    with pytest.raises(attnd.Aborted):
        session.rewind(29)
    client._once = once
    assert session.lengths[1] == 30
    assert answer_of(session) == expected(fleet)


def test_a_step_cancelled_while_it_is_to_be_sent_again_is_not(fleet, client, session):
    going, go = threading.Event(), threading.Event()

    def asked(method, server):
        if method == "Steps":
            going.set()
            go.wait(20)
            return True
        return False

    fleet.lose = asked
    with client.steps(resume=True) as stream:
        first = stream.submit_prefill(session, 1, rows(1, 2))
        assert going.wait(20)
        with stream._state:
            stream._trouble(stream._steps.get(first.step_id), attnd.Unavailable("of another"))
        stream.cancel(first.step_id)
        fleet.lose = lambda method, server: False
        go.set()
        with pytest.raises(attnd.Cancelled):
            first.result(30)
    assert answer_of(session) == expected(fleet)


def test_one_thread_mends_at_a_time(client, session):
    """Also where what was held back meets trouble the moment it is sent."""
    count, most, lock = [0], [0], threading.Lock()
    with client.steps(resume=True) as stream:
        mend, bring_back = stream._mend, stream._bring_back

        def counted():
            with lock:
                count[0] += 1
                most[0] = max(most[0], count[0])
            mend()
            with lock:
                count[0] -= 1

        def slowly(steps):
            bring_back(steps)
            time.sleep(0.3)

        stream._mend, stream._bring_back = counted, slowly
        release, broken = stream._release, [2]

        def breaking():
            if stream._held and broken[0]:
                broken[0] -= 1
                stream._trouble(stream._held[0], attnd.Unavailable("the stream broke"))
            release()

        stream._release = breaking
        steps = [stream.submit_prefill(session, 1, rows(2, 5)), draft(stream, session)]
        for step in steps:
            step.result(30)
    assert most == [1]


# ---------------------------------------------------------------- interrupts


ACTS = {
    "prefill": lambda one: one.prefill(1, rows(3, 2), position=27, rewind=True),
    "decode": lambda one: one.decode(1, rows(2, 2)),
    "rewind": lambda one: one.rewind(29),
}


def interrupted(client, act):
    """The call is done, but Ctrl-C comes before its answer."""
    tried = client._try

    def interrupt(*arguments):
        tried(*arguments)
        client._try = tried
        raise KeyboardInterrupt

    client._try = interrupt
    with pytest.raises(KeyboardInterrupt):
        act()


@pytest.mark.parametrize("act", ACTS)
def test_a_call_that_was_interrupted_left_nothing(fleet, client, session, act):
    interrupted(client, lambda: ACTS[act](session))
    assert session.lengths[1] == 30
    assert answer_of(session) == expected(fleet)


@pytest.mark.parametrize("act", ACTS)
def test_after_an_interrupt_a_plain_session_asks(client, act):
    session = client.create_session()
    session.prefill(1, rows(30, 1))
    interrupted(client, lambda: ACTS[act](session))
    assert session.lengths[1] is None
    length = session.prefill(1, rows(1, 3)).length
    assert length == {"prefill": 31, "decode": 33, "rewind": 30}[act]


def test_after_a_rewind_without_an_answer_a_plain_session_asks(fleet, client):
    session = client.create_session()
    session.prefill(1, rows(30, 1))
    lose(fleet, "RewindSession")
    with pytest.raises(attnd.Unavailable):
        session.rewind(29)
    assert session.lengths[1] is None
    assert session.prefill(1, rows(1, 3)).length == 30


def test_after_a_rewind_without_an_answer_an_asyncio_session_asks(fleet):
    async def act():
        async with attnd.AsyncClient(fleet.address) as client:
            session = await client.create_session()
            await session.prefill(1, rows(30, 1))
            lose(fleet, "RewindSession")
            with pytest.raises(attnd.Unavailable):
                await session.rewind(29)
            assert session.lengths[1] is None
            assert (await session.prefill(1, rows(1, 3))).length == 30

    asyncio.run(asyncio.wait_for(act(), 20))
