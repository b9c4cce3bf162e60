"""Whose turn it is: a layer's rows come on calls and on streams, and have one order all the same."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from .errors import DeadlineExceeded


class AnswerThread(threading.Thread):
    """One that takes answers, and runs the callbacks of their futures."""


def is_callback() -> bool:
    return isinstance(threading.current_thread(), AnswerThread)


def check_may_wait() -> None:
    """Raises where waiting for an answer would keep it from being taken."""
    if is_callback():
        raise RuntimeError("a step's callback would wait for the answers of others: call elsewhere")


class Turns:
    """Of one session. A layer is that of one holder at a time, who may take it more than once.

    Who waits comes before a holder that wants it once more: a stream that always has steps on their
    way would keep all others out. Only its steps' callbacks are let in, as they may not wait.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: Dict[int, Tuple[Any, int]] = {}  # by layer: the holder, and how often
        self._waiting: List[Set[int]] = []  # the layers of those who wait, the first first

    def take(self, layers: Sequence[int], holder: Any, until: Optional[float]) -> None:
        """Waits until all of them are free; DeadlineExceeded after `until`, of time.monotonic()."""

        wanted = set(layers)

        def free() -> bool:
            return all(self._held.get(layer, (holder, 0))[0] is holder for layer in layers)

        def first() -> bool:
            ahead = itertools.takewhile(lambda one: one is not wanted, self._waiting)
            return free() and not any(wanted & one for one in ahead)

        with self._changed:
            if not free() or (self._waiting and not first() and not is_callback()):
                check_may_wait()
                self._wait(wanted, first, until)
            for layer in layers:
                self._held[layer] = holder, self._held.get(layer, (holder, 0))[1] + 1

    def _wait(self, wanted: Set[int], first: Callable[[], bool], until: Optional[float]) -> None:
        self._waiting.append(wanted)
        try:
            left = None if until is None else until - time.monotonic()
            if not self._changed.wait_for(first, left):
                raise DeadlineExceeded("the session has unanswered steps on another path")
        finally:
            self._waiting = [one for one in self._waiting if one is not wanted]
            self._changed.notify_all()

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
