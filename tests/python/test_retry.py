"""Repeating a step whose outcome is not known, with answers lost on purpose."""

import time

import numpy as np
import pytest

import attnd
from attnd import _moves, _retry
from attnd._proto import attnd_pb2 as pb

from test_session import rows


@pytest.mark.parametrize("fault", ["lost", "unseen"])
def test_a_prefill_is_repeated_safely(fake, fake_client, fault):
    session, x = fake_client.create_session(), rows(9)
    session.prefill(0, x[:4])
    fake.faults = [fault]
    answer = session.prefill(0, x[4:], retries=1)
    assert answer.length == 9 and session.lengths[0] == 9
    first, second = fake.requests[-2:]
    assert (first.rewind, first.expected_length) == (False, 0)
    assert (second.rewind, second.position, second.expected_length) == (True, 4, 9)
    other = fake_client.create_session()
    other.prefill(0, x[:4])
    np.testing.assert_array_equal(other.prefill(0, x[4:]).output, answer.output)


@pytest.mark.parametrize("faults", [["lost"], ["unseen"], ["unseen", "lost"], ["lost", "unseen"]])
@pytest.mark.parametrize("guard", [0, 9])
def test_a_prefill_with_its_own_rewind_is_repeated_safely(fake, fake_client, faults, guard):
    session, x = fake_client.create_session(), rows(9)
    session.prefill(0, x)
    fake.faults = list(faults)
    options = dict(position=6, rewind=True, expected_length=guard)
    answer = session.prefill(0, x[6:8], retries=len(faults), **options)
    assert answer.length == session.info().layer_lengths[0] == 8


@pytest.mark.parametrize("fault", ["lost", "unseen"])
def test_a_decode_is_repeated_safely(fake, fake_client, fault):
    a, b = fake_client.create_session(), fake_client.create_session()
    b.prefill(0, rows(5))
    fake.faults = [fault]
    steps = [(a, 2), attnd.SequenceStep(b, 1, position=3, rewind=True)]
    answer = fake_client.decode(0, steps, rows(3), retries=2)
    assert [result.length for result in answer.results] == [2, 4]
    repeated = fake.requests[-1].sequences
    assert [(step.rewind, step.expected_length) for step in repeated] == [(True, 2), (True, 0)]


def test_a_decode_with_a_guard_of_its_own_is_not_repeated(fake_client):
    step = attnd.SequenceStep("a", 1, position=3, rewind=True, expected_length=5)
    with pytest.raises(ValueError, match="expected retries=0"):
        fake_client.decode(0, [step], rows(1), retries=1)


def test_without_retries_the_length_is_asked_for_again(fake, fake_client):
    session = fake_client.create_session()
    fake.faults = ["lost"]
    with pytest.raises(attnd.Unavailable) as error:
        session.prefill(0, rows(3))
    assert error.value.reason == "" and session.lengths[0] is None
    assert session.prefill(0, rows(2)).length == 5


def test_after_a_repeat_the_length_is_unknown_whatever_the_last_error(fake, fake_client):
    session = fake_client.create_session()
    fake.faults = ["lost"]
    send = fake._prefill

    def refuse_repeats(request, may_commit):
        if request.rewind:
            fake.engine.get("nobody")
        return send(request, may_commit)

    fake._prefill = refuse_repeats
    with pytest.raises(attnd.NotFound):
        session.prefill(0, rows(3), retries=1)
    assert session.lengths[0] is None
    assert session.prefill(0, rows(1)).length == 4


def test_retries_are_counted(fake, fake_client):
    session = fake_client.create_session()
    fake.faults = ["unseen"] * 3
    with pytest.raises(attnd.Unavailable):
        session.prefill(0, rows(1), retries=2)
    assert len(fake.requests) == 3


def test_a_late_repeat_cuts_nothing(fake, fake_client):
    session, x = fake_client.create_session(), rows(6)
    fake.faults = ["lost"]
    session.prefill(0, x[:3], retries=1)
    repeat = fake.requests[-1]
    session.prefill(0, x[3:])
    with pytest.raises(attnd.FailedPrecondition) as error:
        fake_client._call(fake_client._stubs.attention.Prefill, repeat, None)
    assert error.value.reason == "POSITION_MISMATCH"
    assert session.info().layer_lengths[0] == 6


def test_which_errors_are_repeated():
    request = pb.PrefillRequest(hidden=pb.Tensor(shape=[2, 3]))
    for error, repeated in [
        (attnd.Unavailable(""), True),
        (attnd.Unavailable("", reason="NOT_READY"), True),
        (attnd.Unavailable("", reason="DRAINING"), False),
        (attnd.Unavailable("", reason="SESSION_MOVING"), False),
        (attnd.DeadlineExceeded(""), True),
        (attnd.ResourceExhausted("", reason="CACHE_FULL", retry_after=1.0), False),
        (attnd.FailedPrecondition("", reason="POSITION_MISMATCH"), False),
        (attnd.Internal("", reason="INTERNAL"), False),
    ]:
        assert (_retry.PrefillAttempts(request, 1).after(error, None) is not None) == repeated


def test_waits_grow_unless_the_server_says_how_long():
    request = pb.DecodeRequest()
    attempts = _retry.Attempts(request, 9)
    waits = [attempts.after(attnd.Unavailable(""), None) for _ in range(9)]
    assert 0.04 <= waits[0] <= 0.06 and 1.6 <= waits[-1] <= 2.4
    assert attempts.after(attnd.Unavailable(""), None) is None
    advised = _retry.Attempts(request, 1).after(attnd.Unavailable("", retry_after=10.0), 20.0)
    assert 8 <= advised <= 12


@pytest.mark.parametrize(
    "timeout, seconds", [(2.0, 3.0), (None, 1e9), (None, 1e11), (1e12, 1e11)]
)
def test_a_wait_longer_than_the_call_may_last_is_not_waited(timeout, seconds):
    error = attnd.Unavailable("", reason="NOT_READY", retry_after=seconds)
    request = pb.DecodeRequest(sequences=[pb.SequenceStep()])
    attempts = _retry.Attempts(request, 3)
    assert attempts.after(error, timeout) is None
    assert not attempts.repeated and not request.sequences[0].rewind


@pytest.mark.parametrize("seconds", [1e11, -1e11])
def test_what_a_server_advises_while_a_session_moves_is_bounded(seconds):
    waiting = _moves.MoveWatch(30.0, 30.0).wait(None)
    error = attnd.Unavailable("", reason="SESSION_MOVING", retry_after=seconds)
    assert 0 < waiting.after(error) <= 2
    error = attnd.Unavailable("", reason="NOT_READY", retry_after=-1e11)
    assert _retry.Attempts(pb.DecodeRequest(), 1).after(error, None) == 0


def test_a_deadline_of_the_call_is_kept(fake, fake_client):
    session = fake_client.create_session()
    with fake.engine.lock:
        start = time.monotonic()
        with pytest.raises(attnd.DeadlineExceeded) as error:
            session.prefill(0, rows(1), timeout=0.2)
        assert 0.15 < time.monotonic() - start < 5
    assert error.value.reason == "" and session.lengths[0] is None
