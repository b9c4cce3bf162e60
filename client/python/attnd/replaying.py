"""Sessions that outlive their server: made anew from what they were sent."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Dict, List, Optional

import numpy as np

from . import _channel, _mending
from ._history import History
from ._proto import attnd_pb2 as pb
from ._recovery import Cause, Recovery, found, is_broken
from .errors import AlreadyExists, AttndError, NotFound
from .session import Session
from .types import PrefillResult, SessionInfo

if TYPE_CHECKING:
    from .client import Client


_LONGEST_ID = 128
_MOST_LEFT_BEHIND = 4  # ids of earlier losses that are remembered


def _new_id(name: Optional[str]) -> str:
    """One that no session has had."""
    if name is None:
        return secrets.token_hex(16)
    ending = "." + secrets.token_hex(16)
    return name[: _LONGEST_ID - len(ending)] + ending


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

    replays = True

    def __init__(
        self,
        client: "Client",
        request: pb.CreateSessionRequest,
        history: History,
        name: Optional[str] = None,
    ):
        """`name`: the caller's for the session; it begins the ids, of which the first is it."""
        request.session_id = name or _new_id(name)
        fresh = pb.Session(session_id=request.session_id, prefix_length=request.prefix_length)
        fresh.layer_lengths.extend([0] * history.num_layers)
        super().__init__(client, SessionInfo.from_proto(fresh))
        self._request = request  # of the session that the server has now
        self._named = name
        self._left_behind: List[str] = []  # where calls do not go now
        self._history = history
        self._unsure: Dict[int, int] = {}  # by layer: its length, if the step that failed was done

    @property
    def history_bytes(self) -> int:
        """Bytes of the rows that are kept."""
        return self._history.bytes

    @property
    def replayable(self) -> bool:
        """Whether a loss can be mended: False once the rows were more than max_history_bytes."""
        return self._history.complete

    def rewind(self, position: int, *, timeout: Optional[float] = None) -> SessionInfo:
        """Cuts every layer longer than `position` to it, or changes nothing and raises."""
        request = pb.RewindSessionRequest(position=position)
        info = self._mended(self._client._stubs.sessions.RewindSession, request, timeout)
        self._history.cut(position)
        self._lengths = [min(length or 0, position) for length in self._lengths]
        self._unsure = {layer: min(end, position) for layer, end in self._unsure.items()}
        return SessionInfo.from_proto(info)

    def info(self, *, timeout: Optional[float] = None) -> SessionInfo:
        """The session as the server sees it."""
        method = self._client._stubs.sessions.GetSession
        answer = self._mended(method, pb.GetSessionRequest(), timeout)
        return SessionInfo.from_proto(answer)

    def fork(
        self,
        position: int = 0,
        session_id: Optional[str] = None,
        max_tokens: int = 0,
        idle_ttl: Optional[float] = None,
        *,
        timeout: Optional[float] = None,
    ) -> "ReplayingSession":
        """As Session.fork; the copy replays too, from a copy of the history."""
        ttl = _channel.duration(idle_ttl)
        made = pb.CreateSessionRequest(
            prefix_length=self._prefix_length,
            max_tokens=max_tokens,
            idle_ttl=ttl,
            affinity_key=self._request.affinity_key,
        )
        twin = ReplayingSession(self._client, made, self._history.copy(position), session_id)
        request = pb.ForkSessionRequest(position=position, max_tokens=max_tokens, idle_ttl=ttl)
        method = self._client._stubs.sessions.ForkSession
        twin._take(SessionInfo.from_proto(self._mended(method, request, timeout, twin)))
        return twin

    def close(self, *, timeout: Optional[float] = None) -> int:
        """Ends the session; the bytes that it freed, 0 where it is lost."""
        request = pb.CloseSessionRequest(session_id=self._id)
        method, freed = self._client._stubs.sessions.CloseSession, 0
        try:
            freed = self._client._call(method, request, timeout).freed_bytes
        except NotFound:
            pass
        self._closed = True
        return freed

    def _open(self, timeout: Optional[float]) -> None:
        self._mended(self._client._stubs.sessions.CreateSession, self._request, timeout, self)

    def _mended(
        self,
        method: Any,
        request: Any,
        timeout: Optional[float],
        made: Optional["ReplayingSession"] = None,
    ) -> Any:
        """The answer of a call that can be repeated; `made`: the session that it makes."""
        recovery = Recovery(self._client._recovery_timeout)
        while True:
            request.session_id = self._id
            if made not in (None, self):
                request.new_session_id = made._id
            try:
                return self._client._once(method, request, timeout)
            except AlreadyExists:
                if made is None or not recovery.begun:
                    raise
                return made._bring_back(Cause.ABSENT, recovery)  # a lost answer has made it
            except AttndError as error:
                cause = recovery.take(error)
                recovery.pause(error)
            if made is not None and made._named is None:
                made._become(made._request_anew())  # it may be there, where calls no longer go
            if made is not self:
                self._bring_back(cause, recovery)

    # ---------------------------------------------------------------- what steps led to

    def _prefill(
        self,
        layer: int,
        position: int,
        hidden: np.ndarray,
        options: Dict[str, Any],
        timeout: Optional[float],
        retries: int,
    ) -> PrefillResult:
        work = _mending.prefill_work(self, layer, position, hidden, options)
        return _mending.run(self._client, work, timeout)

    def _length_for(self, layer: int, position: int) -> int:
        """What the layer's length may be where a step begins at `position`."""
        length = self._known(layer)
        return self._unsure.get(layer, position) if position == length else position

    def _done(self, layer: int, position: int, hidden: pb.Tensor) -> None:
        self._history.put(layer, position, hidden)
        self._unsure.pop(layer, None)

    def _gave_up(self, layer: int, position: int, rows: int) -> None:
        self._unsure[layer] = position + rows
        self._set(layer, min(position, self._known(layer) or 0))

    # ---------------------------------------------------------------- making it anew

    def _bring_back(self, cause: Cause, recovery: Recovery) -> pb.Session:
        while True:
            info = self._found_or_made(cause, recovery)
            try:
                return self._replay(info)
            except AttndError as error:
                cause = self._wait(error, recovery, cause)

    @staticmethod
    def _wait(error: AttndError, recovery: Recovery, cause: Cause) -> Cause:
        """Pauses before the next try; raises the error where it is final."""
        full = error.retry_after is not None and error.reason not in ("DRAINING", "SESSION_MOVING")
        if not full:  # the new server may get room, until the time is over
            cause = recovery.take(error, repeated=True)
        recovery.pause(error)
        return cause

    def _found_or_made(self, cause: Cause, recovery: Recovery) -> pb.Session:
        replayable = self._history.complete
        discarded = None
        while True:
            try:
                if cause is Cause.STUCK and replayable:
                    self._discard()
                    cause, discarded = Cause.GONE, self._id
                if self._id != discarded:
                    return found(self._client, self._id, cause, recovery, replayable)
            except NotFound as error:
                if not replayable or self._closed or error.reason == "SESSION_CLOSED":
                    raise
            try:
                return self._make_anew()
            except AttndError as error:
                cause = self._wait(error, recovery, cause)

    def _make_anew(self) -> pb.Session:
        self._close_left_behind()
        request = self._request_anew()
        try:
            info = self._client._once(self._client._stubs.sessions.CreateSession, request, None)
        except AttndError as error:
            if is_broken(error):
                self._become(request)  # perhaps it is there, and its answer was lost
            raise
        self._become(request)
        return info

    def _request_anew(self) -> pb.CreateSessionRequest:
        request = pb.CreateSessionRequest()
        request.CopyFrom(self._request)
        request.session_id = _new_id(self._named)
        return request

    def _become(self, request: pb.CreateSessionRequest) -> None:
        self._left_behind = [*self._left_behind, self._id][-_MOST_LEFT_BEHIND:]
        self._request, self._id = request, request.session_id

    def _close_left_behind(self) -> None:
        """Frees what an earlier loss left on the server to which calls go now."""
        for session_id in list(self._left_behind):
            try:
                self._close_id(session_id)
            except NotFound:
                continue
            except AttndError:
                return  # they expire as well
            self._left_behind.remove(session_id)

    def _discard(self) -> None:
        try:
            self._close_id(self._id)
        except NotFound:
            pass

    def _close_id(self, session_id: str) -> None:
        request = pb.CloseSessionRequest(session_id=session_id)
        self._client._once(self._client._stubs.sessions.CloseSession, request, None)

    def _replay(self, info: pb.Session) -> pb.Session:
        """Sends the rows that the server's session lacks."""
        room = self._client._max_message_bytes // 2
        for layer in range(self._history.num_layers):
            start = info.layer_lengths[layer]
            for position, hidden in self._history.tensors(layer, start, room):
                request = pb.PrefillRequest(
                    session_id=self._id,
                    layer=layer,
                    position=position,
                    output_rows=pb.OUTPUT_ROWS_NONE,
                    hidden=hidden,
                )
                answer = self._client._once(self._client._stubs.attention.Prefill, request, None)
                info.layer_lengths[layer] = answer.length
        return info
