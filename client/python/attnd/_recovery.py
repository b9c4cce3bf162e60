"""Getting over the loss of a server: what an error says of it, how long to wait, what to look for.

A client behind a balancer meets a move, a drain or the death of its server as one of a few errors.
Which it was decides what NOT_FOUND means at the next server: a session that moves will arrive
there, that of a dead server will not.
"""

from __future__ import annotations

import enum
import random
import time
from typing import Any, Callable, Optional

import grpc

from ._proto import attnd_pb2 as pb
from .errors import AttndError

_FIRST_PAUSE = 0.05  # seconds; doubled each time
_LONGEST_PAUSE = 2.0
_CLOSED_WAIT = 1.0  # a session that has moved is closed behind it; the balancer may be late
_MAX_LOOKS = 5  # after refusals of a repeat

_MADE_BY_GRPC = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,  # these three: a stream that was reset, as balancers do
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
)


class Cause(enum.Enum):
    BROKEN = "the connection broke, or the server stops: its sessions are probably gone"
    MOVING = "the session is on its way, or has left"
    ABSENT = "the session is not there"
    GONE = "the session expired or was evicted"
    LATE = "a repeat met another try of itself"
    STUCK = "a repeat would cut further than the layer can be cut"


_BY_REASON = {
    "DRAINING": Cause.BROKEN,
    "NOT_READY": Cause.BROKEN,
    "SESSION_MOVING": Cause.MOVING,
    "SESSION_CLOSED": Cause.MOVING,
    "SESSION_UNKNOWN": Cause.ABSENT,
    "SESSION_EXPIRED": Cause.GONE,
    "SESSION_EVICTED": Cause.GONE,
}
_OF_REPEATS = {
    "POSITION_MISMATCH": Cause.LATE,
    "REWIND_TOO_FAR": Cause.STUCK,
    "PREFIX_ANSWERED": Cause.STUCK,
}


def is_broken(error: AttndError) -> bool:
    """Whether no answer came: gRPC or a balancer made the status."""
    return not error.reason and error.code in _MADE_BY_GRPC


def cause_of(error: AttndError, repeated: bool = False) -> Optional[Cause]:
    """What the error says of the session's server; None: nothing that waiting could mend."""
    if is_broken(error):
        return Cause.BROKEN
    cause = _BY_REASON.get(error.reason)
    return _OF_REPEATS.get(error.reason) if cause is None and repeated else cause


class Recovery:
    """The time that a call or a stream has for its troubles, from the first until they are over."""

    def __init__(self, limit: float, wanted: Callable[[], bool] = lambda: True):
        self._limit, self.stopped = limit, False
        self._wanted = wanted  # False: nobody waits for the end of it any more
        self.over()

    def over(self) -> None:
        self._since: Optional[float] = None
        self._pause = _FIRST_PAUSE
        self._looks = 0
        self.seen: Optional[Cause] = None

    def stop(self) -> None:
        """No further waiting."""
        self._limit, self.stopped = 0.0, True

    @property
    def begun(self) -> bool:
        return self._since is not None

    def seconds(self) -> float:
        """Since the first trouble."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def take(self, error: AttndError, repeated: bool = False) -> Cause:
        """The cause of an error; raises it where it is final."""
        cause = cause_of(error, repeated)
        if cause in (Cause.LATE, Cause.STUCK):
            self._looks += 1
        if cause is None or self._looks > _MAX_LOOKS:
            raise error
        if self._since is None:
            self._since = time.monotonic()
        if cause is not Cause.ABSENT or self.seen is None:
            self.seen = cause
        return self.seen

    def pause(self, error: AttndError) -> None:
        """Waits before the next try; raises the error when the time is over."""
        if self._since is None:
            self._since = time.monotonic()
        pause = self._pause * random.uniform(0.5, 1.0)
        if error.retry_after and error.reason not in ("DRAINING", "SESSION_MOVING"):
            pause = max(pause, error.retry_after)  # those two are asked elsewhere, or soon over
        after = time.monotonic() - self._since + pause
        if self.stopped or not self._wanted():
            raise error
        if after >= self._limit:
            spent = f"; not mended within recovery_timeout, {self._limit:g} s"
            error.message += spent
            error.args = (error.message,)
            raise error
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        time.sleep(pause)


def insist(client: Any, call: Callable[[], Any]) -> Any:
    """The answer of a call that needs any server, once one answers."""
    recovery = Recovery(client._recovery_timeout)
    while True:
        try:
            return call()
        except AttndError as error:
            if not client._connected:  # never: the address may be wrong
                raise
            recovery.take(error)
            recovery.pause(error)


def _may_arrive(client: Any, cause: Cause, replays: bool, recovery: Recovery) -> bool:
    """Whether a session that is not there may yet come."""
    moves = client._moves
    if cause is Cause.MOVING:
        return recovery.seconds() < moves.move_wait
    wait = moves.arrival_wait
    if replays or cause is not Cause.ABSENT or moves.broke():
        wait = min(wait, moves.AFTER_BREAK)
    if replays and (cause is not Cause.ABSENT or moves.broke()):
        wait = 0.0  # nobody hands it over; making it anew is right in any case
    return moves.since_change() < wait


def found(client: Any, session_id: str, cause: Cause, recovery: Recovery, replays: bool) -> Any:
    """The session as the server has it to which calls go now; NotFound when it is not there."""
    start = time.monotonic()
    while True:
        try:
            request = pb.GetSessionRequest(session_id=session_id)
            return client._once(client._stubs.sessions.GetSession, request, None)
        except AttndError as error:
            now = cause_of(error)
            if now is Cause.ABSENT:
                final = not _may_arrive(client, cause, replays, recovery)
            elif error.reason == "SESSION_CLOSED":
                final = time.monotonic() - start >= _CLOSED_WAIT
            else:
                final = now is None or now is Cause.GONE
            if final:
                raise
            recovery.pause(error)
