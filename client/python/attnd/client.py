"""The blocking client."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import grpc
import numpy as np

from . import _calls, _channel, _mending, _moves, _recovery, _retry
from ._history import History
from ._proto import attnd_pb2 as pb
from .errors import AttndError, Unavailable, from_rpc_error
from .replaying import ReplayingSession
from .resuming import ResumingStepStream
from .session import Session
from .steps import StepStream
from .transfers import Transfers
from .types import DecodeResult, ModelInfo, SequenceStep, SessionInfo, Stats


class Client(Transfers):
    """A connection to one attnd server (or to a balancer before several).

    Args:
      target: "host:port" or "unix:path".
      timeout: seconds for each call that names none; None: no deadline.
      connect_timeout: seconds that the first call waits for the server to be reachable.
      affinity_key: what a balancer hashes; sent with every call and stream, and stored in new
        sessions. Sessions that share a decode or a stream must share it. None: a random one for
        this client; "": none.
      credentials: for TLS; None: plain text.
      metadata: sent with every call.
      max_message_bytes: limit for messages, both ways.
      move_wait: seconds that a call is repeated, within its timeout, while its session is on its
        way to another server (SESSION_MOVING).
      arrival_wait: seconds that SESSION_UNKNOWN is, once another server than before answers behind
        a balancer: there a session that moves is unknown until it has arrived. At most 5 s where
        the server before did not answer at the end: then it probably died.
      recovery_timeout: seconds that a ReplayingSession, and a stream with `resume`, have to get
        over a loss.
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
        move_wait: float = 30.0,
        arrival_wait: float = 30.0,
        recovery_timeout: float = 120.0,
        options: Optional[_channel.Options] = None,
    ):
        self._settings = _channel.channel_options(max_message_bytes, options)
        self._credentials = credentials
        self._target = target
        self._channel = self._open_channel()
        self._stubs = _channel.Stubs(self._channel)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._max_message_bytes = max_message_bytes
        self._recovery_timeout = recovery_timeout
        self._affinity_key = _channel.chosen_key(affinity_key)
        self._metadata = _channel.call_metadata(self._affinity_key, metadata)
        self._moves = _moves.MoveWatch(move_wait, arrival_wait)
        self._num_layers = 0  # asked for once
        self._connected = False
        self._connecting = threading.Lock()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Sessions stay on the server until closed or expired."""
        self._channel.close()

    def _open_channel(self, extra: _channel.Options = ()) -> grpc.Channel:
        settings = [*self._settings, *extra]
        if self._credentials is None:
            return grpc.insecure_channel(self._target, settings)
        return grpc.secure_channel(self._target, self._credentials, settings)

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

    @property
    def affinity_key(self) -> str:
        """What a balancer places this client's sessions by; "" for none."""
        return self._affinity_key

    def _try(self, method: Any, request: Any, seconds: Optional[float]) -> Any:
        """One try of a call."""
        try:
            answer, call = method.with_call(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            self._moves.note(error.initial_metadata())
            self._moves.note_failure(failure)
            raise failure from error
        self._moves.note(call.initial_metadata())
        return answer

    def _once(self, method: Any, request: Any, timeout: Optional[float]) -> Any:
        self._connect()
        return self._try(method, request, _channel.deadline(timeout, self._timeout))

    def _call(self, method: Any, request: Any, timeout: Optional[float]) -> Any:
        self._connect()
        waiting = self._moves.wait(_channel.deadline(timeout, self._timeout))
        while True:
            try:
                return self._try(method, request, waiting.left())
            except AttndError as error:
                pause = waiting.after(error)
                if pause is None:
                    raise
            time.sleep(pause)

    def _attempt(
        self, method: Any, request: Any, timeout: Optional[float], attempts: _retry.Attempts
    ) -> Any:
        while True:
            try:
                return self._call(method, request, timeout)
            except AttndError as error:
                wait = attempts.after(error, _channel.deadline(timeout, self._timeout))
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
            affinity_key=self._affinity_key,
        )
        answer = self._call(self._stubs.sessions.CreateSession, request, timeout)
        return Session(self, SessionInfo.from_proto(answer))

    def create_replaying_session(
        self,
        prefix_length: int = 0,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        session_id: Optional[str] = None,
        *,
        max_history_bytes: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> ReplayingSession:
        """A session that outlives its server: it keeps what it sent, and sends it again elsewhere.

        Args:
          prefix_length, max_tokens, idle_ttl, session_id: as in create_session. Made anew, or where
            the answer of its making was lost, the session has another id: this one, the first 95
            characters of it, and a random ending.
          max_history_bytes: past so many bytes of rows they are let go, and with them the means to
            get over a loss; None: no limit.
        """
        request = pb.CreateSessionRequest(
            prefix_length=prefix_length,
            max_tokens=max_tokens,
            idle_ttl=_channel.duration(idle_ttl),
            affinity_key=self._affinity_key,
        )
        history = History(_recovery.insist(self, self._layer_count), max_history_bytes)
        session = ReplayingSession(self, request, history, session_id)
        session._open(timeout)
        return session

    def _layer_count(self) -> int:
        if self._num_layers == 0:
            self._num_layers = self.model().num_layers
        return self._num_layers

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

    def fork_session(
        self,
        session_id: str,
        position: int = 0,
        new_session_id: Optional[str] = None,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        *,
        timeout: Optional[float] = None,
    ) -> Session:
        """A copy of a session; as Session.fork."""
        request = pb.ForkSessionRequest(
            session_id=session_id,
            new_session_id=new_session_id or "",
            position=position,
            max_tokens=max_tokens,
            idle_ttl=_channel.duration(idle_ttl),
        )
        answer = self._call(self._stubs.sessions.ForkSession, request, timeout)
        return Session(self, SessionInfo.from_proto(answer))

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
        dtypes = dict(output_dtype=output_dtype, wire_dtype=wire_dtype)
        if any(getattr(step.session, "replays", False) for step in steps):
            return _mending.decode(self, layer, steps, hidden, dtypes, timeout)
        positions = self._positions(layer, steps)
        waiting = self._moves.wait(_channel.deadline(timeout, self._timeout))
        result = self._decode(layer, steps, positions, hidden, dtypes, timeout, retries)
        while True:
            moving, pause = waiting.sequences(result)
            if not moving:
                return result
            time.sleep(pause)
            some = [steps[i] for i in moving], [positions[i] for i in moving]
            rows = _calls.rows_of(steps, hidden, moving)
            try:
                later = self._decode(layer, *some, rows, dtypes, waiting.left(), retries)
            except AttndError as error:
                return _calls.merged(result, moving, error)
            result = _calls.merged(result, moving, later)

    def _decode(
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
            answer = self._attempt(self._stubs.attention.Decode, request, timeout, attempts)
            result = _calls.decode_result([answer], steps, hidden.shape[1])
        except BaseException as error:
            _calls.note_failure(layer, steps, error, attempts.repeated)
            raise
        _calls.note_lengths(layer, steps, result)
        return result

    def _positions(self, layer: int, steps: Sequence[SequenceStep]) -> List[int]:
        return [
            step.session._position(layer, None) if step.position is None else step.position
            for step in steps
        ]

    def steps(self, resume: bool = False) -> Union[StepStream, ResumingStepStream]:
        """A stream of pipelined steps; close it, or use it in a `with` statement.

        Args:
          resume: go on when the stream ends or sessions move: what is unanswered is sent again
            where calls go then. Needed for a ReplayingSession.
        """
        return ResumingStepStream(self) if resume else self._open_steps()

    def _open_steps(self) -> StepStream:
        self._connect()
        return StepStream(self._stubs.attention.Steps, self._metadata)
