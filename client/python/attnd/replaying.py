"""Sessions that outlive their server: made anew from what they were sent."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import numpy as np

from . import _channel, _mending, _session_calls
from ._history import History
from ._names import Names
from ._proto import attnd_pb2 as pb
from ._recovery import Cause, Recovery, found
from ._turns import Turn, Turns
from .errors import AttndError, NotFound, is_unsure
from .session import Session
from .types import PrefillResult, SessionInfo

if TYPE_CHECKING:
    from .client import Client

_ABANDON_SECONDS = 1.0  # to close what came of a call that has failed already


class ReplayingSession(Session):
    """A Session that is made anew when it is lost; by Client.create_replaying_session.

    It keeps the rows that it sent, `history_bytes` of them: d_model elements of the wire's dtype
    for a row of a layer, so 16 KiB of float32 where d_model is 4096. When the server is gone, or
    has expired or evicted the session, it is created under the same affinity key where the
    client's calls go now, its rows are sent again, and the call is repeated: the caller sees a
    pause, and the answers that it would have had, bit for bit where the new server computes like
    the old one. A session that moves is waited for. All this takes at most the client's
    recovery_timeout a call; then the last error is raised.

    Made anew it has another `session_id`: the server may have been out of reach alone, and what it
    still holds must not be taken for the session when calls reach it again.

    A call that failed left nothing behind: the next one takes its place. `retries` is not needed.
    """

    # The history is what the session is. A server's session has `_id` only once it holds all of it,
    # and a step counts only when the session of that id has answered it.

    replays = True

    def __init__(
        self,
        client: "Client",
        request: pb.CreateSessionRequest,
        history: History,
        name: Optional[str] = None,
    ):
        self._names = Names(name)
        request.session_id = self._names.first()
        fresh = pb.Session(session_id=request.session_id, prefix_length=request.prefix_length)
        fresh.layer_lengths.extend([0] * history.num_layers)
        super().__init__(client, SessionInfo.from_proto(fresh))
        self._request = request
        self._history = history
        # By layer, steps that failed and may be done all the same: where one that appends ends;
        # None: one that did more.
        self._doubts: Dict[int, Optional[int]] = {}
        self._gone = False  # `_id` was closed, to make it anew
        self._turns = Turns()
        self._making = threading.Lock()  # held while it is brought back
        self._lock = threading.RLock()  # guards the history, the doubts and `_id`

    @property
    def history_bytes(self) -> int:
        """Bytes of the rows that are kept."""
        return self._history.bytes

    @property
    def replayable(self) -> bool:
        """Whether a loss can be mended: False once the rows were more than max_history_bytes."""
        return self._history.complete

    def rewind(self, position: int, *, timeout: Optional[float] = None) -> SessionInfo:
        """Cuts every layer longer than `position` to it, or changes nothing and raises.

        It is behind the session's steps on streams: their answers come first.
        """
        with self._turn(timeout):
            self._settle()
            request = pb.RewindSessionRequest(position=position)
            method = self._client._stubs.sessions.RewindSession
            recovery = Recovery(self._client._recovery_timeout)

            def cut(info: pb.Session) -> None:
                self._history.cut(position)
                self._lengths = self._learnt(info)

            try:
                info = _session_calls.mended(self, method, request, timeout, recovery, cut)
                return SessionInfo.from_proto(info)
            except BaseException as error:
                if recovery.begun or is_unsure(error):
                    with self._lock:
                        self._doubts.update(dict.fromkeys(range(self._history.num_layers)))
                raise

    def info(self, *, timeout: Optional[float] = None) -> SessionInfo:
        """The session as the server sees it."""
        method = self._client._stubs.sessions.GetSession
        recovery = Recovery(self._client._recovery_timeout)
        request = pb.GetSessionRequest()

        def learn(info: pb.Session) -> None:
            pairs = zip(self._lengths, self._learnt(info))  # steps on streams are ahead of it
            self._lengths = [told if own is None else own for own, told in pairs]

        info = _session_calls.mended(self, method, request, timeout, recovery, learn)
        return SessionInfo.from_proto(info)

    def fork(
        self,
        position: int = 0,
        session_id: Optional[str] = None,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        *,
        timeout: Optional[float] = None,
    ) -> "ReplayingSession":
        """As Session.fork; the copy replays too, from a copy of the history.

        It is behind the session's steps on streams: their answers come first.
        """
        ttl = _channel.duration(idle_ttl)
        made = pb.CreateSessionRequest(
            prefix_length=self._prefix_length,
            max_tokens=max_tokens,
            idle_ttl=ttl,
            affinity_key=self._request.affinity_key,
        )
        with self._turn(timeout):
            self._settle()
            with self._lock:
                kept = self._history.copy(position)
            twin = ReplayingSession(self._client, made, kept, session_id)
            request = pb.ForkSessionRequest(position=position, max_tokens=max_tokens, idle_ttl=ttl)
            method = self._client._stubs.sessions.ForkSession
            info = _session_calls.make(self, twin, method, request, timeout)
            twin._take_copy(info)
            return twin

    def close(self, *, timeout: Optional[float] = None) -> int:
        """Ends the session; the bytes that it freed, 0 where the server that answers lacks it.

        It waits for no step: those that are unanswered fail, or are answered before.
        """
        self._closed = True
        with self._lock:
            pass  # `_id` changes no more: one made anew meanwhile has been taken over, or will not be
        try:
            return _session_calls.close(self, timeout)
        finally:
            self._close_left()

    def _open(self, timeout: Optional[float]) -> None:
        method = self._client._stubs.sessions.CreateSession
        _session_calls.make(self, self, method, self._request, timeout)

    def _turn(self, timeout: Optional[float]) -> Turn:
        """With every layer."""
        return _mending.turn(self._client, [self], range(self._history.num_layers), timeout)

    # ---------------------------------------------------------------- what steps led to

    def _prefill(
        self,
        layer: int,
        position: Optional[int],
        hidden: np.ndarray,
        options: Dict[str, Any],
        timeout: Optional[float],
        retries: int,
    ) -> PrefillResult:
        return _mending.prefill(self, layer, position, hidden, options, timeout)

    def _learnt(self, info: pb.Session) -> List[Optional[int]]:
        """The lengths by the server's word; None where the history tells them."""
        return [None if self._history.complete else length for length in info.layer_lengths]

    def _known(self, layer: int) -> Optional[int]:
        known = super()._known(layer)
        return self._history.length(layer) if known is None and self._history.complete else known

    def _kept_end(self, layer: int) -> Optional[int]:
        kept = self._history.complete and layer < self._history.num_layers
        return self._history.length(layer) if kept else None

    def _end(self, layer: int, info: Optional[pb.Session] = None) -> Optional[int]:
        """Where the layer's next row belongs, as far as steps were answered."""
        kept = self._kept_end(layer)
        return super()._end(layer, info) if kept is None else kept

    def _length_for(self, layer: int, position: int) -> int:
        with self._lock:
            doubt = self._doubts.get(layer)
            return position if doubt is None or position != self._end(layer) else doubt

    def _unsettled(self, layer: int, position: int) -> bool:
        with self._lock:
            if layer not in self._doubts or not self._history.complete:
                return False
            if position != self._end(layer):
                self._doubts[layer] = None
            return self._doubts[layer] is None

    def _settle(self) -> None:
        """Leaves nothing of steps that failed and may be done."""
        if self._doubts and self._history.complete:
            self._bring_back(Cause.STUCK, Recovery(self._client._recovery_timeout))

    def _accept(self, session_id: str, layer: int, position: int, hidden: pb.Tensor) -> bool:
        with self._lock:
            if self._closed:
                return True
            if session_id != self._id:
                return False
            behind = position > self._history.length(layer) or self._doubts.get(layer, 0) is None
            if self._history.complete and behind:
                self._doubts[layer] = None  # a step that was given up, and is done
                return False
            self._history.put(layer, position, hidden)
            self._doubts.pop(layer, None)
            return True

    def _gave_up(self, layer: int, position: int, rows: int, doubtful: bool) -> None:
        with self._lock:
            if doubtful:
                appends = layer not in self._doubts and position == self._end(layer)
                self._doubts[layer] = position + rows if appends else None
            self._set(layer, None)  # told by the history, or the server

    def _take_copy(self, info: pb.Session) -> None:
        """The session is a fork, which the server has so."""
        kept = [self._end(layer, info) for layer in range(self._history.num_layers)]
        for layer, length in enumerate(info.layer_lengths):
            if length != kept[layer]:  # by what is not known here
                self._doubts[layer] = None
        self._lengths = list(kept)

    # ---------------------------------------------------------------- making it anew

    def _bring_back(self, cause: Cause, recovery: Recovery) -> pb.Session:
        with self._making:
            return self._found_or_made(cause, recovery)

    def _found_or_made(self, cause: Cause, recovery: Recovery) -> pb.Session:
        spoiled = cause is Cause.STUCK or self._gone or None in self._doubts.values()
        made: Optional[_Made] = None
        changed = False
        try:
            while True:
                self._check_open()
                replayable = self._history.complete
                anew = replayable and spoiled
                try:
                    if not anew:
                        return found(self._client, self._id, cause, recovery, replayable)
                except NotFound as error:
                    if not replayable or self._closed or error.reason == "SESSION_CLOSED":
                        raise
                try:
                    if anew and not self._gone:
                        self._discard()
                    made = made or self._create()
                    if self._take_over(made, changed):
                        info, made = made.info, None
                        return info
                    changed = True
                except AttndError as error:
                    full = _is_full(error)
                    if not full:
                        cause = recovery.take(error, repeated=True)
                    recovery.pause(error)
                    if full:
                        continue  # it may get room, until the time is over
                made = self._leave(made)
        finally:
            self._leave(made)
            if self._closed:
                self._close_left()

    def _create(self) -> "_Made":
        self._close_left()
        request = pb.CreateSessionRequest()
        request.CopyFrom(self._request)
        request.session_id = self._names.another()
        try:
            method = self._client._stubs.sessions.CreateSession
            return _Made(self._client._once(method, request, None))
        except BaseException as error:
            if is_unsure(error):
                self._names.leave(request.session_id)
            raise

    def _take_over(self, made: "_Made", hold: bool) -> bool:
        """Sends the rows, and goes on with the session made; False: they have changed meanwhile.

        With `hold` they cannot; but the session's other answers wait for as long as it takes.
        """
        with self._lock if hold else contextlib.nullcontext():
            if made.version is None:
                made.version = self._history.version
            self._replay(made)
            with self._lock:
                if self._closed or made.version != self._history.version:
                    return False
                self._rename(made.info.session_id)
                self._doubts.clear()
                self._gone = False
                return True

    def _rename(self, session_id: str) -> None:
        self._names.leave(self._id)
        self._id = self._request.session_id = session_id

    def _leave(self, made: Optional["_Made"]) -> None:
        if made is not None:
            self._names.leave(made.info.session_id)

    def _abandon(self, perhaps_made: bool) -> None:
        """It could not be made, or nobody knows."""
        if perhaps_made:
            self._names.leave(self._id)
        self._close_left(_ABANDON_SECONDS)

    def _close_left(self, timeout: Optional[float] = None) -> None:
        """Frees what was left behind, if it is where calls go now."""
        for session_id in self._names.left:
            try:
                self._close_id(session_id, timeout)
            except NotFound:
                continue
            except AttndError:
                return  # they expire as well
            self._names.forget(session_id)

    def _discard(self) -> None:
        try:
            self._close_id(self._id)
        except NotFound:
            pass
        self._gone = True

    def _close_id(self, session_id: str, timeout: Optional[float] = None) -> None:
        request = pb.CloseSessionRequest(session_id=session_id)
        self._client._once(self._client._stubs.sessions.CloseSession, request, timeout)

    def _replay(self, made: "_Made") -> None:
        """Sends the rows that the server's session lacks, as long as they do not change."""
        prefill = self._client._stubs.attention.Prefill
        for layer in range(self._history.num_layers):
            while True:
                part = self._next_part(made, layer)
                if part is None:
                    break
                position, hidden = part
                request = pb.PrefillRequest(
                    session_id=made.info.session_id,
                    layer=layer,
                    position=position,
                    output_rows=pb.OUTPUT_ROWS_NONE,
                    hidden=hidden,
                )
                self._client._once(prefill, request, None)
                made.info.layer_lengths[layer] = position + hidden.shape[0]

    def _next_part(self, made: "_Made", layer: int) -> Optional[Tuple[int, pb.Tensor]]:
        room = self._client._max_message_bytes // 2
        with self._lock:
            if self._closed or made.version != self._history.version:
                return None
            parts = self._history.tensors(layer, made.info.layer_lengths[layer], room)
            return next(parts, None)


@dataclass
class _Made:
    """A session that is not the one yet."""

    info: pb.Session
    version: Optional[int] = None  # of the history that it is sent


def _is_full(error: AttndError) -> bool:
    return error.retry_after is not None and error.reason not in ("DRAINING", "SESSION_MOVING")
