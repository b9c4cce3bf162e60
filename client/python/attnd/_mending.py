"""Steps that are repeated over the loss of their sessions."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, Optional, Sequence

import numpy as np

from . import _calls, _channel
from ._proto import attnd_pb2 as pb
from ._recovery import Cause, Recovery, cause_of, found
from ._turns import Turn
from ._work import DecodeWork, PrefillWork, id_of
from .errors import AttndError, Cancelled, FailedPrecondition, NotFound
from .types import DecodeResult, PrefillResult, SequenceStep


def prefill(
    session: Any,
    layer: int,
    position: Optional[int],
    hidden: np.ndarray,
    options: Any,
    timeout: Optional[float],
) -> PrefillResult:
    """A call's, behind what is unanswered of the session on streams."""
    with turn(session._client, [session], [layer], timeout):
        start = session._position(layer, position)
        work = prefill_work(session, layer, start, hidden, options)
        return _run(session._client, work, timeout)


def decode(
    client: Any,
    layer: int,
    steps: Sequence[SequenceStep],
    hidden: np.ndarray,
    dtypes: Dict[str, Any],
    timeout: Optional[float],
) -> DecodeResult:
    """As prefill."""
    with turn(client, [step.session for step in steps], [layer], timeout):
        positions = client._positions(layer, steps)
        request = _calls.decode_request(layer, steps, positions, hidden, **dtypes)
        return _run(client, decode_work(layer, steps, positions, request), timeout)


def turn(
    client: Any,
    sessions: Sequence[Any],
    layers: Sequence[int],
    timeout: Optional[float] = None,
    holder: Any = None,
) -> Turn:
    """Waits no longer than a call of this timeout would, or than others have to get over a loss."""
    seconds = _channel.deadline(timeout, client._timeout)
    longest = None if seconds is None else max(seconds, client._recovery_timeout)
    return Turn(sessions, layers, longest, holder)


def prefill_work(
    session: Any, layer: int, position: int, hidden: np.ndarray, options: Any
) -> PrefillWork:
    request = _calls.prefill_request(id_of(session), layer, position, hidden, **options)
    work = PrefillWork(session, layer, request)
    _take_place(work, session, position)
    return work


def decode_work(
    layer: int, steps: Sequence[SequenceStep], positions: Sequence[int], request: pb.DecodeRequest
) -> DecodeWork:
    work = DecodeWork(steps, layer, request)
    for step, position in zip(steps, positions):
        _take_place(work, step.session, position)
    return work


def unsettled(work: Any) -> Optional[AttndError]:
    """Why a step must not be sent before its sessions are brought back; None: it may be."""
    for session in work.sessions():
        if not isinstance(session, str) and session._unsettled(work.layer, work.place(session)[0]):
            text = f"session {id_of(session)} may hold rows of a step that failed"
            return NotFound(text, reason="SESSION_UNKNOWN")
    return None


def _take_place(work: Any, session: Any, position: int) -> None:
    """Of a step that has failed before this one."""
    if not isinstance(session, str):
        work.aim(session, session._length_for(work.layer, position))


def _run(client: Any, work: Any, timeout: Optional[float]) -> Any:
    """The result of a step, over losses of its sessions."""
    try:
        return _answer(client, work, timeout)
    except BaseException as error:
        if not isinstance(error, AttndError):  # an interrupt: the step may be done
            work.give_up(Cancelled("the call was interrupted"))
        raise


def _answer(client: Any, work: Any, timeout: Optional[float]) -> Any:
    recovery = Recovery(client._recovery_timeout)
    method = getattr(client._stubs.attention, work.kind.capitalize())
    error = unsettled(work)
    while work.sessions():
        if error is None:
            work.address()
            work.sent = True
            try:
                answer = client._once(method, work.request, timeout)
                error = work.accept(work.read([answer]), trouble_test(work))
            except AttndError as failure:
                error = failure
        if error is None:
            break
        try:
            mend(client, [work], error, recovery)
        except AttndError as final:
            work.give_up(final)
        error = None
    return work.result()


def trouble_test(work: Any) -> Callable[[Any, AttndError], bool]:
    """Whether an error of a session is one to get over."""

    def is_trouble(session: Any, error: AttndError) -> bool:
        closed = not isinstance(session, str) and session._closed
        return not closed and cause_of(error, work.repeated) is not None

    return is_trouble


def mend(
    client: Any,
    works: Sequence[Any],
    error: AttndError,
    recovery: Recovery,
    lock: ContextManager[Any] = contextlib.nullcontext(),
) -> None:
    """Brings the sessions of steps back, so that these can be sent again; raises a final error.

    The steps are in order: where one layer has several, the first of them cuts it. One that is
    not next to those before it has lost the step between, which failed: so does it; and so does one
    that the server would have refused, where it is known. Those that may be done are marked as
    `repeated`. Steps may be given up meanwhile by others who hold the lock.
    """
    cause = recovery.take(error, any(work.repeated for work in works))
    client._moves.note_failure(error)
    recovery.pause(error)
    infos: Any = {}  # by session: what the server has, or why there is nothing
    ends: Any = {}  # by session and layer: where the steps so far end
    for work in works:
        for session in work.sessions():
            if session not in infos:
                own = cause if work.names(session) else Cause.ABSENT  # it was that of another id
                infos[session] = _brought_back(client, session, own, recovery)
    with lock:
        for work in works:
            work.repeated |= work.sent
            for session in work.sessions():
                _line_up(work, session, infos[session], ends)


def _line_up(work: Any, session: Any, info: Any, ends: Any) -> None:
    place, layer = (session, work.layer), work.layer
    if isinstance(info, AttndError):
        work.refuse(session, info)
        return
    if layer >= len(info.layer_lengths):
        return
    position, rows = work.place(session)
    length = info.layer_lengths[layer]
    kept = None if isinstance(session, str) else session._kept_end(layer)
    end = ends.get(place, length if kept is None else kept)
    if position > end or (kept is not None and not work.fits(session, end)):
        text = f"position is {position}; expected {end}, the layer's length"
        work.refuse(session, FailedPrecondition(text, reason="POSITION_MISMATCH"))
        return
    if place not in ends:
        work.aim(session, length)
    ends[place] = position + rows


def _brought_back(client: Any, session: Any, cause: Cause, recovery: Recovery) -> Any:
    try:
        if isinstance(session, str):
            return found(client, session, cause, recovery, replays=False)
        return session._bring_back(cause, recovery)
    except AttndError as lost:
        return lost
