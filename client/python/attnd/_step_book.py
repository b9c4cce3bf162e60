"""The unanswered steps of a stream: numbers them, gathers their parts, completes their futures."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from . import _calls
from ._proto import attnd_pb2 as pb
from .errors import AttndError, from_status
from .types import SequenceStep


class _Pending:
    def __init__(
        self, future: Any, layer: int, steps: Sequence[SequenceStep], kind: str, width: int
    ):
        self.future = future
        self.layer = layer
        self.steps = steps
        self.kind = kind
        self.width = width
        self.parts: List[Any] = []


class StepBook:
    """Works with concurrent.futures and asyncio futures alike; the owner serialises `add`."""

    def __init__(self) -> None:
        self._pending: Dict[int, _Pending] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(
        self, future: Any, layer: int, steps: Sequence[SequenceStep], kind: str, width: int
    ) -> int:
        """The id of a step, a "prefill" or a "decode" of rows of d_model `width`.

        It is 1, 2, 3, …; 0 is left for cancels, which have no answer of their own.
        """
        self._last_id += 1
        self._pending[self._last_id] = _Pending(future, layer, steps, kind, width)
        return self._last_id

    def accept(self, response: pb.StepResponse) -> None:
        """Takes one response; an id that nobody waits for is ignored."""
        pending = self._pending.get(response.step_id)
        if pending is None:
            return
        error = from_status(response.status)
        kind = response.WhichOneof("result")
        if error is None and kind not in (None, pending.kind):
            error = _calls.bad_answer(f"a {pending.kind} was answered with the result of a {kind}")
        if error is None and kind is not None:
            pending.parts.append(getattr(response, kind))
        if response.more and error is None:
            return
        del self._pending[response.step_id]
        if error is not None:
            self._fail(pending, error)
            return
        try:
            result = self._result(pending)
        except Exception as malformed:  # the answer itself is wrong: tell the one who waits
            self._fail(pending, malformed)
            return
        if not pending.future.done():
            pending.future.set_result(result)

    def fail_all(self, error: AttndError) -> None:
        """Fails every unanswered step: the stream has ended."""
        while self._pending:
            self._fail(self._pending.popitem()[1], error)

    @staticmethod
    def _result(pending: _Pending) -> Any:
        if not pending.parts:
            raise _calls.bad_answer("a step was answered with neither an error nor a result")
        if pending.kind == "prefill":
            return _calls.prefill_result(pending.parts, pending.width)
        result = _calls.decode_result(pending.parts, pending.steps, pending.width)
        for step, one in zip(pending.steps, result.results):
            if not one.ok and not isinstance(step.session, str):
                step.session._set(pending.layer, None)
        return result

    @staticmethod
    def _fail(pending: _Pending, error: Exception) -> None:
        # Steps behind this one may be under way: the layer's length is not known here.
        for step in pending.steps:
            if not isinstance(step.session, str):
                step.session._set(pending.layer, None)
        if not pending.future.done():
            pending.future.set_exception(error)


def expect(steps: Sequence[SequenceStep], layer: int, positions: Sequence[int]) -> None:
    """Sets the sessions' lengths to what they are once these steps are done."""
    for step, position in zip(steps, positions):
        if not isinstance(step.session, str):
            step.session._set(layer, position + step.num_tokens)


def request_of(
    step_id: int,
    prefill: Optional[pb.PrefillRequest] = None,
    decode: Optional[pb.DecodeRequest] = None,
    timeout: Any = None,
) -> pb.StepRequest:
    return pb.StepRequest(step_id=step_id, prefill=prefill, decode=decode, timeout=timeout)


def cancel_of(step_id: int) -> pb.StepRequest:
    return pb.StepRequest(cancel_step_id=step_id)
