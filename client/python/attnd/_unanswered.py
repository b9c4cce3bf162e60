"""The unanswered steps of a stream, in the order submitted, and what each of them comes behind."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple


class Unanswered:
    """A step has `future.step_id` and `work`; the owner serialises the calls."""

    def __init__(self) -> None:
        self._steps: Dict[int, Any] = {}
        self._chains: Dict[Tuple[Any, int], List[Any]] = {}  # by session and layer
        self._places: Dict[int, List[Tuple[Any, int]]] = {}  # of each step

    def __len__(self) -> int:
        return len(self._steps)

    def __contains__(self, step: Any) -> bool:
        return step.future.step_id in self._steps

    def get(self, step_id: int) -> Optional[Any]:
        return self._steps.get(step_id)

    def all(self) -> List[Any]:
        return list(self._steps.values())

    def add(self, step: Any) -> None:
        places = [(session, step.work.layer) for session in dict.fromkeys(step.work.sessions())]
        for place in places:
            self._chains.setdefault(place, []).append(step)
        self._places[step.future.step_id] = places
        self._steps[step.future.step_id] = step

    def remove(self, step: Any) -> bool:
        """Whether it was there."""
        if self._steps.pop(step.future.step_id, None) is None:
            return False
        for place in self._places.pop(step.future.step_id):
            chain = self._chains[place]
            chain.remove(step)
            if not chain:
                del self._chains[place]
        return True

    def follow(self, step: Any) -> bool:
        """Whether the step is next to the one before it, of each of its sessions in the layer.

        Then it appends, also where it may rewind: if the one before it is not done, nor is it.
        Any other waits for the answer of that one. It cuts rows of it, or earlier ones: done while
        that one is refused, but will be sent again, it would overtake it; and if both were done and
        their answers lost, the earlier could not be repeated.

        So does one behind a step that may rewind: refused, that one may leave the layer as long as
        this one expects it. And one behind a step that is sent again: failing now, that one may
        have left its rows. (Earlier ones that are sent again hold up the one before it.)
        """
        ends: Dict[int, Dict[Any, Optional[int]]] = {}  # by step
        behind = []
        for session, start in step.work.starts().items():
            one = self._last_before(step, session, ends)
            if one is not None:
                if one.work.repeated or ends[one.future.step_id][session] != start:
                    return False
                behind.append(session)
        step.work.only_append(behind)
        return True

    def before(self, step: Any, session: Any) -> Iterator[Any]:
        """The session's steps before it in the layer, the last of them first."""
        later = True
        for one in reversed(self._chains[session, step.work.layer]):
            if not later:
                yield one
            elif one is step:
                later = False

    def _last_before(
        self, step: Any, session: Any, ends: Dict[int, Dict[Any, Optional[int]]]
    ) -> Optional[Any]:
        """The last of those that have no answer for the session; and where it ends."""
        for one in self.before(step, session):
            known = ends.get(one.future.step_id)
            if known is None:
                known = ends[one.future.step_id] = one.work.ends()
            if session in known:
                return one
        return None
