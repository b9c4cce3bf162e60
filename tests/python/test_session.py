"""Sessions and calls of the blocking client, against the fake server."""

import numpy as np
import pytest

import attnd
from attnd._proto import attnd_pb2 as pb


def rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 100)).astype(np.float32)


def test_model_tells_layers_and_dtypes(fake_client):
    model = fake_client.model()
    assert model.layers == ("local_gqa", "global_mla", "local_gqa", "global_mla")
    assert (model.num_layers, model.d_model, model.local_window) == (4, 100, 7)
    assert (model.weight_dtype, model.hidden_dtypes) == ("f32", ("f32", "bf16", "f16"))


def test_positions_follow_the_answers(fake, fake_client):
    session = fake_client.create_session()
    session.prefill(0, rows(5))
    session.prefill(0, rows(3))
    session.decode(0, rows(1))
    session.prefill(1, rows(2))
    assert session.lengths == (9, 2, 0, 0)
    assert session.info().layer_lengths == (9, 2, 0, 0)
    assert [fake.requests[0].position, fake.requests[1].position] == [0, 5]
    assert fake.requests[2].sequences[0].position == 8


def test_a_rewind_tells_the_new_lengths(fake_client):
    session = fake_client.create_session()
    for layer in range(4):
        session.prefill(layer, rows(6 - layer))
    assert session.rewind(4).layer_lengths == (4, 4, 4, 3)
    assert session.lengths == (4, 4, 4, 3)
    session.prefill(0, rows(2), position=1, rewind=True)
    assert session.lengths[0] == 3


def test_get_session_knows_the_lengths(fake_client):
    made = fake_client.create_session(session_id="mine")
    made.prefill(2, rows(3))
    again = fake_client.get_session("mine")
    assert again.lengths == (0, 0, 3, 0)
    again.prefill(2, rows(1))
    assert again.lengths[2] == 4


def test_create_sends_what_was_asked(fake):
    with attnd.Client(fake.address, affinity_key="worker-7", metadata=[("x-more", "1")]) as client:
        session = client.create_session(3, 40, 1.5, "named")
        request = fake.engine.sessions["named"].request
        assert (request.prefix_length, request.max_tokens) == (3, 40)
        assert (request.idle_ttl.ToMilliseconds(), request.affinity_key) == (1500, "worker-7")
        assert (session.session_id, session.prefix_length) == ("named", 3)
        assert session.info().affinity_key == "worker-7"
        session.prefill(0, rows(4))
    for sent in fake.metadata:
        assert (sent["attnd-session-key"], sent["x-more"]) == ("worker-7", "1")


def test_without_a_ttl_the_field_stays_unset(fake, fake_client):
    session = fake_client.create_session()
    assert not fake.engine.sessions[session.session_id].request.HasField("idle_ttl")


def test_leaving_a_with_block_closes_the_session(fake, fake_client):
    with fake_client.create_session(session_id="a"):
        assert "a" in fake.engine.sessions
    assert "a" not in fake.engine.sessions
    with pytest.raises(attnd.NotFound) as error:
        fake_client.get_session("a")
    assert error.value.reason == "SESSION_CLOSED"


def test_closing_inside_the_block_is_enough(fake, fake_client):
    with fake_client.create_session(session_id="a") as session:
        session.close()
    assert not fake.engine.sessions


def test_an_error_in_a_with_block_is_not_hidden_by_its_close(fake_client):
    with pytest.raises(KeyError):
        with fake_client.create_session() as session:
            fake_client.close_session(session.session_id)
            raise KeyError("the caller's own")


def test_listing_fetches_all_pages(fake_client):
    names = sorted(f"s{i}" for i in range(7))
    for name in names:
        fake_client.create_session(session_id=name)
    assert [info.session_id for info in fake_client.list_sessions(page_size=3)] == names
    assert len(list(fake_client.list_sessions())) == 7


