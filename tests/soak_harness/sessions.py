"""A session of a soaking client, and the verdict on what a step of it came to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import FrozenSet, Optional, Set

import numpy as np

import attnd

from . import streams
from .history import History, Step
from .ledger import Ledger

# What was done to a call beside sending it. gRPC's own statuses, which carry no reason, are
# expected for these alone.
OWN_STATUSES = {
    "plain": frozenset(),
    "cancel": frozenset({"CANCELLED"}),
    "deadline": frozenset({"DEADLINE_EXCEEDED"}),
    "kill": frozenset({"UNAVAILABLE", "CANCELLED"}),
}
STOPPED = frozenset({"STEP_TIMEOUT", "STEP_CANCELLED"})


@dataclass
class Outcome:
    """What one sequence of a call, or a step of a stream, came to."""

    error: Optional[attnd.AttndError] = None
    output: Optional[np.ndarray] = None
    output_position: Optional[int] = None
    length: Optional[int] = None  # the layer's, also after a failure; None where nobody said it

    @property
    def reason(self) -> str:
        """The server's reason, or gRPC's code where it has none; "" for success."""
        return "" if self.error is None else self.error.reason or self.error.code.name


class SoakSession:
    """A session with its history. `gone` once it has ended, for whatever reason."""

    def __init__(
        self, handle: attnd.AsyncSession, history: History, ttl: float, evictable: bool, sent: float
    ):  # fmt: skip
        self.handle = handle
        self.history = history
        self.ttl = self.least_ttl = ttl  # where it is not known for certain, from the one to the other
        self.evictable = evictable
        self.closing = False  # a CloseSession was sent
        self.gone = False
        self.touched = sent  # when the last call was sent that restarted the idle time for certain
        self.touched_by = "its begin"
        self.named = sent  # when the last call was sent that may have done so

    @property
    def id(self) -> str:
        return self.handle.session_id

    def touch(self, sent: float, what: str, refused: bool = False) -> None:
        """The server has answered a call that named the session.

        One that is refused (QUEUE_FULL, say) restarts the idle time too, but does not tell that
        the session is there: where it may have expired before, that goes on being so.
        """
        self.named = sent
        if not refused or time.monotonic() - self.touched < self.least_ttl:
            self.touched, self.touched_by = sent, what

    @property
    def reserved(self) -> bool:
        return self.history.max_tokens > 0

    def may_be_gone(self) -> FrozenSet[str]:
        """The reasons with which a call may now find that the session has ended."""
        reasons = set()
        if time.monotonic() - self.touched >= self.least_ttl:
            reasons.add("SESSION_EXPIRED")
        if self.evictable and not self.reserved:
            reasons.add("SESSION_EVICTED")
        if self.closing:
            reasons.add("SESSION_CLOSED")
        return frozenset(reasons)


class Judge:
    """Holds outcomes against the histories, and tells the ledger."""

    def __init__(self, ledger: Ledger, relayed: bool = False):
        self.ledger = ledger
        self._relayed = relayed  # the client breaks its own connection: any call may notice

    def own_statuses(self, how: str) -> FrozenSet[str]:
        """gRPC's codes that a call of this client may end with."""
        return OWN_STATUSES[how] | (OWN_STATUSES["kill"] if self._relayed else frozenset())

    def gone(self, session: SoakSession, reason: str, what: str) -> bool:
        """Whether the reason says that the session has ended; a finding if it must not have."""
        if not reason.startswith("SESSION_") or reason == "SESSION_MOVING":
            return False
        if reason not in session.may_be_gone():
            idle = time.monotonic() - session.touched
            text = f"{what}: {reason} after {idle:.2f} s of a ttl of {session.ttl:g} s, by {session.touched_by}"
            self.ledger.find("unexpected refusal", text)
        self.ledger.refuse(reason)
        session.gone = True
        return True

    def step(
        self, session: SoakSession, step: Step, outcome: Outcome, how: str, sent: float,
        in_band: bool = False, stopped: bool = False,
    ) -> str:  # fmt: skip
        """ "done", "refused" (the layer is as it was), "gone", or "unknown": then it is pending.

        `how` is a key of OWN_STATUSES; `stopped` says that a step of a stream had a timeout or
        was cancelled.
        """
        history, layer = session.history, session.history.layers[step.layer]
        reason, what = outcome.reason, f"session {session.id} {step}"
        if self.gone(session, reason, what):
            return "gone"
        if reason in self.own_statuses(how) or (reason in STOPPED and not in_band and how != "plain"):
            if "" not in self.allowed(session, step, unary=not in_band):
                return "refused"  # whether or not it arrived
            layer.pending = layer.pending or step
            return "unknown"
        said = f"{step} {how}{' in band' * in_band}: {reason or 'done'}"
        session.touch(sent, said, refused=reason != "")
        allowed = self.allowed(session, step, unary=not in_band)
        if reason == "":
            self._answer(session, step, outcome, what, allowed)
            history.apply(step)
            return "done"
        if outcome.length not in (None, layer.length, layer.pending and layer.pending.end):
            self.ledger.find("wrong answer", f"{what}: {reason}, length {outcome.length} ({layer})")
        if stopped and reason in STOPPED:
            self.ledger.refuse(reason)
            return "refused"
        if reason == "QUEUE_FULL" or (reason == "CACHE_FULL" and "" in allowed and not session.reserved):
            self.ledger.refuse(reason)
            return "refused"
        if reason not in allowed:
            expected = " or ".join(sorted(name or "success" for name in allowed))
            text = f"{what}: {outcome.error}; expected {expected} (layer: {layer}, how: {how})"
            self.ledger.find("unexpected refusal", text)
            session.gone = True  # its history is no longer to be relied on
            return "gone"
        self.ledger.refuse(reason)
        return "refused"

    @staticmethod
    def allowed(session: SoakSession, step: Step, unary: bool = True) -> Set[str]:
        """The step's expected refusals, "" for success; a repeat finds it done or not done."""
        history = session.history
        if history.layers[step.layer].pending is None:
            return history.refusals(step, unary)
        after = history.copy()
        after.apply(step)
        return history.refusals(step, unary) | after.refusals(step, unary)

    def _answer(
        self, session: SoakSession, step: Step, outcome: Outcome, what: str, allowed: Set[str]
    ) -> None:
        if "" not in allowed:
            self.ledger.find("unexpected success", f"{what}: expected {' or '.join(sorted(allowed))}")
        if outcome.length != step.end:
            self.ledger.find("wrong answer", f"{what}: length {outcome.length}")
        begin, _ = session.history.answered(step)
        if outcome.output_position not in (None, begin):
            self.ledger.find("wrong answer", f"{what}: rows from {outcome.output_position}, not {begin}")
        expected = session.history.expected(step)
        fault = streams.wrong(outcome.output, expected)
        if fault:
            layer = session.history.layers[step.layer]
            self.ledger.find("wrong answer", f"{what}: {fault} ({layer})")
        self.ledger.count("rows checked", len(expected))
