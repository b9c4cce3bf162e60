"""Whose turn it is: a layer's rows come on calls and on streams, and have one order all the same."""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .errors import DeadlineExceeded


class AnswerThread(threading.Thread):
    """One that takes answers, and runs the callbacks of their futures."""


def check_may_wait() -> None:
    """Raises where waiting for an answer would keep it from being taken."""
    if isinstance(threading.current_thread(), AnswerThread):
        raise RuntimeError("a step's callback would wait for the answers of others: call elsewhere")


class Turns:
    """Of one session. A layer is that of one holder at a time, who may take it more than once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: Dict[int, Tuple[Any, int]] = {}  # by layer: the holder, and how often

    def take(self, layers: Sequence[int], holder: Any, until: Optional[float]) -> None:
        """Waits until all of them are free; DeadlineExceeded after `until`, of time.monotonic()."""

        def free() -> bool:
            return all(self._held.get(layer, (holder, 0))[0] is holder for layer in layers)

        with self._changed:
            if not free():
                check_may_wait()
                left = None if until is None else until - time.monotonic()
                if not self._changed.wait_for(free, left):
                    raise DeadlineExceeded("the session has unanswered steps on another path")
            for layer in layers:
                self._held[layer] = holder, self._held.get(layer, (holder, 0))[1] + 1

    def give(self, layers: Sequence[int]) -> None:
        with self._changed:
            for layer in layers:
                holder, count = self._held.pop(layer)
                if count > 1:
                    self._held[layer] = holder, count - 1
            self._changed.notify_all()


class Turn:
    """What a call, or a step of a stream, has until it is answered; `with` gives it back then.

    Of the sessions, those that replay have turns: the others have no history that needs an order.
    """

    def __init__(
        self,
        sessions: Iterable[Any],
        layers: Sequence[int],
        timeout: Optional[float],
        holder: Any = None,
    ):
        """`timeout`: seconds to wait for others; `holder`: a stream, whose steps are in order."""
        until = None if timeout is None else time.monotonic() + timeout
        self._layers = layers
        self._taken: List[Turns] = []
        turns = {id(one._turns): one._turns for one in sessions if getattr(one, "replays", False)}
        try:
            for _, one in sorted(turns.items()):  # in one order everywhere: no two wait in a circle
                one.take(layers, holder or self, until)
                self._taken.append(one)
        except BaseException:
            self.give()
            raise

    def __enter__(self) -> "Turn":
        return self

    def __exit__(self, *_: Any) -> None:
        self.give()

    def give(self) -> None:
        """Once is enough."""
        while self._taken:
            self._taken.pop().give(self._layers)
