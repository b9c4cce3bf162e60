"""Pipelined steps over the losses of streams, servers and sessions."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence

import numpy as np
from google.protobuf.duration_pb2 import Duration

from . import _calls, _channel, _mending
from ._recovery import Cause, Recovery, cause_of, is_broken
from ._step_book import expect
from ._turns import AnswerThread, Turn, check_may_wait
from ._unanswered import Unanswered
from ._work import IsTrouble
from .errors import AttndError, Cancelled, Internal, Unavailable
from .steps import StepFuture, StepStream
from .types import SequenceStep

if TYPE_CHECKING:
    from .client import Client


class _Step:
    """A step from its submission to its answer."""

    def __init__(self, work: Any, allowed: Optional[Duration], turn: Turn):
        self.work, self.allowed, self.turn = work, allowed, turn
        work.streamed = True
        self.future = StepFuture()
        self.future.set_running_or_notify_cancel()
        self.sent_as = 0  # its number on the stream that it is on now; 0: on none
        self.trouble: Optional[AttndError] = None
        self.cancelled = False


class ResumingStepStream:
    """A StepStream that goes on when streams end or sessions move; by Client.steps(resume=True).

    When the server drains or dies, or a session moves, a new stream is opened where calls go now
    and what is unanswered is sent again, in order: a Session that has moved is waited for, a
    ReplayingSession that is lost is made anew. The steps of all sessions wait meanwhile. A step
    fails when its session cannot be brought back, or not within the client's recovery_timeout.
    A step that is not next to the one before it, in its session's layer, or behind one that
    rewinds, is sent when that one is answered; the others are pipelined.

    A ReplayingSession's rows have the order of the calls and steps that bring them: where a layer
    has unanswered steps on another stream, the submitting of a step waits for their answers.
    """

    def __init__(self, client: "Client"):
        self._client = client
        self._state = threading.Condition()
        self._steps = Unanswered()
        self._held: List[_Step] = []  # those of them that wait to be sent
        self._last_id = 0
        self._recovery = Recovery(client._recovery_timeout, lambda: len(self._steps) > 0)
        self._mending = False
        self._mender: Optional[threading.Thread] = None  # for as long as it has work
        self._ended: Optional[AttndError] = None
        self._stream: StepStream = client._open_steps()

    def __enter__(self) -> "ResumingStepStream":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._cancel_all()
        self.close()

    def close(self) -> None:
        """Takes no more steps, waits for the answers of those there are, ends the stream."""
        check_may_wait()
        with self._state:
            self._ended = self._ended or Unavailable("the stream is closed")
            self._state.wait_for(lambda: not len(self._steps) and not self._mending)
        self._stream.close()

    def submit_prefill(
        self,
        session: Any,
        layer: int,
        hidden: np.ndarray,
        position: Optional[int] = None,
        *,
        rewind: bool = False,
        output_rows: str = "all",
        output_dtype: Any = None,
        wire_dtype: Any = None,
        expected_length: int = 0,
        timeout: Optional[float] = None,
    ) -> StepFuture:
        """As StepStream.submit_prefill; `timeout` begins anew when the step is sent again."""
        options = dict(
            rewind=rewind,
            output_rows=output_rows,
            output_dtype=output_dtype,
            wire_dtype=wire_dtype,
            expected_length=expected_length,
        )
        steps = [SequenceStep(session, len(hidden), position)]

        def make(positions: List[int]) -> Any:
            return _mending.prefill_work(session, layer, positions[0], hidden, options)

        return self._submit(layer, steps, make, timeout)

    def submit_decode(
        self,
        layer: int,
        sequences: Sequence[_calls.SequenceLike],
        hidden: np.ndarray,
        *,
        output_dtype: Any = None,
        wire_dtype: Any = None,
        timeout: Optional[float] = None,
    ) -> StepFuture:
        """As StepStream.submit_decode; `timeout` begins anew when the step is sent again."""
        steps = _calls.as_steps(sequences)
        dtypes = dict(output_dtype=output_dtype, wire_dtype=wire_dtype)

        def make(positions: List[int]) -> Any:
            request = _calls.decode_request(layer, steps, positions, hidden, **dtypes)
            return _mending.decode_work(layer, steps, positions, request)

        return self._submit(layer, steps, make, timeout)

    def cancel(self, step_id: int) -> None:
        """Asks the server to cancel a step, which then fails with attnd.Cancelled."""
        with self._state:
            step = self._steps.get(step_id)
            if step is None:
                return
            step.cancelled = True  # should it be sent again
            if step.sent_as:
                self._stream.cancel(step.sent_as)
                return
            self._give_up(step, _cancelled())
            self._forget(step)
        self._finish(step)

    def _submit(
        self,
        layer: int,
        steps: Sequence[SequenceStep],
        make: Callable[[List[int]], Any],
        timeout: Optional[float],
    ) -> StepFuture:
        allowed = _channel.step_timeout(timeout)
        sessions = [one.session for one in steps]
        turn = _mending.turn(self._client, sessions, [layer], holder=self)
        try:
            self._client._positions(layer, steps)  # asks for those that are unknown, without the lock
            with self._state:
                if self._ended is not None:
                    raise self._ended
                positions = self._client._positions(layer, steps)
                step = _Step(make(positions), allowed, turn)
                self._last_id += 1
                step.future.step_id = self._last_id
                expect(steps, layer, positions)
                try:
                    self._admit(step)
                except BaseException:
                    self._steps.remove(step)
                    self._give_up(step, _cancelled())
                    raise
                return step.future
        except BaseException:
            turn.give()
            raise

    # ---------------------------------------------------------------- with the lock held

    def _admit(self, step: _Step) -> None:
        self._steps.add(step)
        if self._must_wait(step, self._held):
            self._held.append(step)
        elif not self._mending:
            self._send(step)

    def _must_wait(self, step: _Step, held: List[_Step]) -> bool:
        """For answers, or behind one that does and comes first."""
        if not self._steps.follow(step):
            return True
        mine = set(step.work.sessions()) if held else set()
        return any(mine & set(one.work.sessions()) for one in held)

    def _forget(self, step: _Step) -> bool:
        """Whether the step was still waited for, which it is no longer."""
        known = self._steps.remove(step)
        if not self._mending:
            self._release()
        self._state.notify_all()
        return known

    def _release(self) -> None:
        """Sends what no longer waits for others."""
        held, self._held = self._held, []
        for step in held:
            if step not in self._steps:
                continue
            if self._mending or self._must_wait(step, self._held):
                self._held.append(step)
            else:
                self._send(step)

    def _send(self, step: _Step) -> None:
        trouble = _mending.unsettled(step.work)
        if trouble is not None:
            self._trouble(step, trouble)
            return
        stream = self._stream
        step.work.address()
        try:
            answered = functools.partial(self._answered, step)
            sent_as = stream._send(step.work, step.allowed, answered)
            step.work.sent = True
            step.sent_as = 0 if step.trouble else sent_as
        except AttndError as error:  # the stream has ended
            self._trouble(step, error)

    def _trouble(self, step: _Step, error: AttndError) -> None:
        step.sent_as, step.trouble, self._mending = 0, error, True
        if self._mender is None:
            self._mender = AnswerThread(target=self._mend, name="attnd-resume", daemon=True)
            self._mender.start()

    # ---------------------------------------------------------------- answers

    def _answered(self, step: _Step, future: StepFuture) -> None:
        """A done-callback, of which nobody would see an exception: the step's future has it."""
        try:
            self._take(step, future)
        except Exception as error:
            with self._state:
                self._forget(step)
            if not step.future.done():
                self._fail(step, error)

    def _take(self, step: _Step, future: StepFuture) -> None:
        failure = future.exception()
        with self._state:
            if step not in self._steps:
                return
            test = self._trouble_test(step)
            if failure is None:
                failure = step.work.accept(future.result(), test)
                mendable = failure is not None
            else:
                mendable = isinstance(failure, AttndError) and self._is_mendable(step, failure, test)
            if mendable:
                self._trouble(step, failure)
                return
            if isinstance(failure, AttndError):
                step.work.give_up(failure)  # before those that waited for it are sent
            self._forget(step)
            if failure is None and not any(one.work.repeated for one in self._steps.all()):
                self._recovery.over()
        if failure is None:
            self._finish(step)
        else:
            self._fail(step, failure)

    @staticmethod
    def _is_mendable(step: _Step, error: AttndError, test: IsTrouble) -> bool:
        """For some of the step's sessions: then the others have failed, as one that was closed."""
        lost = [session for session in step.work.sessions() if not test(session, error)]
        mendable = len(lost) < len(step.work.sessions())
        if mendable:
            for session in lost:
                step.work.refuse(session, error)
        return mendable

    def _trouble_test(self, step: _Step) -> IsTrouble:
        """A step is not where the layer ends if the one before it is yet to be sent again."""
        own = _mending.trouble_test(step.work)

        def is_trouble(session: Any, error: AttndError) -> bool:
            if error.reason != "POSITION_MISMATCH":
                return own(session, error)
            before = self._steps.before(step, session)
            return own(session, error) or any(one.trouble is not None for one in before)

        return is_trouble

    @staticmethod
    def _finish(step: _Step) -> None:
        step.turn.give()  # before the callbacks, which may be the next to take it
        try:
            result = step.work.result()
        except Exception as error:
            step.future.set_exception(error)
        else:
            step.future.set_result(result)

    def _fail(self, step: _Step, error: BaseException) -> None:
        if isinstance(error, AttndError):
            step.work.give_up(error)
            self._finish(step)
            return
        try:
            step.work.give_up(Internal(str(error)))  # it may be done
        finally:
            step.turn.give()
            step.future.set_exception(error)

    def _cancel_all(self) -> None:
        """Every step fails, with CANCELLED those that are on the stream."""
        with self._state:
            self._ended = self._ended or Unavailable("the stream is closed")
            self._recovery.stop()
        self._stream._end(cancel=True)

    # ---------------------------------------------------------------- mending

    def _mend(self) -> None:
        """Of the thread that runs while something is in trouble."""
        try:
            while True:
                self._stream.close()  # what else was sent on it is answered first
                with self._state:
                    waiting = self._steps.all()
                    troubles = [step.trouble for step in waiting]
                    for step in waiting:
                        step.trouble = None
                self._bring_back(waiting, troubles)
                with self._state:
                    if self._resume():
                        return
        except Exception as error:  # as of a client that was closed
            with self._state:
                self._ended = Unavailable(f"the stream has ended: {error}")
                lost, self._steps = self._steps.all(), Unanswered()
                self._mending, self._mender = False, None
                self._state.notify_all()
            for step in lost:
                self._fail(step, error)

    def _bring_back(self, steps: List[_Step], troubles: List[Optional[AttndError]]) -> None:
        with self._state:
            for step in steps:
                if step.cancelled:
                    self._give_up(step, _cancelled())
        errors = sorted((error for error in troubles if error is not None), key=_says_little)
        try:
            if errors:
                works = [step.work for step in steps]
                _mending.mend(self._client, works, errors[0], self._recovery, self._state)
        except AttndError as final:
            self._recovery.over()
            with self._state:
                for step, trouble in zip(steps, troubles):
                    if trouble is not None:
                        step.work.repeated |= is_broken(trouble)
                        step.work.give_up(final)
        with self._state:
            if self._recovery.stopped:  # none is sent again, also of those that came meanwhile
                for step in steps:
                    self._give_up(step, _cancelled("the stream was left"))
            # Of those that were cancelled meanwhile nobody waits any more.
            done = [step for step in steps if not step.work.sessions() and self._forget(step)]
            if not any(step in self._steps for step in steps):
                self._recovery.over()  # those that came meanwhile have time of their own
        for step in done:
            self._finish(step)

    @staticmethod
    def _give_up(step: _Step, error: AttndError) -> None:
        """What was sent may be done."""
        step.work.repeated |= step.work.sent
        step.work.give_up(error)

    def _resume(self) -> bool:
        """Opens a stream and sends what is unanswered; False when that met trouble again."""
        if self._recovery.stopped and len(self._steps):
            return False  # those came meanwhile: _bring_back gives them up
        if any(step.trouble is not None for step in self._steps.all()):
            return False  # since then
        self._stream = self._client._open_steps()
        self._mending, self._held = False, self._steps.all()
        self._release()  # perhaps into trouble again
        self._state.notify_all()
        if not self._mending:
            self._mender = None
        return not self._mending


def _says_little(error: AttndError) -> int:
    """A session is not there for one of many reasons; a position is wrong for that of another."""
    cause = cause_of(error)
    return 2 if cause is None else cause is Cause.ABSENT


def _cancelled(why: str = "the step was cancelled") -> Cancelled:
    return Cancelled(why, reason="STEP_CANCELLED")
