"""Servers that live, but not for the balancer, and answers that are lost: what a session holds is
what its client was answered, and nothing else is ever taken for it."""

import threading
import time

import numpy as np
import pytest

import attnd
from support.balancer import Balancer
from support.server_process import ServerProcess

from test_replaying import LAYERS, undisturbed
from test_session import rows


def held(server):
    with attnd.Client(server.address) as direct:
        return sorted(one.session_id for one in direct.list_sessions())


def lose(fleet, method, count=1, then=lambda: None):
    """The next `count` answers of the method are lost; `then()` is called with each."""
    left = [count]

    def asked(name, server):
        if name != method or not left[0]:
            return False
        left[0] -= 1
        then()
        return True

    fleet.lose = asked


@pytest.fixture
def client(fleet):
    """One that waits for no session: nothing moves here."""
    with attnd.Client(fleet.address, timeout=30, arrival_wait=0.1) as one:
        yield one


@pytest.fixture
def home(fleet, client):
    """The server of the client's sessions, at first."""
    return fleet.server_of(client.affinity_key)


@pytest.fixture
def other(fleet, home):
    return next(server for server in fleet.servers if server is not home)


@pytest.fixture
def session(client):
    one = client.create_replaying_session()
    one.prefill(1, rows(30, 1))
    return one


def answer_of(one, seed=9):
    return one.decode(1, rows(1, seed)).output.tobytes()


def expected(fleet, *steps, seed=9):
    """The answer of a row behind 30 rows and these steps (rows, seed, position)."""

    def act(one):
        one.prefill(1, rows(30, 1))
        for count, own, position in steps:
            one.prefill(1, rows(count, own), position=position, rewind=True)
        return answer_of(one, seed)

    return undisturbed(fleet, act)


# ---------------------------------------------------------------- a ring that flaps


def test_a_ring_that_flaps_at_every_step(fleet, client, home):
    def act(session, flap=lambda: None):
        answers = []
        for layer in LAYERS:
            session.prefill(layer, rows(30, layer))
        for i in range(6):
            flap()
            answers.append(session.decode(1, rows(2, 10 + i)).output.tobytes())
            flap()
            again = session.prefill(1, rows(2, 100 + i), position=30 + i, rewind=True)
            answers += [again.output.tobytes(), session.decode(2, rows(1, i)).output.tobytes()]
        return answers

    out = []

    def flap():
        fleet.take_back(out.pop()) if out else out.append(home) or fleet.put_out(home)

    assert act(client.create_replaying_session(), flap) == undisturbed(fleet, act)


def test_a_step_of_the_old_place_is_not_counted_when_the_session_has_gone_on(fleet, client, home):
    """Its answer is on a stream to the old server while a call makes the session anew."""
    session = client.create_replaying_session()
    session.prefill(1, rows(30, 1))
    done, go = threading.Event(), threading.Event()

    def asked(method, server):
        if method == "Steps" and not go.is_set():
            done.set()
            go.wait(20)
        return False

    fleet.lose = asked
    with client.steps(resume=True) as stream:
        step = stream.submit_prefill(session, 1, rows(3, 2), position=27, rewind=True)
        assert done.wait(20)
        fleet.put_out(home)
        session.prefill(0, rows(5, 3))
        go.set()
        step.result(30)
    assert answer_of(session) == expected(fleet, (3, 2, 27))


# ---------------------------------------------------------------- names


def test_a_name_that_is_taken_is_an_error_however_late(fleet, client, home, session):
    fork = session.fork(session_id="branch")
    fork.prefill(1, rows(3, 2))
    fleet.put_out(home)
    fork.close()
    session.prefill(1, rows(3, 3))
    fleet.take_back(home)
    with pytest.raises(attnd.AlreadyExists):
        session.fork(session_id="branch")
    twin = session.fork(session_id="twig")
    assert answer_of(twin) == expected(fleet, (3, 3, 30))


@pytest.mark.parametrize("name", [None, "chat"])
def test_what_a_lost_answer_made_is_another_session(fleet, client, home, name):
    client.create_replaying_session().close()
    lose(fleet, "CreateSession", then=lambda: fleet.put_out(home))
    session = client.create_replaying_session(session_id=name)
    session.prefill(1, rows(30, 1))
    fleet.take_back(home)
    session.prefill(1, rows(30, 2), position=0, rewind=True)
    fleet.put_out(home)
    fleet.lose = lambda method, server: False
    assert answer_of(session) == expected(fleet, (30, 2, 0))


