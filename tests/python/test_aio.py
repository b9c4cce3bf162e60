"""The asyncio client, against the fake server."""

import asyncio

import numpy as np
import pytest

import attnd

from test_session import rows


def run(fake, act, **options):
    """Runs act(client) in a loop of its own."""

    async def inside():
        async with attnd.AsyncClient(fake.address, timeout=20, **options) as client:
            return await act(client)

    return asyncio.run(asyncio.wait_for(inside(), 60))


def test_a_session_from_start_to_end(fake):
    async def act(client):
        model = await client.model()
        async with await client.create_session(prefix_length=2, session_id="a") as session:
            for layer in range(model.num_layers):
                await session.prefill(layer, rows(5))
                answer = await session.decode(layer, rows(1))
                assert answer.output.shape == (1, 100)
            assert session.lengths == (6,) * 4
            assert (await session.rewind(4)).layer_lengths == (4,) * 4
            again = await client.get_session("a")
            assert (await again.info()).layer_lengths == again.lengths == (4,) * 4
        return [info async for info in client.list_sessions()]

    assert run(fake, act) == []


def test_listing_stats_health_and_drain(fake):
    async def act(client):
        for name in "abcde":
            await client.create_session(session_id=name)
        names = [info.session_id async for info in client.list_sessions(page_size=2)]
        assert names == list("abcde")
        assert (await client.stats()).sessions == 5
        assert await client.health() == "SERVING"
        assert await client.drain() == 5
        assert await client.close_session("a") == 1
        assert (await client.rewind_session("b", 0)).session_id == "b"

    run(fake, act)


def test_errors_are_typed(fake):
    async def act(client):
        with pytest.raises(attnd.NotFound) as error:
            await client.get_session("nobody")
        assert error.value.reason == "SESSION_UNKNOWN"

    run(fake, act)


def test_many_sessions_at_once_and_one_decode_of_all(fake):
    async def act(client):
        sessions = await asyncio.gather(*(client.create_session() for _ in range(5)))
        await asyncio.gather(*(s.prefill(0, rows(3, i)) for i, s in enumerate(sessions)))
        answer = await client.decode(0, sessions, rows(5))
        assert [result.length for result in answer.results] == [4] * 5

    run(fake, act, affinity_key="k")
    assert {sent["attnd-session-key"] for sent in fake.metadata} == {"k"}


def test_lost_answers_are_repeated(fake):
    async def act(client):
        session = await client.create_session()
        fake.faults = ["lost"]
        assert (await session.prefill(0, rows(3), retries=1)).length == 3
        fake.faults = ["lost"]
        await session.decode(0, rows(1), retries=1)
        fake.faults = ["lost"]
        with pytest.raises(attnd.Unavailable):
            await session.decode(0, rows(1))
        assert session.lengths[0] is None
        assert (await session.prefill(0, rows(1))).length == 6

    run(fake, act)


def test_a_cancelled_task_cancels_its_call(fake):
    async def act(client):
        session = await client.create_session()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, fake.engine.lock.acquire)
        try:
            task = asyncio.ensure_future(session.prefill(0, rows(2)))
            while not fake.contexts:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while fake.contexts[0].is_active():  # until the cancel has reached the server
                await asyncio.sleep(0.01)
        finally:
            fake.engine.lock.release()
        assert session.lengths[0] is None
        assert (await session.prefill(0, rows(1))).length == 1

    run(fake, act)


def test_steps_pipeline_cancel_and_timeout(fake):
    async def act(client):
        session, x = await client.create_session(), rows(6)
        async with await client.steps() as stream:
            await asyncio.get_running_loop().run_in_executor(None, fake.engine.lock.acquire)
            try:
                first = await stream.submit_prefill(session, 0, x[:4])
                second = await stream.submit_decode(0, [(session, 2)], x[4:])
                dropped = await stream.submit_prefill(session, 0, x)
                late = await stream.submit_prefill(session, 0, x, position=6, timeout=0.05)
                stream.cancel(dropped.step_id)
                await asyncio.sleep(0.3)
            finally:
                fake.engine.lock.release()
            outputs = [(await first).output, (await second).output]
            with pytest.raises(attnd.Cancelled):
                await dropped
            with pytest.raises(attnd.DeadlineExceeded):
                await late
            after = await stream.submit_prefill(session, 0, x[:1])
            assert (await after).length == 7
        alone = await (await client.create_session()).prefill(0, x)
        np.testing.assert_allclose(np.concatenate(outputs), alone.output, atol=1e-5)

    run(fake, act)


def test_a_stream_of_steps_may_be_a_clients_first_call(fake, fake_client):
    session = fake_client.create_session()

    async def act(client):
        async with await client.steps() as stream:
            step = attnd.SequenceStep(session.session_id, position=0)
            assert (await (await stream.submit_decode(0, [step], rows(1)))).results[0].ok

    run(fake, act)


def test_an_exception_in_the_block_ends_the_stream_at_once(fake):
    async def act(client):
        session = await client.create_session()
        await asyncio.get_running_loop().run_in_executor(None, fake.engine.lock.acquire)
        try:
            with pytest.raises(KeyError):
                async with await client.steps() as stream:
                    answer = await stream.submit_prefill(session, 0, rows(2))
                    raise KeyError("the caller's own")
            with pytest.raises(attnd.AttndError):
                await answer
            with pytest.raises(attnd.AttndError):
                await stream.submit_prefill(session, 0, rows(2), position=0)
        finally:
            fake.engine.lock.release()

    run(fake, act)


def test_a_server_that_is_not_there_is_unavailable():
    async def act():
        async with attnd.AsyncClient("127.0.0.1:1", connect_timeout=0.3) as client:
            with pytest.raises(attnd.Unavailable, match="could not be reached"):
                await client.model()

    asyncio.run(act())
