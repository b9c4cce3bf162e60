"""Pipelined steps of the asyncio client: one stream, a task that reads the answers."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Callable, Optional, Sequence

import grpc
import numpy as np
from google.protobuf.duration_pb2 import Duration

from .. import _calls, _channel
from .._step_book import StepBook, cancel_of, expect, request_of
from ..errors import AttndError, Unavailable, from_rpc_error
from ..types import SequenceStep
from .session import positions_of

_END = None  # in the queue: no further requests


class AsyncStepFuture(asyncio.Future):
    """The answer of a step, a PrefillResult or a DecodeResult.

    To stop the step itself use AsyncStepStream.cancel(future.step_id), upon which the future
    fails with attnd.Cancelled; `cancel()` only stops waiting for it.
    """

    step_id = 0


class AsyncStepStream:
    """As attnd.StepStream; made by AsyncClient.steps()."""

    def __init__(self, method: Callable[..., Any], metadata: _channel.Metadata):
        self._book = StepBook()
        self._lock = asyncio.Lock()  # numbers, expectations and requests keep one order
        self._requests: "asyncio.Queue[Any]" = asyncio.Queue()
        self._failure: Optional[AttndError] = None
        self._responses = method(self._outgoing(), metadata=metadata)
        self._reader = asyncio.ensure_future(self._read())

    async def __aenter__(self) -> "AsyncStepStream":
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._responses.cancel()
        await self.close()

    async def close(self) -> None:
        """Sends no more, waits for the answers of what was sent, ends the stream."""
        async with self._lock:
            self._failure = self._failure or Unavailable("the stream is closed")
            self._requests.put_nowait(_END)
        await self._reader

    async def submit_prefill(
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
    ) -> AsyncStepFuture:
        """Sends a prefill step; arguments as Session.prefill, `timeout` counts on the server."""
        step = SequenceStep(session, len(hidden), position)
        async with self._lock:
            positions = await positions_of(layer, [step])
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

    async def submit_decode(
        self,
        layer: int,
        sequences: Sequence[_calls.SequenceLike],
        hidden: np.ndarray,
        *,
        output_dtype: Any = None,
        wire_dtype: Any = None,
        timeout: Optional[float] = None,
    ) -> AsyncStepFuture:
        """Sends a decode step; arguments as Client.decode, `timeout` counts on the server."""
        steps = _calls.as_steps(sequences)
        async with self._lock:
            positions = await positions_of(layer, steps)
            request = _calls.decode_request(
                layer, steps, positions, hidden, output_dtype=output_dtype, wire_dtype=wire_dtype
            )
            allowed = _channel.step_timeout(timeout)
            return self._submit(layer, steps, positions, allowed, decode=request)

    def cancel(self, step_id: int) -> None:
        """Asks the server to cancel a step, which then fails with attnd.Cancelled."""
        self._requests.put_nowait(cancel_of(step_id))

    def _submit(
        self,
        layer: int,
        steps: Sequence[SequenceStep],
        positions: Sequence[int],
        allowed: Optional[Duration],
        **request: Any,
    ) -> AsyncStepFuture:
        if self._failure is not None:
            raise self._failure
        future = AsyncStepFuture()
        [(kind, step)] = request.items()
        future.step_id = self._book.add(future, layer, steps, kind, step.hidden.shape[1])
        expect(steps, layer, positions)
        self._requests.put_nowait(request_of(future.step_id, timeout=allowed, **request))
        return future

    async def _outgoing(self) -> AsyncIterator[Any]:
        while True:
            request = await self._requests.get()
            if request is _END:
                return
            yield request

    async def _read(self) -> None:
        ended: AttndError = Unavailable("the stream has ended")
        try:
            async for response in self._responses:
                self._book.accept(response)
        except grpc.RpcError as error:
            ended = from_rpc_error(error)
        except asyncio.CancelledError:  # what a locally cancelled call raises here
            if not self._responses.cancelled():
                raise
        finally:
            self._failure = self._failure or ended
            self._book.fail_all(ended)
            self._requests.put_nowait(_END)  # lets the sending task go