def test_what_a_lost_fork_made_is_another_session(fleet, home, session):
    lose(fleet, "ForkSession", then=lambda: fleet.put_out(home))
    fork = session.fork(session_id="branch")
    assert fork.session_id.startswith("branch.")
    fork.prefill(1, rows(3, 2), position=27, rewind=True)
    fleet.take_back(home)
    assert answer_of(fork) == expected(fleet, (3, 2, 27))


def test_another_clients_name_is_left_alone(fleet, client, home):
    """It can be had again where its first owner has another id by now."""
    first = client.create_replaying_session(session_id="chat", idle_ttl=1.0)
    first.prefill(1, rows(30, 1))
    home._process.kill()
    home._process.wait()
    first.prefill(1, rows(3, 2))
    second = client.create_replaying_session(session_id="chat")
    second.prefill(1, rows(30, 1))
    time.sleep(2)
    first.prefill(1, rows(1, 3))  # it has expired
    assert answer_of(second) == expected(fleet)


def test_long_names(fleet, client, home):
    session = client.create_replaying_session(session_id="n" * 128)
    session.prefill(1, rows(5, 1))
    fleet.put_out(home)
    session.prefill(1, rows(1, 2))
    assert len(session.session_id) == 128 and session.session_id.startswith("n" * 95 + ".")


# ---------------------------------------------------------------- room


@pytest.mark.parametrize("method, room", [("CreateSession", 1), ("ForkSession", 2)])
def test_what_a_lost_answer_made_does_not_take_the_last_place(method, room):
    server = ServerProcess.of_golden("odd", f"--max_sessions={room}")
    balancer = Balancer([server])
    try:
        with attnd.Client(balancer.address, timeout=30, recovery_timeout=10) as client:
            client.model()
            lose(balancer, method)
            session = client.create_replaying_session()
            session.prefill(1, rows(3))
            if method == "ForkSession":
                answer_of(session.fork())
    finally:
        balancer.stop()
        server.stop()


def test_what_was_left_behind_is_closed_with_the_session(fleet, home, session):
    old = session.session_id
    fleet.put_out(home)
    session.prefill(1, rows(3, 3))
    fleet.take_back(home)
    assert held(home) == [old]
    assert session.close() == 0  # it is out of reach
    assert held(home) == []


# ---------------------------------------------------------------- what failed leaves nothing


@pytest.mark.parametrize("then", ["fork", "step", "rewind"])
def test_after_a_recovery_that_broke_off(fleet, client, home, other, then):
    session = client.create_replaying_session()
    for layer in LAYERS:
        session.prefill(layer, rows(30, layer))
    calls = []

    def late(method, server):
        if method == "Prefill" and server is other:
            calls.append(method)
            if len(calls) == 2:
                time.sleep(1.5)  # past the client's timeout
        return False

    fleet.put_out(home)
    fleet.lose = late
    client._timeout = 1.0
    with pytest.raises(attnd.DeadlineExceeded):
        session.decode(3, rows(1, 9))
    client._timeout = 30
    assert session.lengths == (30,) * 4

    def act(one):
        if then == "rewind":
            one.rewind(29)
        return (one.fork() if then == "fork" else one).decode(2, rows(1, 9)).output.tobytes()

    def whole(one):
        for layer in LAYERS:
            one.prefill(layer, rows(30, layer))
        return act(one)

    assert act(session) == undisturbed(fleet, whole)


@pytest.mark.parametrize("position", [27, 30])
@pytest.mark.parametrize("then", ["fork", "step", "rewind", "same"])
def test_after_a_step_that_failed_and_was_done(fleet, session, position, then):
    go = threading.Event()
    fleet.lose = lambda method, server: method == "Prefill" and not go.is_set() and go.wait(3)
    with pytest.raises(attnd.DeadlineExceeded):
        session.prefill(1, rows(3, 2), position=position, rewind=True, timeout=0.7)
    go.set()
    assert session.lengths[1] == 30
    if then == "same":
        session.prefill(1, rows(2, 4), position=position, rewind=True)
        assert answer_of(session) == expected(fleet, (2, 4, position))
        return
    if then == "rewind":
        session.rewind(30)
    assert answer_of(session.fork() if then == "fork" else session) == expected(fleet)


