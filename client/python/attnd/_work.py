"""A step on its way through losses: what of it is answered, and what is sent again."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _calls
from ._proto import attnd_pb2 as pb
from .errors import AttndError, NotFound, is_unsure
from .types import DecodeResult, PrefillResult, SequenceResult, SequenceStep, Timing

IsTrouble = Callable[[Any, AttndError], bool]  # of a session's error: whether to get over it


def id_of(session: Any) -> str:
    return session if isinstance(session, str) else session.session_id


def _address(step: Any, session: Any) -> None:
    """Names the session as it is named now: made anew it has another id."""
    step.session_id = id_of(session)


def _aim(step: Any, length: int, own: Tuple[bool, int]) -> bool:
    """Lets a step begin at its position, where the layer may have `length` rows: whether it cuts.

    The guard stops a repeat that arrives late from cutting what came after it.
    """
    cuts = length > step.position
    step.rewind, step.expected_length = (True, length) if cuts else own
    return cuts


def _fits(step: Any, own: Tuple[bool, int], end: int) -> bool:
    """Whether a layer of `end` rows takes the step, as its caller made it."""
    rewind, guard = own
    return step.position == end or (rewind and step.position < end and guard in (0, end))


def _accept(
    session: Any, step: Any, layer: int, rows: pb.Tensor, length: Optional[int]
) -> Optional[AttndError]:
    """`length`: the layer's now; None on a stream, where sessions are ahead of their answers.

    The error is that of a step which has to be sent again.
    """
    if isinstance(session, str):
        return None
    if not session._accept(step.session_id, layer, step.position, rows):
        text = f"session {step.session_id} has been made anew as {session.session_id}"
        return NotFound(text, reason="SESSION_UNKNOWN")
    if length is not None:
        session._set(layer, length)
    return None


def _gave_up(work: Any, session: Any, position: int, rows: int, error: AttndError) -> None:
    if not isinstance(session, str):
        doubtful = work.repeated or is_unsure(error)
        session._gave_up(work.layer, position, rows, doubtful)


class PrefillWork:
    """A prefill of one session."""

    kind = "prefill"
    streamed = False
    sent = False

    def __init__(self, session: Any, layer: int, request: pb.PrefillRequest):
        self.layer, self.request = layer, request
        self._session = session
        self._own = (request.rewind, request.expected_length)
        self._result: Optional[PrefillResult] = None
        self._failure: Optional[AttndError] = None
        self.repeated = False  # whether an earlier try, of this step or one before, may be done

    def sessions(self) -> List[Any]:
        """Those of which there is no answer yet."""
        return [] if self._result or self._failure else [self._session]

    def address(self) -> None:
        """Names the sessions in the request, before it is sent."""
        _address(self.request, self._session)

    def names(self, session: Any) -> bool:
        """Whether the request has the name that the session has now."""
        return self.request.session_id == id_of(session)

    def place(self, session: Any) -> Tuple[int, int]:
        """Where the session's step begins, and its rows."""
        return self.request.position, self.request.hidden.shape[0]

    def starts(self) -> Dict[Any, int]:
        """Where the step of each session begins of which there is no answer yet."""
        return {session: self.place(session)[0] for session in self.sessions()}

    def ends(self) -> Dict[Any, Optional[int]]:
        """And where it ends; None where it may rewind."""
        end = None if self._own[0] else sum(self.place(self._session))
        return dict.fromkeys(self.sessions(), end)

    def only_append(self, sessions: Sequence[Any]) -> None:
        """Of these sessions the step may not rewind."""
        if self._own[0] and self._session in sessions:
            self._own = False, 0
            self.request.rewind, self.request.expected_length = self._own

    def steps_by_id(self) -> List[SequenceStep]:
        request = self.request
        return [SequenceStep(request.session_id, request.hidden.shape[0], request.position)]

    def fits(self, session: Any, end: int) -> bool:
        """Whether the session's layer of `end` rows takes the step."""
        return _fits(self.request, self._own, end)

    def aim(self, session: Any, length: int) -> None:
        """The session's layer has so many rows, or may have."""
        self.repeated |= _aim(self.request, length, self._own)

    def read(self, parts: Sequence[pb.PrefillResponse]) -> PrefillResult:
        return _calls.prefill_result(parts, self.request.hidden.shape[1])

    def accept(self, answer: PrefillResult, is_trouble: IsTrouble) -> Optional[AttndError]:
        length = None if self.streamed else answer.length
        error = _accept(self._session, self.request, self.layer, self.request.hidden, length)
        if error is None:
            self._result = answer
        return error

    def refuse(self, session: Any, error: AttndError) -> None:
        """The session's step has failed for good."""
        self._failure = error
        _gave_up(self, session, *self.place(session), error)

    def give_up(self, error: AttndError) -> None:
        """So has what is left."""
        for session in self.sessions():
            self.refuse(session, error)

    def result(self) -> PrefillResult:
        """The answer; raises the failure."""
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result


