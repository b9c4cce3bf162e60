"""Answers that no attnd gives: they end what waits for them, as INTERNAL with BAD_ANSWER."""

import asyncio

import numpy as np
import pytest

import attnd
from attnd._proto import attnd_pb2 as pb

from test_session import rows

D = 100  # the fake server's d_model


def change_shape(output, *shape):
    size = int(np.prod(shape)) * 4
    output.CopyFrom(pb.Tensor(dtype=pb.DTYPE_F32, shape=shape, data=bytes(size)))


FAULTS = {
    "a row too many": lambda answer: change_shape(answer.output, 4, D),
    "a row too few": lambda answer: change_shape(answer.output, 2, D),
    "another width": lambda answer: change_shape(answer.output, 3, D + 1),
    "one dimension": lambda answer: change_shape(answer.output, 3 * D),
    "a negative shape": lambda answer: answer.output.shape.__setitem__(0, -1),
    "bytes missing": lambda answer: setattr(answer.output, "data", b"1234"),
    "no output": lambda answer: answer.ClearField("output"),
    "a dtype of caches": lambda answer: setattr(answer.output, "dtype", pb.DTYPE_INT8),
}
OF_RESULTS = {
    "no results": lambda answer: answer.ClearField("results"),
    "a result too few": lambda answer: answer.results.pop(),
    "a result too many": lambda answer: answer.results.add(length=1),
}


def spoil(fake, fault):
    for name in ("_prefill", "_decode"):
        good = getattr(fake, name)

        def bad(*arguments, good=good):
            answer = good(*arguments)
            fault(answer)
            return answer

        setattr(fake, name, bad)


def check(act):
    with pytest.raises(attnd.Internal) as error:
        act()
    assert error.value.reason == "BAD_ANSWER"


@pytest.fixture(params=[*FAULTS, *OF_RESULTS])
def of_decodes(request, fake):
    spoil(fake, {**FAULTS, **OF_RESULTS}[request.param])


@pytest.fixture(params=FAULTS)
def of_prefills(request, fake):
    spoil(fake, FAULTS[request.param])


@pytest.fixture(params=["Session", "ReplayingSession"])
def create(request, fake_client):
    kinds = {"Session": "create_session", "ReplayingSession": "create_replaying_session"}
    return getattr(fake_client, kinds[request.param])


def test_a_bad_prefill_raises(fake_client, create, of_prefills):
    session = create()
    check(lambda: session.prefill(0, rows(3)))
    if not getattr(session, "replays", False):
        assert session.lengths[0] is None
    with fake_client.steps(resume=True) as stream:
        check(lambda: stream.submit_prefill(session, 1, rows(3)).result(10))


def test_a_bad_decode_raises(fake_client, create, of_decodes):
    sessions = [create() for _ in range(3)]
    check(lambda: fake_client.decode(0, sessions, rows(3)))
    with fake_client.steps(resume=True) as stream:
        check(lambda: stream.submit_decode(1, sessions, rows(3)).result(10))


def test_a_bad_answer_ends_a_plain_stream_s_step(fake_client, of_decodes):
    sessions = [fake_client.create_session() for _ in range(3)]
    with fake_client.steps() as stream:
        check(lambda: stream.submit_decode(0, sessions, rows(3)).result(10))


def test_the_asyncio_client_raises_too(fake, of_decodes):
    async def act():
        async with attnd.AsyncClient(fake.address, timeout=20) as client:
            sessions = [await client.create_session() for _ in range(3)]
            with pytest.raises(attnd.Internal):
                await client.decode(0, sessions, rows(3))
            async with await client.steps() as stream:
                future = await stream.submit_decode(1, sessions, rows(3))
                with pytest.raises(attnd.Internal):
                    await future

    asyncio.run(asyncio.wait_for(act(), 20))


def test_the_result_of_another_kind_of_step_is_refused(fake, fake_client):
    good = fake._step_parts

    def other(step_id, answer):
        for part in good(step_id, answer):
            part.decode.output.CopyFrom(part.prefill.output)
            yield part

    fake._step_parts = other
    with fake_client.steps(resume=True) as stream:
        session = fake_client.create_session()
        check(lambda: stream.submit_prefill(session, 0, rows(3)).result(10))


@pytest.mark.parametrize("step", ["accept", "result"])
def test_no_error_of_the_client_s_own_leaves_a_step_waiting(fake_client, monkeypatch, step):
    def fail(*_):
        raise KeyError("a bug")

    monkeypatch.setattr(f"attnd._work.PrefillWork.{step}", fail)
    session = fake_client.create_session()
    with fake_client.steps(resume=True) as stream:
        with pytest.raises(KeyError):
            stream.submit_prefill(session, 0, rows(3)).result(10)
