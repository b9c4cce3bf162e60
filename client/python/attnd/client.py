"""The blocking client."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Iterator, List, Optional, Sequence

import grpc
import numpy as np

from . import _calls, _channel, _retry
from ._proto import attnd_pb2 as pb
from .errors import AttndError, Unavailable, from_rpc_error
from .session import Session
from .steps import StepStream
from .types import DecodeResult, ModelInfo, SequenceStep, SessionInfo, Stats


class Client:
    """A connection to one attnd server (or to a balancer before several).

    Args:
      target: "host:port" or "unix:path".
      timeout: seconds for each call that names none; None: no deadline.
      connect_timeout: seconds that the first call waits for the server to be reachable.
      affinity_key: what a balancer hashes; sent with every call and stored in new sessions.
      credentials: for TLS; None: plain text.
      metadata: sent with every call.
      max_message_bytes: limit for messages, both ways.
      options: further gRPC channel options, or other values for those set here.

    Calls raise attnd.AttndError. A client may be shared by threads, a Session should not be.
    """

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
        options: Optional[_channel.Options] = None,
    ):
        settings = _channel.channel_options(max_message_bytes, options)
        if credentials is None:
            self._channel = grpc.insecure_channel(target, settings)
        else:
            self._channel = grpc.secure_channel(target, credentials, settings)
        self._stubs = _channel.Stubs(self._channel)
        self._target = target
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._affinity_key = affinity_key
        self._metadata = _channel.call_metadata(affinity_key, metadata)
        self._connected = False
        self._connecting = threading.Lock()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Sessions stay on the server until closed or expired."""
        self._channel.close()

    def _connect(self) -> None:
        """Waits for the first connection only: later outages fail calls at once."""
        with self._connecting:
            if self._connected:
                return
            try:
                grpc.channel_ready_future(self._channel).result(self._connect_timeout)
            except grpc.FutureTimeoutError:
                waited = f"within {self._connect_timeout} s"
                raise Unavailable(f"{self._target} could not be reached {waited}") from None
            self._connected = True

    def _call(self, method: Callable[..., Any], request: Any, timeout: Optional[float]) -> Any:
        self._connect()
        seconds = _channel.deadline(timeout, self._timeout)
        try:
            return method(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error

    def _attempt(
        self, method: Any, request: Any, timeout: Optional[float], attempts: _retry.Attempts
    ) -> Any:
        while True:
            try:
                return self._call(method, request, timeout)
            except AttndError as error:
                wait = attempts.after(error)
                if wait is None:
                    raise
            time.sleep(wait)

    # ---------------------------------------------------------------- server

    def model(self, *, timeout: Optional[float] = None) -> ModelInfo:
        """What the server serves: widths, layer kinds, dtypes, limits."""
        answer = self._call(self._stubs.model.GetModel, pb.GetModelRequest(), timeout)
        return ModelInfo.from_proto(answer)

    def stats(self, *, timeout: Optional[float] = None) -> Stats:
        """One consistent moment of the server's cache and queue."""
        answer = self._call(self._stubs.admin.GetStats, pb.GetStatsRequest(), timeout)
        return Stats.from_proto(answer)

    def drain(self, *, timeout: Optional[float] = None) -> int:
        """Makes the server not ready from now on; the number of sessions still on it."""
        return self._call(self._stubs.admin.Drain, pb.DrainRequest(), timeout).sessions

    def health(self, service: str = "", *, timeout: Optional[float] = None) -> str:
        """"SERVING" or "NOT_SERVING", by grpc.health.v1; NotFound for an unknown service."""
        return self._call(self._stubs.health, service, timeout)

    # ---------------------------------------------------------------- sessions

    def create_session(
        self,
        prefix_length: int = 0,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        session_id: Optional[str] = None,
        *,
        timeout: Optional[float] = None,
    ) -> Session:
        """A new session.

        Args:
          prefix_length: positions [0, prefix_length) attend to each other in both directions.
          max_tokens: > 0 reserves cache for so many tokens now, and is the cap.
          idle_ttl: seconds after which an idle session is closed; None: the server's default.
          session_id: `[A-Za-z0-9._-]{1,128}`; None: an unguessable one, made by the server.
        """
        request = pb.CreateSessionRequest(
            session_id=session_id or "",
            prefix_length=prefix_length,
            max_tokens=max_tokens,
            idle_ttl=_channel.duration(idle_ttl),
            affinity_key=self._affinity_key or "",
        )
        answer = self._call(self._stubs.sessions.CreateSession, request, timeout)
        return Session(self, SessionInfo.from_proto(answer))

    def get_session(self, session_id: str, *, timeout: Optional[float] = None) -> Session:
        """The session of that id, with the lengths that its layers have now."""
        return Session(self, self._info(session_id, timeout))

    def list_sessions(
        self, page_size: int = 0, *, timeout: Optional[float] = None
    ) -> Iterator[SessionInfo]:
        """Every session, fetched page by page; page_size 0 is the server's default."""
        request = pb.ListSessionsRequest(page_size=page_size)
        while True:
            page = self._call(self._stubs.sessions.ListSessions, request, timeout)
            yield from map(SessionInfo.from_proto, page.sessions)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def rewind_session(
        self, session_id: str, position: int, *, timeout: Optional[float] = None
    ) -> SessionInfo:
        """Cuts every layer longer than `position` to it, or changes nothing and raises."""
        request = pb.RewindSessionRequest(session_id=session_id, position=position)
        answer = self._call(self._stubs.sessions.RewindSession, request, timeout)
        return SessionInfo.from_proto(answer)

    def close_session(self, session_id: str, *, timeout: Optional[float] = None) -> int:
        """Ends a session; the bytes that it freed."""
        request = pb.CloseSessionRequest(session_id=session_id)
        return self._call(self._stubs.sessions.CloseSession, request, timeout).freed_bytes

    def _info(self, session_id: str, timeout: Optional[float]) -> SessionInfo:
        request = pb.GetSessionRequest(session_id=session_id)
        answer = self._call(self._stubs.sessions.GetSession, request, timeout)
        return SessionInfo.from_proto(answer)

    # ---------------------------------------------------------------- attention

    def decode(
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
        """Appends tokens of many sessions to one layer, in one ragged batch.

        Args:
          sequences: each a Session (one token), (session, num_tokens), (session, num_tokens,
            position) or a SequenceStep.
          hidden: [sum of num_tokens, d_model] in the order of `sequences`; float32, float16 or
            ml_dtypes.bfloat16.
          output_dtype: "f32", "f16", "bf16" or a numpy dtype; None: that of the rows sent.
          wire_dtype: converts `hidden` before sending.
          retries: how often to repeat the call when its outcome is unknown (UNAVAILABLE,
            DEADLINE_EXCEEDED), safely, by rewinding to the same positions.

        A sequence's own failure is in its result, and the others go on; what fails all of them
        alike is raised.
        """
        steps = _calls.as_steps(sequences)
        _calls.check_retries(steps, retries)
        request = _calls.decode_request(
            layer,
            steps,
            self._positions(layer, steps),
            hidden,
            output_dtype=output_dtype,
            wire_dtype=wire_dtype,
        )
        attempts = _retry.Attempts(request, retries)
        try:
            answer = self._attempt(self._stubs.attention.Decode, request, timeout, attempts)
        except AttndError as error:
            _calls.note_failure(layer, steps, error, attempts.repeated)
            raise
        result = _calls.decode_result([answer], steps)
        _calls.note_lengths(layer, steps, result)
        return result

    def _positions(self, layer: int, steps: Sequence[SequenceStep]) -> List[int]:
        return [
            step.session._position(layer, None) if step.position is None else step.position
            for step in steps
        ]

    def steps(self) -> StepStream:
        """A stream of pipelined steps; close it, or use it in a `with` statement."""
        self._connect()
        return StepStream(self._stubs.attention.Steps, self._metadata)