class DecodeWork:
    """A decode of many sessions; `request` has those of which there is no answer yet."""

    kind = "decode"
    streamed = False
    sent = False

    def __init__(self, steps: Sequence[SequenceStep], layer: int, request: pb.DecodeRequest):
        self.layer, self.request = layer, request
        self._steps = list(steps)
        self._left = list(range(len(steps)))
        self._answers: Dict[int, SequenceResult] = {}
        self._own = [(one.rewind, one.expected_length) for one in request.sequences]
        self._timing = Timing(0, 0, 0)
        self._width = request.hidden.shape[1]
        self.repeated = False

    def sessions(self) -> List[Any]:
        return [self._steps[index].session for index in self._left]

    def names(self, session: Any) -> bool:
        """Whether the request has the name that the session has now."""
        return any(one.session_id == id_of(session) for one in self.request.sequences)

    def address(self) -> None:
        """Names the sessions in the request, before it is sent."""
        for index, one in zip(self._left, self.request.sequences):
            _address(one, self._steps[index].session)

    def place(self, session: Any) -> Tuple[int, int]:
        """Where the session's step begins, and its rows."""
        at = self._places(session)[0]
        return self.request.sequences[at].position, self._steps[self._left[at]].num_tokens

    def starts(self) -> Dict[Any, int]:
        """Where the step of each session begins of which there is no answer yet."""
        left = zip(self.sessions(), self.request.sequences)
        return {session: one.position for session, one in left}

    def ends(self) -> Dict[Any, Optional[int]]:
        """And where it ends; None where it may rewind."""
        ends: Dict[Any, Optional[int]] = {}
        for index, one in zip(self._left, self.request.sequences):
            step, rewinds = self._steps[index], self._own[index][0]
            ends[step.session] = None if rewinds else one.position + step.num_tokens
        return ends

    def only_append(self, sessions: Sequence[Any]) -> None:
        """Of these sessions the step may not rewind."""
        for index, one in zip(self._left, self.request.sequences):
            if self._own[index][0] and self._steps[index].session in sessions:
                self._own[index] = False, 0
                one.rewind, one.expected_length = self._own[index]

    def _places(self, session: Any) -> List[int]:
        name = id_of(session)
        return [at for at, one in enumerate(self.sessions()) if id_of(one) == name]

    def steps_by_id(self) -> List[SequenceStep]:
        return [
            SequenceStep(one.session_id, self._steps[index].num_tokens, one.position)
            for index, one in zip(self._left, self.request.sequences)
        ]

    def fits(self, session: Any, end: int) -> bool:
        """Whether the session's layer of `end` rows takes the step."""
        at = self._places(session)[0]
        return _fits(self.request.sequences[at], self._own[self._left[at]], end)

    def aim(self, session: Any, length: int) -> None:
        for at in self._places(session):
            own = self._own[self._left[at]]
            self.repeated |= _aim(self.request.sequences[at], length, own)

    def read(self, parts: Sequence[pb.DecodeResponse]) -> DecodeResult:
        return _calls.decode_result(parts, self.steps_by_id(), self._width)

    def accept(self, answer: DecodeResult, is_trouble: IsTrouble) -> Optional[AttndError]:
        """Takes an answer; the error of what has to be sent again, None when nothing has."""
        self._timing = answer.timing
        again: List[int] = []
        trouble: Optional[AttndError] = None
        for place, (rows, one) in enumerate(zip(self._rows(), answer.results)):
            index = self._left[place]
            session = self._steps[index].session
            error = one.error
            if error is None:
                step, length = self.request.sequences[place], None if self.streamed else one.length
                error = _accept(session, step, self.layer, rows, length)
            if error is not None and is_trouble(session, error):
                again.append(place)
                trouble = trouble or error
                continue
            self._answers[index] = one
            if error is not None:
                _gave_up(self, session, *self.place(session), error)
        self._keep(again)
        return trouble

    def refuse(self, session: Any, error: AttndError) -> None:
        """The session's sequence has failed for good."""
        places = self._places(session)
        if not places:
            return  # it was cancelled meanwhile
        position, rows = self.place(session)
        none = np.zeros((rows, self._width), "f4")
        self._answers[self._left[places[0]]] = SequenceResult(none, 0, error)
        _gave_up(self, session, position, rows, error)
        self._keep([i for i in range(len(self._left)) if i != places[0]])

    def give_up(self, error: AttndError) -> None:
        """So has what is left."""
        for session in self.sessions():
            self.refuse(session, error)

    def result(self) -> DecodeResult:
        """The answer; raises where every sequence has failed."""
        answers = [self._answers[i] for i in range(len(self._steps))]
        good = next((one for one in answers if one.ok), None)
        if good is None and answers[0].error is not None:
            raise answers[0].error
        kind = good.output.dtype if good is not None else np.dtype("f4")
        output = np.concatenate([one.output.astype(kind, copy=False) for one in answers])
        output.flags.writeable = False
        return DecodeResult(answers, output, self._timing)

    def _rows(self) -> List[pb.Tensor]:
        """The rows of each sequence that is left."""
        hidden, tensors, first = self.request.hidden, [], 0
        data, size = hidden.data, len(hidden.data) // max(1, hidden.shape[0])
        for index in self._left:
            end = first + self._steps[index].num_tokens
            part = data[first * size : end * size]
            tensors.append(
                pb.Tensor(dtype=hidden.dtype, shape=[end - first, self._width], data=part)
            )
            first = end
        return tensors

    def _keep(self, places: Sequence[int]) -> None:
        """Leaves only these of the sequences that are left."""
        if len(places) == len(self._left):
            return
        rows, old = self._rows(), self.request
        kept = [rows[place] for place in places]
        hidden = pb.Tensor(
            dtype=old.hidden.dtype,
            shape=[sum(one.shape[0] for one in kept), self._width],
            data=b"".join(one.data for one in kept),
        )
        self.request = pb.DecodeRequest(
            layer=old.layer,
            sequences=[old.sequences[place] for place in places],
            output_dtype=old.output_dtype,
            hidden=hidden,
        )
        self._left = [self._left[place] for place in places]
