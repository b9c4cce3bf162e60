"""Actions on Steps: many steps in flight, timeouts, cancelled steps, slow readers, broken streams."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, List, Optional, Set

import attnd
from attnd import AsyncStepStream

from . import choosing
from .calls import bounded
from .client import SoakClient
from .history import Step
from .lifecycle import refusal
from .sessions import OWN_STATUSES, Outcome, SoakSession
from .steps import ATTEMPTS, OVERTAKING, end

MOST_STEPS = 40  # more than the server reads ahead of its answers


class SlowStepStream(AsyncStepStream):
    """A stream whose answers nobody reads for a while."""

    def __init__(self, method: Any, metadata: Any, pause: float):
        self._pause = pause
        super().__init__(method, metadata)

    async def _read(self) -> None:
        await asyncio.sleep(self._pause)
        await super()._read()


@dataclass
class Flying:
    """A step on its way."""

    session: SoakSession
    step: Step
    future: Any
    stopped: bool  # it has a timeout, or was cancelled
    sent: float


async def pipeline(c: SoakClient) -> None:
    """Sends many steps on one stream and holds every answer against the histories, in order."""
    sessions = c.choose.sample(c.settled(), min(3, len(c.settled())))
    if not sessions:
        return
    slow = c.choose.random() < 0.25
    lone = c.choose.random() < 0.5
    broken = "" if lone else how_to_break(c)
    try:
        await c.client.model(timeout=60)  # there is a connection
    except attnd.AttndError as error:
        refusal(c, error, set(), "GetModel")
        return
    method, metadata = c.client._stubs.attention.Steps, c.client._metadata
    pause = c.choose.uniform(0.5, 3) if slow else 0.0
    stream = SlowStepStream(method, metadata, pause)
    c.ledger.count("slow readers" if slow else "streams")
    flights = await (submit_lone if lone else submit)(c, stream, sessions)
    if broken:
        await asyncio.sleep(pause / 2 + c.setting.service.around(c.choose))
        c.ledger.count("broken streams")
        if broken == "kill":
            c.ledger.count("kills", c.relay.break_all())
        else:
            stream._responses.cancel()
    await bounded(stream.close(), f"Steps of client {c.number}", c.ledger)
    unknown: Set[SoakSession] = set()
    for flight in flights:
        if judge(c, flight, bool(broken or c.relay)):
            unknown.add(flight.session)
    for session in unknown:
        if not session.gone:
            if lone:  # they had variants of their own: nobody knows what is there
                await end(c, session)
                continue
            await resynchronize(c, session, [f.step for f in flights if f.session is session])


def how_to_break(c: SoakClient) -> str:
    """What happens to a whole stream: mostly nothing."""
    if c.choose.random() < 0.08:
        return "cancel"
    return "kill" if c.relay and c.choose.random() < 0.2 else ""


async def submit(c: SoakClient, stream: AsyncStepStream, sessions: List[SoakSession]) -> List[Flying]:
    """Random steps, planned as if all before them succeeded; each layer keeps its variant."""
    planned = {session: session.history.copy() for session in sessions}
    flights: List[Flying] = []
    for _ in range(c.choose.randint(3, MOST_STEPS)):
        session = c.choose.choice(sessions)
        step = choosing.step(c.choose, planned[session], switch=False)
        if "" in planned[session].refusals(step, unary=False):
            planned[session].apply(step)
        flights.append(await launch(c, stream, session, step, timely=c.choose.random() < 0.8))
        if c.choose.random() < 0.1:
            stop(c, stream, c.choose.choice(flights[-3:]))
        if c.choose.random() < 0.2:
            await asyncio.sleep(0)  # the sender gets its turn: steps leave in several bursts
    c.ledger.count("Steps steps", len(flights))
    return flights


async def submit_lone(c: SoakClient, stream: AsyncStepStream, sessions: List[SoakSession]) -> List[Flying]:
    """One step a layer, most of them stopped: what a stopped step would have replaced must still be there."""
    flights: List[Flying] = []
    for session in sessions:
        for index in range(len(session.history.layers)):
            step = choosing.step(c.choose, session.history, index, replacing=True)
            flights.append(await launch(c, stream, session, step, timely=c.choose.random() < 0.6))
            if c.choose.random() < 0.4:
                stop(c, stream, flights[-1])
    c.ledger.count("Steps steps", len(flights))
    return flights


async def launch(
    c: SoakClient, stream: AsyncStepStream, session: SoakSession, step: Step, timely: bool
) -> Flying:  # fmt: skip
    """Sends a step; without `timely` its time is short."""
    timeout = None if timely else c.setting.service.around(c.choose) * c.choose.random()
    sent = time.monotonic()
    try:
        future = await send(stream, session, step, timeout)
    except attnd.AttndError as error:  # the stream has ended
        future = asyncio.get_running_loop().create_future()
        future.set_exception(error)
    return Flying(session, step, future, timeout is not None, sent)


def stop(c: SoakClient, stream: AsyncStepStream, flight: Flying) -> None:
    if hasattr(flight.future, "step_id"):
        flight.stopped = True
        stream.cancel(flight.future.step_id)
        c.ledger.count("cancels")


async def send(stream: AsyncStepStream, session: SoakSession, step: Step, timeout: Optional[float]) -> Any:
    hidden = session.history.hidden(step)
    if step.decode:
        part = attnd.SequenceStep(
            session.handle, step.rows, step.position, step.rewind, step.expected_length
        )
        return await stream.submit_decode(step.layer, [part], hidden, timeout=timeout)
    return await stream.submit_prefill(
        session.handle,
        step.layer,
        hidden,
        step.position,
        rewind=step.rewind,
        output_rows=step.output_rows,
        expected_length=step.expected_length,
        timeout=timeout,
    )


def judge(c: SoakClient, flight: Flying, broken: bool) -> bool:
    """Whether the step's outcome is not known."""
    if not flight.future.done():
        c.ledger.find("stuck", f"the stream has ended without an answer to {flight.step}")
        flight.future.cancel()
        flight.session.gone = True
        return False
    error = flight.future.exception()
    outcome = Outcome(error)
    if error is None:
        result = flight.future.result()
        if flight.step.decode:
            one = result.results[0]
            outcome = Outcome(one.error, one.output, None, one.length)
        else:
            outcome = Outcome(None, result.output, result.output_position, result.length)
    elif not isinstance(error, attnd.AttndError):
        c.ledger.find("wrong answer", f"{flight.step}: {error!r}")
        flight.session.gone = True
        return False
    elif broken and not error.reason and outcome.reason in OWN_STATUSES["kill"]:
        return True
    if not flight.session.gone:
        c.judge.step(
            flight.session, flight.step, outcome, "plain", flight.sent, in_band=True, stopped=flight.stopped
        )
    return False


