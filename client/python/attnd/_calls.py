"""Requests from arguments and results from responses; shared by the sync and asyncio clients."""

from __future__ import annotations

import dataclasses
from typing import Any, List, Sequence, Tuple, Union

import numpy as np

from . import tensors
from ._proto import attnd_pb2 as pb
from .errors import AttndError, Internal, NotFound, from_status
from .types import DecodeResult, PrefillResult, SequenceResult, SequenceStep, Timing

_OUTPUT_ROWS = {
    "all": pb.OUTPUT_ROWS_ALL,
    "last": pb.OUTPUT_ROWS_LAST,
    "none": pb.OUTPUT_ROWS_NONE,
}

# What a decode takes for one sequence: a step, a session, or (session, num_tokens[, position]).
SequenceLike = Union[SequenceStep, Any, Tuple[Any, int], Tuple[Any, int, int]]


def check_layer(layer: int) -> int:
    if layer < 0:
        raise ValueError(f"layer is {layer}; expected 0 or more")
    return layer


def prefill_request(
    session_id: str,
    layer: int,
    position: int,
    hidden: np.ndarray,
    *,
    rewind: bool,
    output_rows: str,
    output_dtype: Any,
    wire_dtype: Any,
    expected_length: int,
) -> pb.PrefillRequest:
    if output_rows not in _OUTPUT_ROWS:
        raise ValueError(f"output_rows is {output_rows!r}; expected {', '.join(_OUTPUT_ROWS)}")
    return pb.PrefillRequest(
        session_id=session_id,
        layer=check_layer(layer),
        position=position,
        rewind=rewind,
        output_dtype=tensors.wire_dtype(output_dtype),
        output_rows=_OUTPUT_ROWS[output_rows],
        expected_length=expected_length,
        hidden=tensors.to_tensor(hidden, wire_dtype),
    )


def bad_answer(message: str) -> Internal:
    """Of an answer that no attnd gives; the reason tells it from a broken stream."""
    return Internal(message, reason="BAD_ANSWER")


def _output(tensor: pb.Tensor, width: int) -> np.ndarray:
    """The rows of an answer, [m, width]."""
    shape = list(tensor.shape)
    if len(shape) != 2 or shape[0] < 0 or shape[1] != width:
        raise bad_answer(f"the server sent an output of shape {shape}; expected [rows, {width}]")
    try:
        return tensors.from_tensor(tensor)
    except ValueError as error:  # its dtype, or its bytes are not as many
        raise bad_answer(f"the server sent an output that is no tensor: {error}") from None


def _joined(parts: Sequence[Any], width: int) -> np.ndarray:
    """The rows of all parts; of one part, or of one that has rows, without a copy."""
    arrays = [_output(part.output, width) for part in parts]
    filled = [array for array in arrays if len(array)] or arrays[:1]
    if len(filled) == 1:
        return filled[0]
    whole = np.concatenate(filled)
    whole.flags.writeable = False
    return whole


def prefill_result(parts: Sequence[pb.PrefillResponse], width: int) -> PrefillResult:
    """The result of one response, or of the consecutive parts of one step, of d_model `width`."""
    output = _joined(parts, width)
    first, length = parts[0].output_position, parts[-1].length
    if len(output) and not (0 <= first and first + len(output) == length):
        rows = f"{len(output)} rows from {first} on"
        raise bad_answer(f"the server sent {rows} of a layer of {length}; expected its last ones")
    return PrefillResult(
        output=output,
        output_position=first,
        length=length,
        timing=Timing.from_proto(parts[-1].timing),
    )


def as_steps(sequences: Sequence[SequenceLike]) -> List[SequenceStep]:
    """Every sequence as a SequenceStep."""
    steps = []
    for sequence in sequences:
        if isinstance(sequence, SequenceStep):
            steps.append(sequence)
        elif isinstance(sequence, tuple):
            steps.append(SequenceStep(*sequence))
        else:
            steps.append(SequenceStep(sequence))
    for step in steps:
        if step.num_tokens < 1:
            raise ValueError(f"num_tokens is {step.num_tokens}; expected 1 or more")
        if isinstance(step.session, str) and step.position is None:
            raise ValueError(f"a step of session id {step.session!r} needs a position")
    return steps


