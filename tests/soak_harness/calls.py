"""One call and what is done to it meanwhile: nothing, a cancel, a deadline, a killed connection."""

from __future__ import annotations

import asyncio
import collections
import math
import random
import statistics
import sys
import time
from typing import Any, Coroutine, Deque, List, Optional, Sequence, Tuple

import attnd

from .history import Step
from .ledger import Ledger
from .relay import Relay
from .sessions import Outcome, SoakSession

BOUND = 90.0  # seconds within which every call must end, whatever the load


class ServiceTime:
    """Seconds that steps take now: the middle of the last ones."""

    def __init__(self) -> None:
        self._last: Deque[float] = collections.deque([0.02], maxlen=200)

    def add(self, seconds: float) -> None:
        self._last.append(seconds)

    def around(self, choose: random.Random) -> float:
        """A time at which an average step is about to start, runs, or has just ended."""
        return statistics.median(self._last) * choose.uniform(0.05, 1.8)


class Stuck(Exception):
    """A call did not end within the bound."""


async def bounded(call: Coroutine[Any, Any, Any], what: str, ledger: Ledger) -> Any:
    """The call's result; a finding, and where its task hangs, when it takes longer than BOUND."""
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=BOUND)
    except asyncio.CancelledError:  # the cancel is for the call; it says when it is over
        task.cancel()
        await asyncio.wait({task}, timeout=BOUND)
        raise
    if not done:
        ledger.find("stuck", f"{what} has not ended within {BOUND:g} s")
        task.print_stack(file=sys.stderr)
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        raise Stuck(what)
    return task.result()


class Caller:
    """Sends steps of one client."""

    def __init__(
        self, client: attnd.AsyncClient, relay: Optional[Relay], service: ServiceTime, ledger: Ledger,
        choose: random.Random,
    ):  # fmt: skip
        self.client = client
        self.relay = relay
        self.service = service
        self.ledger = ledger
        self.choose = choose

    async def prefill(self, session: SoakSession, step: Step, how: str = "plain") -> Outcome:
        call = session.handle.prefill(
            step.layer,
            session.history.hidden(step),
            step.position,
            rewind=step.rewind,
            output_rows=step.output_rows,
            expected_length=step.expected_length,
            timeout=self.timeout(how),
        )
        result, error = await self.disturbed(call, how, "Prefill")
        if error is not None:
            return Outcome(error)
        return Outcome(None, result.output, result.output_position, result.length)

    async def decode(
        self, hidden: Any, layer: int, parts: Sequence[attnd.SequenceStep], how: str = "plain"
    ) -> List[Outcome]:
        """An outcome a part; the call's own error is that of every part."""
        call = self.client.decode(layer, parts, hidden, timeout=self.timeout(how))
        result, error = await self.disturbed(call, how, "Decode")
        if error is not None:
            return [Outcome(error) for _ in parts]
        for one in result.results:
            if not one.ok and one.output.any():
                self.ledger.find("wrong answer", f"the rows of a failed sequence are not zero: {one.error}")
        return [Outcome(one.error, one.output, None, one.length) for one in result.results]

    async def disturbed(
        self, call: Coroutine[Any, Any, Any], how: str, method: str
    ) -> Tuple[Any, Optional[attnd.AttndError]]:
        """(result, None) or (None, error); a cancelled call's error is a Cancelled without reason."""
        self.ledger.count(f"{method} calls")
        begin = time.monotonic()
        task = asyncio.ensure_future(bounded(call, method, self.ledger))
        if how in ("cancel", "kill"):
            await asyncio.wait({task}, timeout=self.service.around(self.choose))
            if how == "kill" and self.relay is not None:
                self.ledger.count("kills", self.relay.break_all())
            elif not task.done():
                self.ledger.count("cancels")
                task.cancel()
        elif how == "deadline":
            self.ledger.count("deadlines")
        try:
            result = await task
        except attnd.AttndError as error:
            return None, error
        except asyncio.CancelledError:
            if not task.cancelled() or how != "cancel":
                raise
            return None, attnd.Cancelled("cancelled by the client")
        self.ledger.count(f"{method} answered")
        if how == "plain":
            self.service.add(time.monotonic() - begin)
        return result, None

    def timeout(self, how: str) -> float:
        return self.service.around(self.choose) if how == "deadline" else math.inf
