"""Pipelined steps of the blocking client: one stream, a thread that reads the answers."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any, Callable, List, Optional, Sequence

import grpc
import numpy as np
from google.protobuf.duration_pb2 import Duration

from . import _calls, _channel
from ._step_book import StepBook, cancel_of, expect, request_of
from ._turns import AnswerThread, check_may_wait
from .errors import AttndError, Unavailable, from_rpc_error
from .types import SequenceStep

_END = None  # in the queue: no further requests


class StepFuture(Future):
    """The answer of a step, a PrefillResult or a DecodeResult.

    `cancel()` of a Future stops nothing once sent, so it always returns False here: use
    StepStream.cancel(future.step_id), upon which the future fails with attnd.Cancelled.
    """

    step_id = 0


class StepStream:
    """Steps pipelined on one connection; made by Client.steps().

    Steps of one session are executed in the order submitted, those of different sessions may
    overtake each other. Default positions count the steps submitted before, answered or not.
    The server does not read further while its `max_stream_steps` (64) are unanswered: keep fewer
    in flight, or a cancel waits too.
    """

    def __init__(self, method: Callable[..., Any], metadata: _channel.Metadata):
        self._book = StepBook()
        self._lock = threading.Lock()  # numbers, expectations and requests keep one order
        self._requests: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._failure: Optional[AttndError] = None
        self._responses = method(iter(self._requests.get, _END), metadata=metadata)
        self._reader = AnswerThread(target=self._read, name="attnd-steps", daemon=True)
        self._reader.start()

    def __enter__(self) -> "StepStream":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._responses.cancel()
        self.close()

    def close(self) -> None:
        """Sends no more, waits for the answers of what was sent, ends the stream."""
        if threading.current_thread() is self._reader:
            check_may_wait()
        with self._lock:
            self._failure = self._failure or Unavailable("the stream is closed")
            self._requests.put(_END)
        self._reader.join()

    def submit_prefill(
        self,
        session: Any,
        layer: int,
        hidden: np.ndarray,
        position: Optional[int] = None,
        *,
        rewind: bool = False,
        output_rows: str = "all",
        output_dtype: Any = None,
        wire_dtype: Any = None,
        expected_length: int = 0,
        timeout: Optional[float] = None,
    ) -> StepFuture:
        """Sends a prefill step; arguments as Session.prefill, `timeout` counts on the server."""
        step = SequenceStep(session, len(hidden), position)
        with self._lock:
            positions = self._positions(layer, [step])
            request = _calls.prefill_request(
                session.session_id,
                layer,
                positions[0],
                hidden,
                rewind=rewind,
                output_rows=output_rows,
                output_dtype=output_dtype,
                wire_dtype=wire_dtype,
                expected_length=expected_length,
            )
            allowed = _channel.step_timeout(timeout)
            return self._submit(layer, [step], positions, allowed, prefill=request)

    def submit_decode(
        self,
        layer: int,
        sequences: Sequence[_calls.SequenceLike],
        hidden: np.ndarray,
        *,
        output_dtype: Any = None,
        wire_dtype: Any = None,
        timeout: Optional[float] = None,
    ) -> StepFuture:
        """Sends a decode step; arguments as Client.decode, `timeout` counts on the server."""
        steps = _calls.as_steps(sequences)
        with self._lock:
            positions = self._positions(layer, steps)
            request = _calls.decode_request(
                layer, steps, positions, hidden, output_dtype=output_dtype, wire_dtype=wire_dtype
            )
            allowed = _channel.step_timeout(timeout)
            return self._submit(layer, steps, positions, allowed, decode=request)

    def cancel(self, step_id: int) -> None:
        """Asks the server to cancel a step, which then fails with attnd.Cancelled.

        Without effect on a step that has finished.
        """
        self._requests.put(cancel_of(step_id))

    def _send(
        self,
        work: Any,
        allowed: Optional[Duration],
        answered: Callable[[StepFuture], None],
    ) -> int:
        """Sends a step of ResumingStepStream, which knows its sessions; the step's id here."""
        steps = work.steps_by_id()
        positions = [step.position for step in steps]
        request = {work.kind: work.request}
        with self._lock:
            return self._submit(
                work.layer, steps, positions, allowed, answered, **request
            ).step_id

    def _end(self, cancel: bool) -> None:
        """Ends the stream, at once or with the answers of what was sent."""
        if cancel:
            self._responses.cancel()
        self.close()

    def _positions(self, layer: int, steps: Sequence[SequenceStep]) -> List[int]:
        return [
            step.session._position(layer, None) if step.position is None else step.position
            for step in steps
        ]

    def _submit(
        self,
        layer: int,
        steps: Sequence[SequenceStep],
        positions: Sequence[int],
        allowed: Optional[Duration],
        answered: Optional[Callable[[StepFuture], None]] = None,
        **request: Any,
    ) -> StepFuture:
        if self._failure is not None:
            raise self._failure
        if any(getattr(step.session, "replays", False) for step in steps):
            raise ValueError("a ReplayingSession is in the step: expected steps(resume=True)")
        future = StepFuture()
        future.set_running_or_notify_cancel()
        if answered is not None:
            future.add_done_callback(answered)  # before it can be done: the reader calls it
        [(kind, step)] = request.items()
        future.step_id = self._book.add(future, layer, steps, kind, step.hidden.shape[1])
        expect(steps, layer, positions)
        self._requests.put(request_of(future.step_id, timeout=allowed, **request))
        return future

    def _read(self) -> None:
        try:
            for response in self._responses:
                self._book.accept(response)
            ended: AttndError = Unavailable("the stream has ended")
        except grpc.RpcError as error:
            ended = from_rpc_error(error)
        with self._lock:
            self._failure = self._failure or ended  # so that no more steps come
        self._book.fail_all(ended)
        self._requests.put(_END)  # lets gRPC's sending thread go
