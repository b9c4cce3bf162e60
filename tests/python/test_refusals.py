"""What a real server refuses: the code, the reason, and that the next correct call works."""

import time

import numpy as np
import pytest

import attnd
from attnd._proto import attnd_pb2 as pb

from support.server_process import ServerProcess
from test_session import rows


@pytest.fixture
def client(connect):
    return connect("odd")


@pytest.fixture
def session(client):
    with client.create_session() as made:
        yield made


def refused(kind, reason, call, *arguments, **options):
    """Calls and returns the error, which must be of that kind and reason."""
    with pytest.raises(attnd.AttndError) as caught:
        call(*arguments, **options)
    error = caught.value
    assert (type(error), error.reason) == (kind, reason), str(error)
    if reason:
        assert error.message and "\n" not in error.message
    return error


def works(session, position, layer=0):
    """The next correct call, by its explicit position."""
    assert session.prefill(layer, rows(2), position=position).length == position + 2


def raw_prefill(client, session, tensor, layer=0):
    request = pb.PrefillRequest(session_id=session.session_id, layer=layer, hidden=tensor)
    return client._call(client._stubs.attention.Prefill, request, None)


def test_wrong_position(session):
    session.prefill(0, rows(3))
    for position in (0, 2, 4, 500, -1):
        with pytest.raises(attnd.AttndError) as caught:
            session.prefill(0, rows(1), position=position)
        if position >= 0:
            assert isinstance(caught.value, attnd.FailedPrecondition)
            assert caught.value.reason == "POSITION_MISMATCH" and "3" in caught.value.message
    error = session.prefill, 0, rows(1)
    refused(attnd.FailedPrecondition, "POSITION_MISMATCH", *error, position=4, rewind=True)
    works(session, 3)


def test_compressed_messages_are_refused_unread(client, session):
    import grpc

    request = pb.PrefillRequest(session_id=session.session_id, hidden=attnd.tensors.to_tensor(rows(2), "f32"))
    with pytest.raises(grpc.RpcError) as caught:
        client._stubs.attention.Prefill(request, compression=grpc.Compression.Gzip)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    works(session, 0)


def test_a_guard_stops_a_late_repeat(session):
    session.prefill(0, rows(6))
    call = session.prefill, 0, rows(2)
    options = dict(position=2, rewind=True, expected_length=4)
    refused(attnd.FailedPrecondition, "POSITION_MISMATCH", *call, **options)
    works(session, 6)
    assert session.prefill(0, rows(2), position=2, rewind=True, expected_length=8).length == 4


def test_unknown_closed_and_expired_sessions(client):
    refused(attnd.NotFound, "SESSION_UNKNOWN", client.get_session, "nobody")
    refused(attnd.NotFound, "SESSION_UNKNOWN", client.close_session, "nobody")
    refused(attnd.NotFound, "SESSION_UNKNOWN", client.rewind_session, "nobody", 0)
    session = client.create_session()
    session.close()
    refused(attnd.NotFound, "SESSION_CLOSED", session.prefill, 0, rows(1))
    refused(attnd.NotFound, "SESSION_CLOSED", session.close)
    short = client.create_session(idle_ttl=0.2)
    time.sleep(0.6)
    refused(attnd.NotFound, "SESSION_EXPIRED", short.decode, 0, rows(1), position=0)


def test_session_ids(client):
    with client.create_session(session_id="taken.by-me_1"):
        error = refused(
            attnd.AlreadyExists, "SESSION_EXISTS", client.create_session, session_id="taken.by-me_1"
        )
        assert "taken.by-me_1" in error.message
    for wrong in ("a b", "a/b", "x" * 129, "ü"):
        refused(
            attnd.InvalidArgument, "BAD_SESSION_ID", client.create_session, session_id=wrong
        )
    made = {client.create_session().session_id for _ in range(20)}
    assert len(made) == 20 and all(len(name) >= 16 for name in made)
    for name in made:
        client.close_session(name)


