"""Steps and sessions that are given up while they are brought back, and who waits for whom then."""

import threading
import time

import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration

import attnd
from support.balancer import Balancer
from support.server_process import ServerProcess

from test_left_behind import (  # noqa: F401
    answer_of,
    client,
    expected,
    held,
    home,
    lose,
    other,
    session,
)
from test_session import rows


def away(fleet):
    """No server for the balancer until the answer is called."""
    for server in fleet.servers:
        fleet.put_out(server)
    return lambda: [fleet.take_back(server) for server in fleet.servers]


def mending(fleet, stream, submit):
    """A step that is done, whose answer is lost, and no server is there; the way back."""
    backs = []
    lose(fleet, "Steps", then=lambda: backs.append(away(fleet)))
    step = submit()
    while stream._mender is None:
        time.sleep(0.01)
    time.sleep(0.3)  # it looks for the session
    return step, backs[0]


def draft(stream, session):
    """Replaces three rows: the layer is as long as before."""
    return stream.submit_prefill(session, 1, rows(3, 2), position=27, rewind=True)


# ---------------------------------------------------------------- behind a step that is given up


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "late", "out of time"])
def test_no_step_sees_the_rows_of_one_that_was_given_up(fleet, client, session, how, before):
    """`before`: submitted before that."""
    if how == "out of time":
        client._recovery_timeout = 1.0
    with client.steps(resume=True) as stream:
        first, back = mending(fleet, stream, lambda: draft(stream, session))
        steps = [stream.submit_prefill(session, 1, rows(1, 9))] if before else []
        if how == "cancelled":
            stream.cancel(first.step_id)
        elif how == "late":
            stream._steps.get(first.step_id).allowed = Duration(nanos=1)  # its server is busy
        else:
            first.add_done_callback(lambda _: back())
        if how == "late":
            back()
        with pytest.raises(attnd.AttndError):
            first.result(30)
        steps = steps or [stream.submit_prefill(session, 1, rows(1, 9))]
        if how == "cancelled":
            back()
        try:
            answer = steps[0].result(30).output.tobytes()
        except attnd.Unavailable:  # its time was over too
            assert before and how == "out of time"
            answer = answer_of(session)
    assert answer == expected(fleet)


def test_a_decode_cancelled_while_its_stream_is_mended_takes_nobody_along(fleet, client, session):
    alone = client.create_replaying_session()
    with client.steps(resume=True) as stream:
        submit = lambda: stream.submit_decode(1, [session], rows(1, 2))  # noqa: E731
        first, back = mending(fleet, stream, submit)
        second = stream.submit_prefill(alone, 0, rows(4, 3))
        stream.cancel(first.step_id)
        with pytest.raises(attnd.Cancelled):
            first.result(10)
        back()
        assert second.result(30).length == 4
        assert stream.submit_prefill(alone, 0, rows(4, 4)).result(30).length == 8


@pytest.mark.parametrize("loss", ["answer", "server"])
def test_a_closed_session_of_a_batch_fails_alone(fleet, client, home, session, loss):
    closed = client.create_replaying_session()
    closed.prefill(1, rows(30, 1))
    if loss == "answer":
        lose(fleet, "Steps", then=closed.close)
    else:
        closed.close()
        fleet.put_out(home)
    with client.steps(resume=True) as stream:
        both = [(session, 1, 30), (closed, 1, 30)]
        result = stream.submit_decode(1, both, np.concatenate([rows(1, 9)] * 2)).result(30)
    assert result.results[0].output.tobytes() == expected(fleet)
    assert result.results[1].error is not None


# ---------------------------------------------------------------- whose turn


@pytest.mark.parametrize("what", ["prefill", "rewind", "fork", "another stream"])
def test_a_stream_that_is_always_busy_keeps_nobody_out(fleet, client, session, what):
    """Four steps are on their way at any time, of answers that take 20 ms."""
    fleet.lose = lambda method, server: method == "Steps" and time.sleep(0.02)
    end, errors = threading.Event(), []

    def work():
        try:
            with client.steps(resume=True) as stream:
                steps = []
                while not end.is_set():
                    steps.append(stream.submit_prefill(session, 1, rows(1, 2), 30, rewind=True))
                    if len(steps) > 4:
                        steps.pop(0).result(20)
        except Exception as error:
            errors.append(error)

    client._recovery_timeout = 8  # which is also how long a turn is waited for
    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.3)
    try:
        if what == "prefill":
            session.prefill(1, rows(1, 3), position=30, rewind=True, timeout=8)
        elif what == "rewind":
            session.rewind(30, timeout=8)
        elif what == "fork":
            session.fork(timeout=8)
        else:
            with client.steps(resume=True) as second:
                second.submit_prefill(session, 1, rows(1, 3), 30, rewind=True).result(20)
    finally:
        end.set()
        worker.join(30)
    assert errors == []


