"""The ids of a session that is made anew: each time another, for what a server still holds under
an earlier one is not the session any more."""

from __future__ import annotations

import secrets
import threading
from typing import Iterable, List, Optional

_LONGEST = 128
_MOST_LEFT = 16


class Names:
    """Makes ids, and remembers those that were left behind on servers, the latest of them."""

    def __init__(self, name: Optional[str]):
        """`name`: the caller's, which is the first id and begins the others; None or "": none."""
        self._name = name or None
        self._left: List[str] = []
        self._lock = threading.Lock()  # guards the list: it is of several threads' calls

    def first(self) -> str:
        return self._name or self.another()

    def another(self) -> str:
        """An id that no session has had."""
        if self._name is None:
            return secrets.token_hex(16)
        ending = "." + secrets.token_hex(16)
        return self._name[: _LONGEST - len(ending)] + ending

    @property
    def left(self) -> List[str]:
        return list(self._left)

    def leave(self, session_id: str) -> None:
        """A server may still have it. The caller's own name may be another session's by now."""
        if session_id != self._name:
            with self._lock:
                self._left = [*self._left, session_id][-_MOST_LEFT:]

    def adopt(self, left: Iterable[str]) -> None:
        """Of a session that came to nothing."""
        for session_id in left:
            self.leave(session_id)

    def forget(self, session_id: str) -> None:
        with self._lock:
            self._left = [one for one in self._left if one != session_id]
