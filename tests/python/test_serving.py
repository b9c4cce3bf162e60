"""A real server under pipelining, cancels, deadlines, lost answers and company."""

import asyncio
import time

import numpy as np
import pytest

import attnd

LONG = 4096  # rows of mqa_yarn's global layer: long enough to be caught in the middle


def hidden(count, width=128, seed=0):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.fixture
def client(connect):
    return connect("mqa_yarn")


def settled_length(session, layer):
    """The layer's length once a step that was given up has been undone."""
    session.prefill(1 - layer, hidden(1))  # runs after the steps accepted before it
    return session.info().layer_lengths[layer]


@pytest.mark.parametrize("layer", [0, 1])
def test_together_and_alone_give_the_same_bits(client, layer):
    x, y = hidden(90, seed=1), hidden(70, seed=2)

    def decode(together):
        a, b = client.create_session(), client.create_session()
        a.prefill(layer, x[:50])
        b.prefill(layer, y[:7])
        outputs = []
        for i in range(20):
            rows = [x[50 + 2 * i : 52 + 2 * i], y[7 + i : 8 + i]]
            if together:
                outputs.append(client.decode(layer, [(a, 2), b], np.concatenate(rows)).output)
            else:
                outputs += [a.decode(layer, rows[0]).output, b.decode(layer, rows[1]).output]
        a.close()
        b.close()
        return np.concatenate(outputs)

    assert decode(True).tobytes() == decode(False).tobytes()


@pytest.mark.parametrize("layer, model", [(0, "small_shape"), (1, "small_shape")])
def test_a_lost_answer_of_a_long_prefill_is_repeated(connect, layer, model):
    """512 rows past a window of 130: what the step pushed out must still be there."""
    x = hidden(560)
    with connect(model).create_session() as session:
        session.prefill(layer, x[:40])
        answer = session.prefill(layer, x[40:552])
        options = dict(position=40, rewind=True, expected_length=552)
        again = session.prefill(layer, x[40:552], **options)
        assert again.output.tobytes() == answer.output.tobytes() and again.length == 552
        after = session.decode(layer, x[552:])
    with connect(model).create_session() as session:
        session.prefill(layer, x[:40])
        session.prefill(layer, x[40:552])
        assert session.decode(layer, x[552:]).output.tobytes() == after.output.tobytes()


@pytest.mark.parametrize("layer", [0, 1])
def test_a_lost_answer_that_completed_a_prefix_is_repeated(connect, layer):
    x = hidden(220)
    with connect("small_shape").create_session(prefix_length=139) as session:
        assert session.prefill(layer, x[:100]).output.shape[0] == 0
        answer = session.prefill(layer, x[100:200])
        assert (answer.output_position, len(answer.output)) == (0, 200)
        options = dict(position=100, rewind=True, expected_length=200)
        again = session.prefill(layer, x[100:200], **options)
        assert (again.output_position, again.length) == (0, 200)
        assert again.output.tobytes() == answer.output.tobytes()
        assert session.prefill(layer, x[200:]).length == 220


def test_output_rows_and_dtypes(client):
    x = hidden(80)
    with client.create_session() as session:
        whole = session.prefill(0, x).output
        again = dict(position=0, rewind=True)
        last = session.prefill(0, x, output_rows="last", **again)
        assert (last.output_position, last.output.shape) == (79, (1, 128))
        np.testing.assert_allclose(last.output, whole[-1:], rtol=1e-4, atol=1e-5)
        none = session.prefill(0, x, output_rows="none", **again)
        assert (none.output_position, none.output.shape, none.length) == (0, (0, 128), 80)
        half = session.prefill(0, x, output_dtype="f16", **again).output
        assert half.dtype == np.float16
        np.testing.assert_allclose(half, whole, rtol=2e-3, atol=1e-3)


def test_an_expired_deadline_undoes_the_step(client):
    with client.create_session() as session:
        session.prefill(1, hidden(3))
        with pytest.raises(attnd.DeadlineExceeded) as error:
            session.prefill(1, hidden(LONG - 8), timeout=0.02)
        assert error.value.reason == ""
        assert settled_length(session, 1) == 3
        assert session.prefill(1, hidden(2), position=3).length == 5


def test_a_cancel_in_flight_undoes_the_step(client, servers):
    async def act():
        async with attnd.AsyncClient(servers("mqa_yarn").address) as other:
            session = await other.create_session(session_id="cancelled-in-flight")
            task = asyncio.ensure_future(session.prefill(1, hidden(LONG)))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert session.lengths[1] is None

    asyncio.run(act())
    with client.get_session("cancelled-in-flight") as session:
        assert settled_length(session, 1) == 0
        assert session.prefill(1, hidden(2), position=0).length == 2