def test_output_rows_and_dtypes(fake, fake_client):
    session, x = fake_client.create_session(), rows(6)
    whole = session.prefill(0, x)
    last = session.prefill(0, x, position=0, rewind=True, output_rows="last", output_dtype="f16")
    assert (last.output.dtype, last.output.shape, last.output_position) == (np.float16, (1, 100), 5)
    np.testing.assert_allclose(last.output, whole.output[5:], atol=1e-2)
    none = session.prefill(0, x, position=0, rewind=True, output_rows="none")
    assert (none.output.shape, none.length) == ((0, 100), 6)
    half = session.prefill(0, x, position=0, rewind=True, wire_dtype="f16", output_dtype="f32")
    assert fake.requests[-1].hidden.dtype == pb.DTYPE_F16 and half.output.dtype == np.float32
    with pytest.raises(ValueError, match="output_rows is 'first'"):
        session.prefill(0, x, output_rows="first")


def test_a_prefix_is_answered_with_its_last_row(fake_client):
    session, x = fake_client.create_session(prefix_length=6), rows(8)
    held = session.prefill(0, x[:4])
    assert (held.output.shape, held.output_position, held.length) == ((0, 100), 0, 4)
    rest = session.prefill(0, x[4:])
    assert (rest.output.shape, rest.output_position, rest.length) == ((8, 100), 0, 8)


def test_a_ragged_decode_splits_its_rows(fake, fake_client):
    sessions = [fake_client.create_session() for _ in range(4)]
    for session in sessions:
        session.prefill(0, rows(2))
    a, b, c, d = sessions
    steps = [a, (b, 2), (c, 3, 2), attnd.SequenceStep(d, 1, position=1, rewind=True)]
    answer = fake_client.decode(0, steps, rows(7))
    assert [result.output.shape[0] for result in answer.results] == [1, 2, 3, 1]
    assert [result.length for result in answer.results] == [3, 4, 5, 2]
    assert [session.lengths[0] for session in sessions] == [3, 4, 5, 2]
    assert answer.output.shape == (7, 100) and answer.raise_for_error() is answer


def test_a_sequence_fails_alone(fake_client):
    a, b = fake_client.create_session(), fake_client.create_session()
    answer = fake_client.decode(0, [a, (b, 2, 5), ("nobody", 1, 0)], rows(4))
    assert [result.ok for result in answer.results] == [True, False, False]
    assert isinstance(answer.results[1].error, attnd.FailedPrecondition)
    assert answer.results[1].error.reason == "POSITION_MISMATCH"
    assert answer.results[2].error.reason == "SESSION_UNKNOWN"
    assert not answer.results[1].output.any() and answer.results[0].output.any()
    assert (a.lengths[0], b.lengths[0]) == (1, 0)
    with pytest.raises(attnd.FailedPrecondition):
        answer.raise_for_error()


def test_arguments_are_refused_before_sending(fake, fake_client):
    session = fake_client.create_session()
    with pytest.raises(ValueError, match="layer is -1"):
        session.prefill(-1, rows(1))
    with pytest.raises(ValueError, match="num_tokens is 0"):
        fake_client.decode(0, [(session, 0)], rows(1))
    with pytest.raises(ValueError, match="needs a position"):
        fake_client.decode(0, ["some-id"], rows(1))
    with pytest.raises(ValueError, match="retries is -1"):
        session.prefill(0, rows(1), retries=-1)
    assert fake.requests == []


def test_a_refused_step_leaves_the_length_known(fake_client):
    session = fake_client.create_session()
    session.prefill(0, rows(2))
    with pytest.raises(attnd.FailedPrecondition):
        session.prefill(0, rows(1), position=9)
    assert session.lengths[0] == 2


def test_health_stats_and_drain(fake_client):
    assert fake_client.health() == fake_client.health("attnd.v1.AttentionService") == "SERVING"
    with pytest.raises(attnd.NotFound):
        fake_client.health("no.such.Service")
    fake_client.create_session()
    assert (fake_client.stats().sessions, fake_client.stats().draining) == (1, False)
    assert fake_client.drain() == 1
    assert fake_client.stats().draining and fake_client.health() == "NOT_SERVING"


def test_a_server_that_is_not_there_is_unavailable():
    with attnd.Client("127.0.0.1:1", connect_timeout=0.3) as client:
        with pytest.raises(attnd.Unavailable, match="127.0.0.1:1 could not be reached"):
            client.model()