def check_retries(steps: Sequence[SequenceStep], retries: int) -> None:
    """A guard of the caller's own would refuse the repeat of a rewind that took effect."""
    if retries and any(step.rewind and step.expected_length for step in steps):
        raise ValueError("a sequence has rewind and expected_length: expected retries=0")


def decode_request(
    layer: int,
    steps: Sequence[SequenceStep],
    positions: Sequence[int],
    hidden: np.ndarray,
    *,
    output_dtype: Any,
    wire_dtype: Any,
) -> pb.DecodeRequest:
    sequences = [
        pb.SequenceStep(
            session_id=step.session if isinstance(step.session, str) else step.session.session_id,
            position=position,
            num_tokens=step.num_tokens,
            rewind=step.rewind,
            expected_length=step.expected_length,
        )
        for step, position in zip(steps, positions)
    ]
    return pb.DecodeRequest(
        layer=check_layer(layer),
        sequences=sequences,
        output_dtype=tensors.wire_dtype(output_dtype),
        hidden=tensors.to_tensor(hidden, wire_dtype),
    )


def decode_result(
    parts: Sequence[pb.DecodeResponse], steps: Sequence[SequenceStep], width: int
) -> DecodeResult:
    """The result of one response, or of the consecutive parts of one step, of d_model `width`."""
    output = _joined(parts, width)
    rows_sent = sum(step.num_tokens for step in steps)
    if len(output) != rows_sent:
        raise bad_answer(f"the server sent {len(output)} rows; expected {rows_sent}")
    answers = [result for part in parts for result in part.results]
    if len(answers) != len(steps):
        raise bad_answer(f"the server sent {len(answers)} results; expected {len(steps)}")
    results, row = [], 0
    for step, result in zip(steps, answers):
        rows = output[row : row + step.num_tokens]
        row += step.num_tokens
        results.append(SequenceResult(rows, result.length, from_status(result.status)))
    return DecodeResult(results, output, Timing.from_proto(parts[-1].timing))


def rows_of(steps: Sequence[SequenceStep], hidden: np.ndarray, indices: Sequence[int]) -> np.ndarray:
    """The rows of some of the steps, in the order of `indices`."""
    ends = np.cumsum([step.num_tokens for step in steps])
    return np.concatenate([hidden[ends[i] - steps[i].num_tokens : ends[i]] for i in indices])


def merged(
    result: DecodeResult, indices: Sequence[int], later: Union[DecodeResult, AttndError]
) -> DecodeResult:
    """The result with that of the sequences `indices`, which were sent again, in its places."""
    results = list(result.results)
    for place, index in enumerate(indices):
        if isinstance(later, DecodeResult):
            results[index] = later.results[place]
        else:
            results[index] = dataclasses.replace(results[index], error=later)
    output = np.concatenate([one.output for one in results])
    output.flags.writeable = False
    timing = later.timing if isinstance(later, DecodeResult) else result.timing
    return DecodeResult(results, output, timing)


def note_lengths(layer: int, steps: Sequence[SequenceStep], result: DecodeResult) -> None:
    """Tells the sessions the lengths of a decode's answer."""
    for step, one in zip(steps, result.results):
        if isinstance(step.session, str):
            continue
        if one.ok or (one.error is not None and not isinstance(one.error, NotFound)):
            step.session._set(layer, one.length)


def note_failure(
    layer: int, steps: Sequence[SequenceStep], error: BaseException, repeated: bool
) -> None:
    """Tells the sessions that a whole decode failed."""
    for step in steps:
        if not isinstance(step.session, str):
            step.session._failed(layer, error, repeated)
