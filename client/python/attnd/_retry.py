"""Repeating a step whose outcome is not known.

A call that ends without an answer may or may not have appended its rows. Sending it again with
`rewind` at the same position is right either way; `expected_length`, the length that the step
leaves, stops a repeat that arrives late from cutting what came after it.
"""

from __future__ import annotations

import math
import random
from typing import Any, Optional

from .errors import AttndError, DeadlineExceeded, Unavailable

_FIRST_WAIT = 0.05  # seconds; doubled each time
_LONGEST_WAIT = 2.0
_LONGEST_ADVISED = 60.0


def may_help(error: AttndError) -> bool:
    """Whether sending the same again can succeed.

    A drain ends only with the server, and a session that moves has been waited for (_moves.py).
    """
    if isinstance(error, Unavailable):
        return error.reason not in ("DRAINING", "SESSION_MOVING")
    return isinstance(error, DeadlineExceeded)


class Attempts:
    """Decides after each failure whether, when and as what a DecodeRequest is sent again."""

    def __init__(self, request: Any, retries: int):
        if retries < 0:
            raise ValueError(f"retries is {retries}; expected 0 or more")
        self._request = request
        self._left = retries
        self._wait = _FIRST_WAIT
        self.repeated = False  # whether the request has been sent again

    def after(self, error: AttndError, timeout: Optional[float]) -> Optional[float]:
        """Seconds to wait before sending the request again; None: the error is final.

        `timeout` is that of a try: a server that wants a longer wait is not waited for.
        """
        if self._left == 0 or not may_help(error):
            return None
        wait = self._wait
        if error.retry_after is not None:
            wait = max(error.retry_after, 0.0)
            if wait > min(_LONGEST_ADVISED, math.inf if timeout is None else timeout):
                return None
        self._left -= 1
        self.repeated = True
        self._guard()
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        return wait * random.uniform(0.8, 1.2)

    def _guard(self) -> None:
        for step in self._request.sequences:
            if not step.rewind:  # a caller's own unguarded rewind repeats as it is
                step.rewind = True
                step.expected_length = step.position + step.num_tokens


class PrefillAttempts(Attempts):
    """The same for a PrefillRequest.

    A caller's own rewind starts at another length than `position`. When its first try was never
    carried out the layer still has that length, and only the caller's own guard lets it pass.
    """

    def __init__(self, request: Any, retries: int):
        super().__init__(request, retries)
        self._own_rewind = request.rewind
        self._own_guard = request.expected_length
        self._guarded = False

    def after(self, error: AttndError, timeout: Optional[float]) -> Optional[float]:
        if self._guarded and self._own_rewind and error.reason == "POSITION_MISMATCH":
            self._request.expected_length = self._own_guard
            self._guarded = False
            return 0.0
        return super().after(error, timeout)

    def _guard(self) -> None:
        self._request.rewind = True
        self._request.expected_length = self._request.position + self._request.hidden.shape[0]
        self._guarded = True