def test_steps_cancel_and_timeout_in_the_queue(client):
    with client.create_session() as session, client.steps() as stream:
        busy = stream.submit_prefill(session, 1, hidden(LONG - 8))
        dropped = stream.submit_prefill(session, 1, hidden(1))
        late = stream.submit_prefill(session, 1, hidden(1), LONG - 8, timeout=0.001)
        stream.cancel(dropped.step_id)
        kept = stream.submit_prefill(session, 1, hidden(2), LONG - 8)
        with pytest.raises(attnd.Cancelled) as error:
            dropped.result(60)
        assert error.value.reason == "STEP_CANCELLED"
        with pytest.raises(attnd.DeadlineExceeded) as error:
            late.result(60)
        assert error.value.reason == "STEP_TIMEOUT"
        assert (busy.result(60).length, kept.result(60).length) == (LONG - 8, LONG - 6)


def test_steps_cancel_in_the_middle_of_a_step(client):
    with client.create_session() as session, client.steps() as stream:
        stream.submit_prefill(session, 1, hidden(2)).result(60)
        running = stream.submit_prefill(session, 1, hidden(LONG - 2))
        time.sleep(0.03)
        stream.cancel(running.step_id)
        with pytest.raises(attnd.Cancelled):
            running.result(60)
        assert stream.submit_prefill(session, 1, hidden(1), position=2).result(60).length == 3


def test_steps_of_many_sessions_are_ordered_in_each(client):
    """Chunks of six sessions interleaved on one stream equal the same rows sent alone."""
    xs = [hidden(60, seed=seed) for seed in range(6)]
    with client.steps() as stream:
        sessions = [client.create_session() for _ in xs]
        answers = [[] for _ in xs]
        for start in range(0, 40, 10):
            for session, x, mine in zip(sessions, xs, answers):
                mine.append(stream.submit_prefill(session, 0, x[start : start + 10]))
        for row in range(40, 60):
            batch = np.concatenate([x[row : row + 1] for x in xs])
            step = stream.submit_decode(0, sessions, batch)
            for mine in answers:
                mine.append(step)
        for index, (session, x, mine) in enumerate(zip(sessions, xs, answers)):
            rows = [answer.result(60).output for answer in mine[:4]]
            rows += [answer.result(60).results[index].output for answer in mine[4:]]
            with client.create_session() as alone:
                expected = alone.prefill(0, x).output
            np.testing.assert_allclose(np.concatenate(rows), expected, rtol=1e-3, atol=1e-5)
            session.close()


def test_a_failed_step_leaves_the_stream_open(client):
    with client.create_session() as session, client.steps() as stream:
        wrong = stream.submit_prefill(session, 0, hidden(1), position=5)
        bad = stream.submit_decode(9, [session], hidden(1))
        unknown = stream.submit_decode(0, [("nobody", 1, 0)], hidden(1))
        for answer, reason in [
            (wrong, "POSITION_MISMATCH"),
            (bad, "BAD_LAYER"),
            (unknown, "SESSION_UNKNOWN"),
        ]:
            with pytest.raises(attnd.AttndError) as error:
                answer.result(60)
            assert error.value.reason == reason
        assert stream.submit_prefill(session, 0, hidden(2)).result(60).length == 2


def test_asyncio_from_start_to_end(servers):
    async def act():
        async with attnd.AsyncClient(servers("mqa_yarn").address, timeout=60) as client:
            assert (await client.model()).num_layers == 2
            sessions = await asyncio.gather(*(client.create_session() for _ in range(4)))
            xs = [hidden(30, seed=seed) for seed in range(4)]
            first = await asyncio.gather(*(s.prefill(0, x[:20]) for s, x in zip(sessions, xs)))
            async with await client.steps() as stream:
                futures = [
                    await stream.submit_decode(0, sessions, np.stack([x[row] for x in xs]))
                    for row in range(20, 30)
                ]
                later = await asyncio.gather(*futures)
            for i, (session, x) in enumerate(zip(sessions, xs)):
                rows = [first[i].output] + [answer.results[i].output for answer in later]
                alone = await client.create_session()
                expected = (await alone.prefill(0, x)).output
                np.testing.assert_allclose(np.concatenate(rows), expected, rtol=1e-3, atol=1e-5)
                await alone.close()
                await session.close()

    asyncio.run(act())


def test_timing_and_cache_bytes_are_told(client):
    with client.create_session() as session:
        answer = session.prefill(0, hidden(65))
        assert answer.timing.compute_ns > 0 and answer.timing.queue_ns >= 0
        assert answer.timing.batch_rows >= 1
        info = session.info()
        assert info.cache_bytes > 0 and info.expire_time > info.create_time
        freed = session.close()
        assert freed == info.cache_bytes
