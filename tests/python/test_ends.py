"""Calls that end badly, and what they leave: timeouts, interrupts, closes, lost answers."""

import asyncio
import math
import threading
import time

import pytest

import attnd

from test_left_behind import answer_of, client, expected, home, lose, session  # noqa: F401
from test_session import rows


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

        def slowly(*steps):
            bring_back(*steps)
            time.sleep(0.3)

        stream._mend, stream._bring_back = counted, slowly
        release, broken = stream._release, [2]

        def breaking():
            if stream._held and broken[0]:
                broken[0] -= 1
                stream._trouble(stream._held[0], attnd.Unavailable("the stream broke"))
            release()

        stream._release = breaking
        steps = [
            stream.submit_prefill(session, 1, rows(2, 5)),
            stream.submit_prefill(session, 1, rows(3, 2), position=27, rewind=True),
        ]
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
