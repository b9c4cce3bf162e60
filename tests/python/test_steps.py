"""The stream of pipelined steps, against the fake server."""

import concurrent.futures

import numpy as np
import pytest

import attnd
from attnd._proto import attnd_pb2 as pb
from attnd._step_book import StepBook

from test_session import rows


def test_steps_are_pipelined_with_positions_counted_ahead(fake, fake_client):
    session, x = fake_client.create_session(), rows(12)
    with fake_client.steps() as stream:
        with fake.engine.lock:  # nothing can be answered before all are sent
            answers = [stream.submit_prefill(session, 0, x[i : i + 3]) for i in range(0, 9, 3)]
            answers += [stream.submit_decode(0, [session], x[i : i + 1]) for i in range(9, 12)]
            assert session.lengths[0] == 12
        results = [answer.result(20) for answer in answers]
    assert [result.length for result in results[:3]] == [3, 6, 9]
    assert [result.results[0].length for result in results[3:]] == [10, 11, 12]
    alone = fake_client.create_session().prefill(0, x).output
    piped = np.concatenate([result.output for result in results])
    np.testing.assert_allclose(piped, alone, atol=1e-5)


def test_parts_of_one_step_are_joined(fake, fake_client):
    fake.rows_a_response = 4
    session, x = fake_client.create_session(prefix_length=6), rows(11)
    with fake_client.steps() as stream:
        held = stream.submit_prefill(session, 0, x[:3]).result(20)
        rest = stream.submit_prefill(session, 0, x[3:]).result(20)
        bf16 = stream.submit_prefill(
            session, 0, x, position=0, rewind=True, output_dtype="bf16"
        ).result(20)
    assert held.output.shape == (0, 100)
    assert (rest.output.shape, rest.output_position, rest.length) == ((11, 100), 0, 11)
    whole = fake_client.create_session(prefix_length=6).prefill(0, x).output
    np.testing.assert_allclose(rest.output, whole, atol=1e-6)
    np.testing.assert_allclose(bf16.output.astype(np.float32), whole, atol=2e-2)
    assert not rest.output.flags.writeable


def test_a_failed_step_leaves_the_stream_and_a_fresh_length(fake_client):
    session = fake_client.create_session()
    with fake_client.steps() as stream:
        assert stream.submit_prefill(session, 0, rows(2)).result(20).length == 2
        wrong = stream.submit_prefill(session, 0, rows(1), position=7)
        with pytest.raises(attnd.FailedPrecondition) as error:
            wrong.result(20)
        assert error.value.reason == "POSITION_MISMATCH"
        assert session.lengths[0] is None
        assert stream.submit_prefill(session, 0, rows(1)).result(20).length == 3


def test_cancel_and_timeout(fake, fake_client):
    session = fake_client.create_session()
    with fake_client.steps() as stream:
        with fake.engine.lock:
            running = stream.submit_prefill(session, 0, rows(1))
            cancelled = stream.submit_prefill(session, 0, rows(1), position=1)
            late = stream.submit_prefill(session, 0, rows(1), position=1, timeout=0.05)
            stream.cancel(cancelled.step_id)
            assert not cancelled.cancel()
            with pytest.raises(concurrent.futures.TimeoutError):
                late.result(0.3)
        assert running.result(20).length == 1
        with pytest.raises(attnd.Cancelled) as error:
            cancelled.result(20)
        assert error.value.reason == "STEP_CANCELLED"
        with pytest.raises(attnd.DeadlineExceeded) as error:
            late.result(20)
        assert error.value.reason == "STEP_TIMEOUT"
        assert stream.submit_prefill(session, 0, rows(1)).result(20).length == 2


def test_closing_waits_for_answers(fake_client):
    session = fake_client.create_session()
    with fake_client.steps() as stream:
        answers = [stream.submit_prefill(session, 0, rows(2)) for _ in range(5)]
    assert all(answer.done() for answer in answers)
    with pytest.raises(attnd.Unavailable, match="closed"):
        stream.submit_prefill(session, 0, rows(1))


def test_a_lost_server_fails_what_is_unanswered(fake, fake_client):
    session = fake_client.create_session()
    with fake_client.steps() as stream:
        with fake.engine.lock:
            answer = stream.submit_prefill(session, 0, rows(2))
            fake.server.stop(0)
            with pytest.raises(attnd.AttndError) as error:
                answer.result(20)
        assert isinstance(error.value, (attnd.Unavailable, attnd.Cancelled))
        with pytest.raises(attnd.AttndError):
            stream.submit_prefill(session, 0, rows(2), position=0)


def test_an_exception_in_the_block_ends_the_stream_at_once(fake, fake_client):
    session = fake_client.create_session()
    with fake.engine.lock:
        with pytest.raises(KeyError):
            with fake_client.steps() as stream:
                answer = stream.submit_prefill(session, 0, rows(2))
                raise KeyError("the caller's own")
        with pytest.raises(attnd.Cancelled):
            answer.result(20)


def test_the_stream_carries_the_affinity_key(fake):
    with attnd.Client(fake.address, affinity_key="k") as client, client.steps() as stream:
        session = client.create_session()
        stream.submit_prefill(session, 0, rows(1)).result(20)
    assert all(sent["attnd-session-key"] == "k" for sent in fake.metadata)


def test_answers_to_nobody_are_ignored_and_empty_answers_are_errors():
    book, future = StepBook(), attnd.StepFuture()
    step = attnd.SequenceStep("id", 1, 0)
    step_id = book.add(future, 0, [step], "prefill", 8)
    book.accept(pb.StepResponse(step_id=step_id + 1))
    assert not future.done() and len(book) == 1
    book.accept(pb.StepResponse(step_id=step_id))
    assert isinstance(future.exception(), attnd.Internal) and len(book) == 0