def test_a_refused_step_is_as_if_it_had_not_been(session, fleet):
    bad = np.full_like(rows(3), np.nan)
    with pytest.raises(attnd.InvalidArgument):
        session.prefill(1, bad, position=27, rewind=True)
    old = session.session_id
    assert session.lengths[1] == 30
    assert answer_of(session) == expected(fleet)
    assert session.session_id == old


# ---------------------------------------------------------------- pipelines


@pytest.mark.parametrize("kind", ["replaying", "plain"])
def test_a_step_that_cuts_another_waits_for_its_answer(fleet, client, kind):
    make = client.create_replaying_session if kind == "replaying" else client.create_session
    session = make()
    session.prefill(1, rows(30, 1))
    lose(fleet, "Steps", then=lambda: time.sleep(0.5))  # the server does what it has meanwhile
    with client.steps(resume=True) as stream:
        first = stream.submit_prefill(session, 1, rows(2, 5))
        second = stream.submit_prefill(session, 1, rows(3, 6), position=27, rewind=True)
        third = stream.submit_prefill(session, 1, rows(1, 7), position=30)
        answers = [step.result(60).output.tobytes() for step in (first, second, third)]

    def act(one):
        one.prefill(1, rows(30, 1))
        return [
            one.prefill(1, rows(2, 5)).output.tobytes(),
            one.prefill(1, rows(3, 6), position=27, rewind=True).output.tobytes(),
            one.prefill(1, rows(1, 7)).output.tobytes(),
        ]

    assert answers == undisturbed(fleet, act)


def test_what_was_behind_a_step_that_failed_fails_too(fleet, client, home, session):
    """Its answer is lost; the caller has sent others in the places of both meanwhile."""
    bad = np.full_like(rows(1), np.nan)
    go, answers = threading.Event(), []

    def asked(method, server):
        if method == "Steps" and server is home:
            answers.append(method)
            return len(answers) > 1 and go.wait(20)
        return False

    fleet.lose = asked
    with client.steps(resume=True) as stream:
        failed = stream.submit_prefill(session, 1, bad)
        behind = stream.submit_prefill(session, 1, rows(1, 3))
        with pytest.raises(attnd.InvalidArgument):
            failed.result(20)
        fleet.put_out(home)
        stream.submit_prefill(session, 1, rows(1, 4), position=30)
        go.set()
        with pytest.raises(attnd.FailedPrecondition, match="position is 31; expected 30"):
            behind.result(60)
        stream.submit_prefill(session, 1, rows(1, 5), position=31).result(60)
    assert answer_of(session) == expected(fleet, (1, 4, 30), (1, 5, 31))


def test_a_length_counts_what_was_answered_behind_a_step_that_failed(fleet, client, session):
    with client.steps(resume=True) as stream:
        failed = stream.submit_prefill(session, 1, np.full_like(rows(1), np.nan))
        stream.submit_prefill(session, 1, rows(5, 2), position=27, rewind=True).result(30)
        with pytest.raises(attnd.InvalidArgument):
            failed.result(30)
    assert session.lengths[1] == 32
    assert answer_of(session) == expected(fleet, (5, 2, 27))


def test_a_step_cancelled_while_its_stream_is_mended_leaves_nothing(fleet, client, session):
    go = threading.Event()

    def asked(method, server):
        if method == "GetSession":
            go.wait(20)
        return method == "Steps" and not go.is_set() and time.sleep(0.5) is None

    fleet.lose = asked
    with client.steps(resume=True) as stream:
        first = stream.submit_prefill(session, 1, rows(1, 2))
        second = stream.submit_prefill(session, 1, rows(1, 3))
        while not stream._mending:
            time.sleep(0.01)
        stream.cancel(first.step_id)
        go.set()
        with pytest.raises(attnd.Cancelled):
            first.result(30)
        with pytest.raises(attnd.FailedPrecondition):
            second.result(30)
    assert session.replayable
    assert answer_of(session) == expected(fleet)


def test_the_first_session_waits_for_a_server(fleet, client):
    client.stats()
    for server in fleet.servers:
        fleet.put_out(server)
    back = threading.Timer(0.5, lambda: [fleet.take_back(one) for one in fleet.servers])
    back.start()
    client.create_replaying_session()
    back.join()