@pytest.mark.parametrize(
    "tensor",
    [
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[1, 99], data=bytes(396)),
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[100], data=bytes(400)),
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[1, 1, 100], data=bytes(400)),
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[0, 100]),
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[-1, 100], data=bytes(400)),
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[1 << 62, 100], data=bytes(400)),
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[1, 100], data=bytes(399)),
        pb.Tensor(dtype=pb.DTYPE_F32, shape=[1, 100], data=bytes(404)),
        pb.Tensor(dtype=pb.DTYPE_F16, shape=[1, 100], data=bytes(400)),
        pb.Tensor(dtype=pb.DTYPE_INT8, shape=[1, 100], data=bytes(100)),
        pb.Tensor(shape=[1, 100], data=bytes(400)),
        pb.Tensor(dtype=77, shape=[1, 100], data=bytes(400)),
        None,
    ],
)
def test_wrong_shape_dtype_or_byte_count(client, session, tensor):
    refused(attnd.InvalidArgument, "BAD_TENSOR", raw_prefill, client, session, tensor)
    works(session, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(client, session, value):
    x = rows(4)
    x[2, 17] = value
    refused(attnd.InvalidArgument, "NOT_FINITE", session.prefill, 0, x)
    assert session.lengths[0] == 0
    refused(attnd.InvalidArgument, "NOT_FINITE", session.decode, 1, x)
    works(session, 0)


def test_layers_that_are_not_there(client, session):
    for layer in (4, 1 << 31, (1 << 32) - 1):
        refused(attnd.InvalidArgument, "BAD_LAYER", session.prefill, layer, rows(1))
        refused(attnd.InvalidArgument, "BAD_LAYER", client.decode, layer, [session], rows(1))
    works(session, 0)


def test_batches_that_do_not_add_up(client, session):
    decode = client.decode
    for steps, count in [([session, session], 2), ([], 1), ([(session, 2)], 1), ([session], 3)]:
        refused(attnd.InvalidArgument, "BAD_BATCH", decode, 0, steps, rows(count))
    huge = [(session, (1 << 32) - 1, 0), ("other", 2, 0)]
    refused(attnd.InvalidArgument, "BAD_BATCH", decode, 0, huge, rows(1))
    works(session, 0)


def test_decode_of_a_sequence_that_fails_alone(client, session):
    with client.create_session() as other, client.create_session(prefix_length=4) as waiting:
        steps = [session, (other, 2, 3), ("nobody", 1, 0), waiting]
        x = rows(5)
        answer = client.decode(0, steps, x)
        reasons = [one.error.reason if one.error else "" for one in answer.results]
        assert reasons == ["", "POSITION_MISMATCH", "SESSION_UNKNOWN", "PREFIX_INCOMPLETE"]
        assert answer.output[0].any() and not answer.output[1:].any()
        assert [one.length for one in answer.results] == [1, 0, 0, 0]
        x[1] = np.nan
        answer = client.decode(0, [session, (other, 1)], x[:2])
        assert answer.results[0].ok and answer.results[1].error.reason == "NOT_FINITE"
        works(other, 0)


def test_when_all_fail_alike_the_call_fails(client):
    refused(
        attnd.NotFound, "SESSION_UNKNOWN", client.decode, 0, [("a", 1, 0), ("b", 1, 0)], rows(2)
    )


def test_prefixes(client):
    with client.create_session(prefix_length=8) as session:
        session.prefill(0, rows(5))
        refused(attnd.FailedPrecondition, "PREFIX_INCOMPLETE", session.decode, 0, rows(1))
        session.prefill(0, rows(2), position=3, rewind=True)  # unanswered: cut anywhere
        answered = session.prefill(0, rows(5))
        assert (answered.output_position, len(answered.output), answered.length) == (0, 10, 10)
        cut = dict(position=3, rewind=True)
        refused(attnd.FailedPrecondition, "PREFIX_ANSWERED", session.prefill, 0, rows(1), **cut)
        refused(attnd.FailedPrecondition, "PREFIX_ANSWERED", session.rewind, 3)
        assert session.info().layer_lengths[0] == 10
        works(session, 10)
        session.rewind(0)
        works(session, 0)


def test_rewinding_too_far(session):
    x = rows(300)
    session.prefill(1, x)
    session.prefill(0, x)
    session.prefill(0, rows(1))
    cut = dict(position=150, rewind=True)
    refused(attnd.FailedPrecondition, "REWIND_TOO_FAR", session.prefill, 0, rows(1), **cut)
    error = refused(attnd.FailedPrecondition, "REWIND_TOO_FAR", session.rewind, 150)
    assert "0" in error.message
    assert session.info().layer_lengths[:2] == (301, 300)  # all layers, or none
    assert session.rewind(301 - 64).layer_lengths[:2] == (237, 237)  # max_rewind is sure
    works(session, 237)
    session.prefill(1, rows(1), position=5, rewind=True)  # a global layer can be cut anywhere


def test_the_ends_of_a_session(client, session):
    refused(attnd.OutOfRange, "PAST_MAX_SEQ_LEN", session.prefill, 0, rows(513))
    session.prefill(0, rows(512), output_rows="none")
    refused(attnd.OutOfRange, "PAST_MAX_SEQ_LEN", session.decode, 0, rows(1))
    with client.create_session(max_tokens=10) as small:
        refused(attnd.OutOfRange, "PAST_MAX_TOKENS", small.prefill, 0, rows(11))
        works(small, 0)
        small.prefill(0, rows(8))
        refused(attnd.OutOfRange, "PAST_MAX_TOKENS", small.decode, 0, rows(1))


def test_sessions_with_impossible_arguments(client):
    for wrong in [dict(prefix_length=-1), dict(max_tokens=-1), dict(prefix_length=513)]:
        with pytest.raises((attnd.InvalidArgument, attnd.OutOfRange)) as error:
            client.create_session(**wrong)
        assert error.value.reason


def test_a_message_over_the_limit(servers):
    tensor = pb.Tensor(dtype=pb.DTYPE_F32, shape=[300 << 18, 1], data=bytes(300 << 20))
    options = [("grpc.max_send_message_length", -1)]
    with attnd.Client(servers("odd").address, options=options) as client:
        with client.create_session() as session:
            error = refused(
                attnd.ResourceExhausted, "", raw_prefill, client, session, tensor
            )
            assert "larger than max" in error.message
            works(session, 0)


def test_a_full_cache_says_so_and_lets_the_next_one_in():
    server = ServerProcess.of_golden("odd", "--kv_cache_bytes", str(16 << 20))
    try:
        with attnd.Client(server.address) as client:
            held = []
            with pytest.raises(attnd.ResourceExhausted) as error:
                for _ in range(2000):
                    held.append(client.create_session(max_tokens=512))
            assert error.value.reason == "CACHE_FULL" and len(held) > 3
            held.pop().close()
            works(client.create_session(max_tokens=512), 0)
    finally:
        server.stop()


def test_listing_pages_and_stats(client):
    before = client.stats().sessions
    names = {client.create_session(session_id=f"listed-{i}").session_id for i in range(7)}
    for page_size in (0, 1, 3, 100):
        listed = [info.session_id for info in client.list_sessions(page_size=page_size)]
        assert len(listed) == len(set(listed)) and names <= set(listed)
    stats = client.stats()
    assert stats.sessions == before + 7 and stats.server_id and not stats.draining
    for name in names:
        client.close_session(name)
    assert client.stats().sessions == before
    assert client.health() == client.health("attnd.v1.AttentionService") == "SERVING"