@pytest.mark.parametrize("method", ["CreateSession", "Prefill"])
def test_a_close_waits_for_no_making(fleet, client, home, other, session, method):
    """A step makes the session anew: of that, one answer comes when it has been closed."""
    going, go, failed, waited = threading.Event(), threading.Event(), [], []

    def asked(name, server):
        if name == method and server is other:
            going.set()
            waited.append(go.wait(20))
        return False

    def work():
        try:
            session.prefill(1, rows(1, 3))
        except attnd.NotFound as error:
            failed.append(error)

    fleet.lose = asked
    fleet.put_out(home)
    worker = threading.Thread(target=work)
    worker.start()
    assert going.wait(10)
    session.close()
    go.set()
    worker.join(30)
    assert waited == [True], "the close ended before"
    assert len(failed) == 1 and held(other) == []
    fleet.take_back(home)
    session.close()
    assert held(home) == []


# ---------------------------------------------------------------- what came of a call that failed


@pytest.mark.parametrize("method", ["CreateSession", "ForkSession"])
def test_a_session_whose_making_timed_out_is_closed(fleet, client, home, session, method):
    lose(fleet, method, then=lambda: time.sleep(1.0))
    with pytest.raises(attnd.DeadlineExceeded):
        if method == "ForkSession":
            session.fork(timeout=0.4)
        else:
            client.create_replaying_session(timeout=0.4)
    time.sleep(0.5)
    session.close()
    assert held(home) == []


def test_a_fork_that_failed_in_the_end_leaves_nothing(fleet, client, home, session):
    """The answer of its first try was lost; the second is refused."""
    once, tries = client._once, []

    def refusing(method, request, timeout):
        if hasattr(request, "new_session_id"):
            tries.append(method)
            if len(tries) > 1:
                raise attnd.PermissionDenied("no more", reason="DENIED")
        return once(method, request, timeout)

    lose(fleet, "ForkSession")
    client._once = refusing
    with pytest.raises(attnd.PermissionDenied):
        session.fork()
    session.close()
    assert held(home) == []


def test_an_interrupt_while_a_session_is_made_anew_leaves_nothing(
    fleet, client, home, other, session
):
    tried = client._try

    def interrupting(method, request, seconds):
        answer = tried(method, request, seconds)
        if type(request).__name__ == "CreateSessionRequest":
            client._try = tried
            raise KeyboardInterrupt
        return answer

    fleet.put_out(home)
    client._try = interrupting
    with pytest.raises(KeyboardInterrupt):
        session.prefill(1, rows(1, 3))
    session.prefill(1, rows(1, 3))
    session.close()
    assert held(other) == []


def test_a_rewind_waits_for_room():
    """A step before it may be done, so that the session is made anew; its place is taken then."""
    server = ServerProcess.of_golden("odd", "--max_sessions=1")
    balancer = Balancer([server])
    go = threading.Event()

    def taken():
        squatter = direct.create_session()
        threading.Timer(0.5, squatter.close).start()
        return False  # the answer is not lost

    try:
        near = attnd.Client(balancer.address, timeout=30, recovery_timeout=10)
        with near as client, attnd.Client(server.address) as direct:
            session = client.create_replaying_session()
            session.prefill(1, rows(30, 1))
            balancer.lose = lambda method, _: method == "Prefill" and go.wait(1)
            with pytest.raises(attnd.DeadlineExceeded):
                session.prefill(1, rows(3, 2), timeout=0.4)
            go.set()
            balancer.lose = lambda method, _: method == "CloseSession" and taken()
            session.rewind(29)
            assert session.lengths[1] == 29
    finally:
        balancer.stop()
        server.stop()
