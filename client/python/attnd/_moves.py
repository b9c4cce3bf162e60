"""Waiting for sessions that are on their way to another replica."""

from __future__ import annotations

import math
import random
import threading
import time
from typing import Any, List, Optional, Tuple

from ._proto import attnd_pb2 as pb
from ._recovery import is_broken
from .errors import AttndError
from .types import DecodeResult

_FIRST_PAUSE = 0.05  # seconds; doubled each time
_LONGEST_PAUSE = 2.0

# How often a move is cancelled before its session must be open again, and the pause between.
CANCEL_TRIES = 50
CANCEL_PAUSE = 0.02

# Seconds that each call may take which opens a session again after a failed export.
REOPEN_TIMEOUT = 10.0


def move_of(session_id: str) -> pb.ExportSessionRequest:
    """Begins the session's move, or begins it again."""
    return pb.ExportSessionRequest(session_id=session_id, move=True)


def probe_of(session_id: str, max_seq_len: int) -> pb.RewindSessionRequest:
    """Fails where the session takes no steps; else it changes nothing."""
    return pb.RewindSessionRequest(session_id=session_id, position=max_seq_len)


def takes_steps(probe: Optional[AttndError]) -> bool:
    """Whether the session does, by its probe's error; False while it moves; raises others."""
    if probe is not None and probe.reason != "SESSION_MOVING":
        raise probe
    return probe is None


class MoveWatch:
    """How long a client waits for moves, and which replica answers it."""

    # Seconds in the place of a longer arrival_wait, where the replica before this one did not
    # answer at the end: it probably died, and its sessions with it.
    AFTER_BREAK = 5.0

    def __init__(self, move_wait: float, arrival_wait: float):
        if move_wait < 0 or arrival_wait < 0:
            text = f"move_wait is {move_wait}, arrival_wait is {arrival_wait}; expected 0 or more"
            raise ValueError(text)
        self.move_wait, self.arrival_wait = move_wait, arrival_wait
        self._lock = threading.Lock()
        self._server = ""
        self._changed = -math.inf
        self._broken = False  # no answer came, since the last one that did
        self._died = False  # that was so when the replica changed

    def note(self, metadata: Any) -> None:
        """Takes the initial metadata of an answer."""
        server = next((value for key, value in metadata or () if key == "attnd-server"), "")
        if not server:
            return
        with self._lock:
            if self._server and server != self._server:
                self._changed = time.monotonic()
                self._died = self._broken
            self._server, self._broken = server, False

    def note_failure(self, error: AttndError) -> None:
        """Takes a call's error, after the metadata of its answer."""
        if is_broken(error) or error.reason == "DRAINING":
            with self._lock:
                self._broken = True

    def broke(self) -> bool:
        """Whether the replica before this one, or this one, did not answer at the end."""
        return self._broken or self._died

    def since_change(self) -> float:
        """Seconds since another replica than before answered first; infinite where none has."""
        return time.monotonic() - self._changed

    def new_replica(self) -> bool:
        """Whether another replica than before answers, so recently that a session may yet come."""
        wait = min(self.arrival_wait, self.AFTER_BREAK) if self._died else self.arrival_wait
        return self.since_change() < wait

    def wait(self, timeout: Optional[float]) -> "MoveWait":
        return MoveWait(self, timeout)


class MoveWait:
    """The waiting of one call, which ends with its timeout at the latest."""

    def __init__(self, watch: MoveWatch, timeout: Optional[float]):
        self._watch = watch
        self._timeout = timeout
        self._start = time.monotonic()
        self._pause = _FIRST_PAUSE

    def left(self) -> Optional[float]:
        """Seconds of the call's timeout that are left, at least a moment; None: no timeout."""
        if self._timeout is None:
            return None
        return max(self._timeout - (time.monotonic() - self._start), 0.001)

    def _may_help(self, error: Optional[AttndError], pause: float) -> bool:
        if error is None:
            return False
        after = time.monotonic() - self._start + pause
        if self._timeout is not None and after >= self._timeout:
            return False
        if error.reason == "SESSION_MOVING":
            return after - pause < self._watch.move_wait
        # Behind a balancer a session that moves is unknown at its new place until it has arrived.
        arriving = error.reason == "SESSION_UNKNOWN" and self._watch.new_replica()
        return arriving and after - pause < self._watch.arrival_wait

    def after(self, error: Optional[AttndError]) -> Optional[float]:
        """Seconds to wait before sending the same again; None where that cannot help."""
        if error is None:
            return None
        advised = min(error.retry_after or 0.0, _LONGEST_PAUSE)  # moves end when they end
        pause = max(self._pause * random.uniform(0.5, 1.0), advised)
        if not self._may_help(error, pause):
            return None
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return pause

    def sequences(self, result: DecodeResult) -> Tuple[List[int], float]:
        """Which sequences of a decode wait for a move, and the seconds to wait."""
        moving = [i for i, one in enumerate(result.results) if self._may_help(one.error, 0.0)]
        pauses = [self.after(result.results[i].error) for i in moving[:1]]
        if not pauses or pauses[0] is None:
            return [], 0.0
        return moving, pauses[0]