async def resynchronize(c: SoakClient, session: SoakSession, steps: List[Step]) -> None:
    """After a broken stream: a rewind that cuts nothing waits for what was accepted, and the lengths tell."""
    far = c.setting.rules.max_seq_len
    await asyncio.sleep(OVERTAKING)
    for attempt in range(ATTEMPTS):
        sent = time.monotonic()
        try:
            info = await session.handle.rewind(far, timeout=60)
        except attnd.AttndError as error:
            reason = error.reason or error.code.name
            if c.judge.gone(session, reason, f"RewindSession of {session.id}"):
                return
            if reason not in {"QUEUE_FULL"} | OWN_STATUSES["kill"]:
                c.ledger.find("unexpected refusal", f"RewindSession of {session.id}: {error}")
                break
            await c.backoff(attempt)
            continue
        session.touch(sent, "RewindSession after a stream")
        for index, length in enumerate(info.layer_lengths):
            adopt(c, session, index, length, [step for step in steps if step.layer == index])
        return
    await end(c, session)


def adopt(c: SoakClient, session: SoakSession, index: int, length: int, steps: List[Step]) -> None:
    """The layer has this length now; one of the steps must have made it."""
    layer = session.history.layers[index]
    if length not in {layer.length, *(step.end for step in steps)}:
        c.ledger.find("wrong answer", f"session {session.id} layer {index} has length {length} ({layer})")
        session.gone = True
        return
    slack = session.history.rules.window + session.history.rules.max_rewind
    if not session.history.rules.global_layers[index]:
        layer.first = max([layer.first, *(step.end - slack for step in steps)])
    layer.length, layer.fuzzy = length, layer.fuzzy or bool(steps)
