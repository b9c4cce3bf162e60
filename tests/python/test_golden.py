"""The golden cases through gRPC, rows split at random into prefills and decodes.

Tolerances: 1e-5 with float32 on the wire, 1e-2 with float16 and bfloat16.
"""

import numpy as np
import pytest

from support import golden


def split(rng, style, rows, prefix):
    """[(start, end, is_decode)] over the rows; decodes only where the prefix is complete."""
    calls, start = [], 0
    while start < rows:
        if style == "whole":
            size, decode = rows, False
        elif style == "chunks":
            size, decode = int(rng.integers(1, max(2, rows // 2) + 1)), False
        elif style == "small":
            size, decode = int(rng.integers(1, 24)), bool(rng.integers(2))
        else:  # a prompt, then one token at a time, but not for hundreds of rows
            tail = max(prefix, rows - 40, rows // 2)
            size, decode = (tail - start, False) if start < tail else (1, True)
        end = min(rows, start + max(1, size))
        calls.append((start, end, decode and start >= prefix))
        start = end
    return calls


def answer(session, case, calls, **options):
    """The outputs of all rows, each answered exactly once."""
    output = np.full(case.x.shape, np.nan, np.float32)
    for start, end, decode in calls:
        rows = case.x[start:end]
        if decode:
            got, at = session.decode(case.layer, rows, **options).output, start
        else:
            result = session.prefill(case.layer, rows, **options)
            got, at = result.output, result.output_position
            assert result.length == end
        assert np.isnan(output[at : at + len(got)]).all(), f"{case.name}: rows answered twice"
        output[at : at + len(got)] = got.astype(np.float32)
    return output


@pytest.mark.parametrize("style", ["whole", "chunks", "small", "tokens"])
@pytest.mark.parametrize("model", golden.MODELS)
def test_any_split_gives_one_full_pass(connect, model, style):
    client = connect(model)
    rng = np.random.default_rng([golden.MODELS.index(model), len(style)])
    worst = 0.0
    for case in golden.cases(model):
        calls = split(rng, style, len(case.x), case.prefix)
        with client.create_session(prefix_length=case.prefix) as session:
            output = answer(session, case, calls)
        golden.check(output, case.y, 1e-5, f"{model} {case.name} as {calls}")
        worst = max(worst, golden.error_of(output, case.y)[0])
    print(f"{model} {style}: worst error {worst:.1e}")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("model", golden.MODELS)
def test_half_precision_on_the_wire(connect, model, dtype):
    client = connect(model)
    rng = np.random.default_rng(len(dtype))
    for case in golden.cases(model):
        calls = split(rng, "chunks", len(case.x), case.prefix)
        with client.create_session(prefix_length=case.prefix) as session:
            output = answer(session, case, calls, wire_dtype=dtype)
        golden.check(output, case.y, 1e-2, f"{model} {case.name} in {dtype}")


@pytest.mark.parametrize("model", golden.MODELS)
def test_all_cases_of_a_layer_in_ragged_decodes(connect, model):
    """The last rows of every case go through decodes that carry all the cases together."""
    client = connect(model)
    rng = np.random.default_rng(7)
    for layer in sorted({case.layer for case in golden.cases(model)}):
        cases = [c for c in golden.cases(model) if c.layer == layer and len(c.x) > c.prefix]
        sessions = [client.create_session(prefix_length=case.prefix) for case in cases]
        done = [max(case.prefix, len(case.x) - 12) for case in cases]
        outputs = [np.full(case.x.shape, np.nan, np.float32) for case in cases]
        for case, session, output, rows in zip(cases, sessions, outputs, done):
            if rows:
                output[:rows] = session.prefill(layer, case.x[:rows]).output
        while any(rows < len(case.x) for rows, case in zip(done, cases)):
            live = [i for i, case in enumerate(cases) if done[i] < len(case.x)]
            sizes = [min(int(rng.integers(1, 5)), len(cases[i].x) - done[i]) for i in live]
            hidden = [cases[i].x[done[i] : done[i] + size] for i, size in zip(live, sizes)]
            steps = [(sessions[i], size) for i, size in zip(live, sizes)]
            result = client.decode(layer, steps, np.concatenate(hidden)).raise_for_error()
            for i, size, one in zip(live, sizes, result.results):
                outputs[i][done[i] : done[i] + size] = one.output
                done[i] += size
        for case, session, output in zip(cases, sessions, outputs):
            golden.check(output, case.y, 1e-5, f"{model} {case.name}")
            session.close()


def test_the_model_is_what_its_file_says(connect):
    model = connect("odd").model()
    assert (model.d_model, model.num_heads_q, model.num_heads_kv, model.d_head) == (100, 6, 2, 20)
    assert (model.local_window, model.max_seq_len) == (7, 512)
    assert model.layers == ("local_gqa", "global_mla", "local_gqa", "global_mla")
    assert set(model.hidden_dtypes) == {"f32", "bf16", "f16"}
