"""The asyncio client."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Dict, Optional, Sequence

import grpc
import numpy as np

from .. import _calls, _channel, _moves, _retry
from .._proto import attnd_pb2 as pb
from ..errors import AttndError, Unavailable, from_rpc_error
from ..types import DecodeResult, ModelInfo, SequenceStep, SessionInfo, Stats
from .session import AsyncSession, positions_of
from .steps import AsyncStepStream
from .transfers import AsyncTransfers


class AsyncClient(AsyncTransfers):
    """As attnd.Client, for one event loop. Cancelling a task cancels its call on the server."""

    def __init__(
        self,
        target: str,
        *,
        timeout: Optional[float] = 120.0,
        connect_timeout: float = 10.0,
        affinity_key: Optional[str] = None,
        credentials: Optional[grpc.ChannelCredentials] = None,
        metadata: Optional[_channel.Metadata] = None,
        max_message_bytes: int = _channel.MAX_MESSAGE_BYTES,
        move_wait: float = 30.0,
        arrival_wait: float = 30.0,
        options: Optional[_channel.Options] = None,
    ):
        self._settings = _channel.channel_options(max_message_bytes, options)
        self._credentials = credentials
        self._channel: Any = None
        self._opened: Optional[_channel.Stubs] = None
        self._target = target
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._affinity_key = _channel.chosen_key(affinity_key)
        self._metadata = _channel.call_metadata(self._affinity_key, metadata)
        self._moves = _moves.MoveWatch(move_wait, arrival_wait)
        self._connected = False

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Sessions stay on the server until closed or expired."""
        if self._channel is not None:
            await self._channel.close()

    @property
    def _stubs(self) -> _channel.Stubs:
        """Made at the first call: a channel belongs to the event loop that runs then."""
        if self._opened is None:
            self._channel = self._open_channel()
            self._opened = _channel.Stubs(self._channel)
        return self._opened

    def _open_channel(self, extra: _channel.Options = ()) -> grpc.aio.Channel:
        settings = [*self._settings, *extra]
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._target, settings)
        return grpc.aio.secure_channel(self._target, self._credentials, settings)

    @property
    def affinity_key(self) -> str:
        """What a balancer places this client's sessions by; "" for none."""
        return self._affinity_key

    async def _connect(self) -> None:
        """Waits for the first connection only: later outages fail calls at once."""
        if self._connected:
            return
        _ = self._stubs  # the channel, where this is the first call
        try:
            await asyncio.wait_for(self._channel.channel_ready(), self._connect_timeout)
        except asyncio.TimeoutError:
            waited = f"within {self._connect_timeout} s"
            raise Unavailable(f"{self._target} could not be reached {waited}") from None
        self._connected = True

    async def _call(self, method: Any, request: Any, timeout: Optional[float]) -> Any:
        await self._connect()
        waiting = self._moves.wait(_channel.deadline(timeout, self._timeout))
        while True:
            try:
                call = method(request, timeout=waiting.left(), metadata=self._metadata)
                answer = await call
                self._moves.note(await call.initial_metadata())
                return answer
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
                self._moves.note(error.initial_metadata())
                self._moves.note_failure(failure)
                pause = waiting.after(failure)
                if pause is None:
                    raise failure from error
            await asyncio.sleep(pause)

    async def _attempt(
        self, method: Any, request: Any, timeout: Optional[float], attempts: _retry.Attempts
    ) -> Any:
        while True:
            try:
                return await self._call(method, request, timeout)
            except AttndError as error:
                wait = attempts.after(error, _channel.deadline(timeout, self._timeout))
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    # ---------------------------------------------------------------- server

    async def model(self, *, timeout: Optional[float] = None) -> ModelInfo:
        """What the server serves: widths, layer kinds, dtypes, limits."""
        answer = await self._call(self._stubs.model.GetModel, pb.GetModelRequest(), timeout)
        return ModelInfo.from_proto(answer)

    async def stats(self, *, timeout: Optional[float] = None) -> Stats:
        """One consistent moment of the server's cache and queue."""
        answer = await self._call(self._stubs.admin.GetStats, pb.GetStatsRequest(), timeout)
        return Stats.from_proto(answer)

    async def drain(self, *, timeout: Optional[float] = None) -> int:
        """Makes the server not ready from now on; the number of sessions still on it."""
        return (await self._call(self._stubs.admin.Drain, pb.DrainRequest(), timeout)).sessions

    async def health(self, service: str = "", *, timeout: Optional[float] = None) -> str:
        """"SERVING" or "NOT_SERVING", by grpc.health.v1; NotFound for an unknown service."""
        return await self._call(self._stubs.health, service, timeout)

    # ---------------------------------------------------------------- sessions

    async def create_session(
        self,
        prefix_length: int = 0,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        session_id: Optional[str] = None,
        *,
        timeout: Optional[float] = None,
    ) -> AsyncSession:
        """A new session; arguments as Client.create_session."""
        request = pb.CreateSessionRequest(
            session_id=session_id or "",
            prefix_length=prefix_length,
            max_tokens=max_tokens,
            idle_ttl=_channel.duration(idle_ttl),
            affinity_key=self._affinity_key,
        )
        answer = await self._call(self._stubs.sessions.CreateSession, request, timeout)
        return AsyncSession(self, SessionInfo.from_proto(answer))

    async def get_session(
        self, session_id: str, *, timeout: Optional[float] = None
    ) -> AsyncSession:
        """The session of that id, with the lengths that its layers have now."""
        return AsyncSession(self, await self._info(session_id, timeout))

    async def list_sessions(
        self, page_size: int = 0, *, timeout: Optional[float] = None
    ) -> AsyncIterator[SessionInfo]:
        """Every session, fetched page by page; page_size 0 is the server's default."""
        request = pb.ListSessionsRequest(page_size=page_size)
        while True:
            page = await self._call(self._stubs.sessions.ListSessions, request, timeout)
            for session in page.sessions:
                yield SessionInfo.from_proto(session)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def rewind_session(
        self, session_id: str, position: int, *, timeout: Optional[float] = None
    ) -> SessionInfo:
        """Cuts every layer longer than `position` to it, or changes nothing and raises."""
        request = pb.RewindSessionRequest(session_id=session_id, position=position)
        answer = await self._call(self._stubs.sessions.RewindSession, request, timeout)
        return SessionInfo.from_proto(answer)

    async def close_session(self, session_id: str, *, timeout: Optional[float] = None) -> int:
        """Ends a session; the bytes that it freed."""
        request = pb.CloseSessionRequest(session_id=session_id)
        return (await self._call(self._stubs.sessions.CloseSession, request, timeout)).freed_bytes

    async def fork_session(
        self,
        session_id: str,
        position: int = 0,
        new_session_id: Optional[str] = None,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        *,
        timeout: Optional[float] = None,
    ) -> AsyncSession:
        """A copy of a session; as AsyncSession.fork."""
        request = pb.ForkSessionRequest(
            session_id=session_id,
            new_session_id=new_session_id or "",
            position=position,
            max_tokens=max_tokens,
            idle_ttl=_channel.duration(idle_ttl),
        )
        answer = await self._call(self._stubs.sessions.ForkSession, request, timeout)
        return AsyncSession(self, SessionInfo.from_proto(answer))

    async def _info(self, session_id: str, timeout: Optional[float]) -> SessionInfo:
        request = pb.GetSessionRequest(session_id=session_id)
        answer = await self._call(self._stubs.sessions.GetSession, request, timeout)
        return SessionInfo.from_proto(answer)

    # ---------------------------------------------------------------- attention

    async def decode(
        self,
        layer: int,
        sequences: Sequence[_calls.SequenceLike],
        hidden: np.ndarray,
        *,
        output_dtype: Any = None,
        wire_dtype: Any = None,
        timeout: Optional[float] = None,
        retries: int = 0,
    ) -> DecodeResult:
        """Appends tokens of many sessions to one layer; arguments as Client.decode."""
        steps = _calls.as_steps(sequences)
        _calls.check_retries(steps, retries)
        positions = await positions_of(layer, steps)
        dtypes = dict(output_dtype=output_dtype, wire_dtype=wire_dtype)
        waiting = self._moves.wait(_channel.deadline(timeout, self._timeout))
        result = await self._decode(layer, steps, positions, hidden, dtypes, timeout, retries)
        while True:
            moving, pause = waiting.sequences(result)
            if not moving:
                return result
            await asyncio.sleep(pause)
            some = [steps[i] for i in moving], [positions[i] for i in moving]
            rows = _calls.rows_of(steps, hidden, moving)
            try:
                later = await self._decode(layer, *some, rows, dtypes, waiting.left(), retries)
            except AttndError as error:
                return _calls.merged(result, moving, error)
            result = _calls.merged(result, moving, later)

    async def _decode(
        self,
        layer: int,
        steps: Sequence[SequenceStep],
        positions: Sequence[int],
        hidden: np.ndarray,
        dtypes: Dict[str, Any],
        timeout: Optional[float],
        retries: int,
    ) -> DecodeResult:
        """One call; and the sessions' lengths after it."""
        request = _calls.decode_request(layer, steps, positions, hidden, **dtypes)
        attempts = _retry.Attempts(request, retries)
        try:
            answer = await self._attempt(self._stubs.attention.Decode, request, timeout, attempts)
            result = _calls.decode_result([answer], steps, hidden.shape[1])
        except BaseException as error:
            _calls.note_failure(layer, steps, error, attempts.repeated)
            raise
        _calls.note_lengths(layer, steps, result)
        return result

    async def steps(self) -> AsyncStepStream:
        """A stream of pipelined steps; close it, or use it in an `async with` statement."""
        await self._connect()
        return AsyncStepStream(self._stubs.attention.Steps, self._metadata)
