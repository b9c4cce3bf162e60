"""Actions: single steps, steps of many sessions, rewinds of whole sessions, and the repeats."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import List, Sequence, Tuple

import numpy as np

import attnd

from . import choosing
from .client import SoakClient
from .history import Step
from .sessions import OWN_STATUSES, STOPPED, SoakSession

ATTEMPTS = 25  # at a repeat, before the session is given up
OVERTAKING = 1.0  # seconds in which a server's threads take up the calls that it has received


async def send(c: SoakClient, session: SoakSession, step: Step, how: str) -> str:
    """Sends a step and judges what it came to."""
    sent = time.monotonic()
    if step.decode:
        part = sequence_of(session, step)
        outcome = (await c.caller.decode(session.history.hidden(step), step.layer, [part], how))[0]
    else:
        outcome = await c.caller.prefill(session, step, how)
    return c.judge.step(session, step, outcome, how, sent)


def sequence_of(session: SoakSession, step: Step) -> attnd.SequenceStep:
    return attnd.SequenceStep(session.id, step.rows, step.position, step.rewind, step.expected_length)


async def one_step(c: SoakClient) -> None:
    """A step of a session; nothing is done to one that may be refused, so that the reason is seen."""
    sessions = c.settled()
    if not sessions:
        return
    session = c.choose.choice(sessions)
    step = choosing.step(c.choose, session.history)
    if c.choose.random() < 0.05:
        step = choosing.spoiled(c.choose, session.history, step)
    certain = c.judge.allowed(session, step) == {""}
    how = c.how() if certain else "plain"
    if how != "plain" and step.rewind:
        step = replace(step, expected_length=session.history.layers[step.layer].length)
    before = c.ledger.refused["CACHE_FULL"]
    result = await send(c, session, step, how)
    if result == "unknown":
        await settle(c, session)
    elif result == "refused" and c.ledger.refused["CACHE_FULL"] > before and c.choose.random() < 0.3:
        await end(c, c.choose.choice(c.sessions))  # as a scheduler would: something has to go


async def settle(c: SoakClient, session: SoakSession) -> None:
    """Repeats the steps whose outcome is unknown, as the contract tells clients to."""
    for layer in session.history.layers:
        for attempt in range(ATTEMPTS):
            if layer.pending is None or session.gone:
                break
            if c.choose.random() < 0.25:
                await look(c, session)
            if session.gone:
                break
            step = layer.pending
            if not c.relay and step.end != layer.length and c.choose.random() < 0.35:
                await find_out(c, session)
                continue
            fresh = step.position == layer.length  # nothing but this step can have changed it
            guard = step.end if fresh and c.choose.random() < 0.5 else 0
            repeat = replace(step, rewind=True, expected_length=guard)
            c.ledger.count("repeats")
            last = attempt == ATTEMPTS - 1
            await send(c, session, repeat, "plain" if last or not c.relay else c.how())
            if layer.pending is not None:
                await c.backoff(attempt)
        if layer.pending is not None and not session.gone:
            await end(c, session)
            return


async def find_out(c: SoakClient, session: SoakSession) -> None:
    """Learns whether the pending steps took effect: a rewind that cuts nothing runs after them.

    A step that did not must have left everything as it was, also the rows that it would have
    replaced: the session goes on with them. gRPC hands calls to threads of its own: on a busy
    machine the rewind may overtake a step that was given up a moment ago, so it waits first.
    """
    await asyncio.sleep(OVERTAKING)
    sent = time.monotonic()
    try:
        info = await session.handle.rewind(c.setting.rules.max_seq_len, timeout=60)
    except attnd.AttndError as error:
        if error.reason == "QUEUE_FULL":
            c.ledger.refuse(error.reason)
        elif not c.judge.gone(session, error.reason, f"RewindSession of {session.id}"):
            c.ledger.find("unexpected refusal", f"RewindSession of {session.id}: {error}")
            session.gone = True
        return
    session.touch(sent, "RewindSession of nothing")
    c.ledger.count("found out")
    for index, (layer, length) in enumerate(zip(session.history.layers, info.layer_lengths)):
        step = layer.pending
        if step is not None and length == step.end != layer.length:
            session.history.apply(step)
        elif length == layer.length and (step is None or step.end != length):
            layer.pending = None
        elif step is None or length != step.end:
            c.ledger.find("wrong answer", f"session {session.id} layer {index} has length {length} ({layer})")
            session.gone = True


async def look(c: SoakClient, session: SoakSession) -> None:
    """GetSession: every layer has the length of its history, or that after its pending step."""
    sent = time.monotonic()
    try:
        info = await session.handle.info(timeout=60)
    except attnd.AttndError as error:
        reason = error.reason or error.code.name
        if not c.judge.gone(session, reason, f"GetSession of {session.id}") and not lost(c, reason):
            c.ledger.find("unexpected refusal", f"GetSession of {session.id}: {error}")
        return
    session.touch(sent, "GetSession")
    for index, (layer, length) in enumerate(zip(session.history.layers, info.layer_lengths)):
        expected = {layer.length} | ({layer.pending.end} if layer.pending else set())
        if length not in expected:
            text = f"session {session.id} layer {index} has length {length}; expected {sorted(expected)}"
            c.ledger.find("wrong answer", f"{text} ({layer})")
            session.gone = True


def lost(c: SoakClient, reason: str) -> bool:
    """Whether the reason is the transport's word on a connection that this client itself broke."""
    return c.relay is not None and reason in OWN_STATUSES["kill"]


async def together(c: SoakClient) -> None:
    """A Decode of many sessions, of which some must be refused while the others go on."""
    parts: List[Tuple[SoakSession, Step]] = []
    layer = c.choose.randrange(len(c.setting.rules.global_layers))
    for session in c.settled():
        step = choosing.step(c.choose, session.history, layer, most=8)
        if c.choose.random() < 0.1:
            step = choosing.spoiled(c.choose, session.history, step)
        if step.end <= c.setting.rules.max_seq_len:
            parts.append((session, replace(step, decode=True, output_rows="all")))
    if not parts:
        return
    certain = all(c.judge.allowed(session, step) == {""} for session, step in parts)
    how = c.how() if certain else "plain"
    if how != "plain":
        parts = [
            (session, replace(step, expected_length=session.history.layers[layer].length if step.rewind else 0))
            for session, step in parts
        ]
    await send_together(c, layer, parts, how)
    for session, _ in parts:
        if not session.gone:
            await settle(c, session)


async def send_together(
    c: SoakClient, layer: int, parts: Sequence[Tuple[SoakSession, Step]], how: str
) -> None:
    hidden = np.concatenate([session.history.hidden(step) for session, step in parts])
    sequences = [sequence_of(session, step) for session, step in parts]
    strange = c.choose.random() < 0.15
    if strange:  # a session that never was: it fails alone
        sequences.append(attnd.SequenceStep(f"nobody-{c.name()}", 1, 0))
        hidden = np.concatenate([hidden, hidden[:1]])
    sent = time.monotonic()
    outcomes = await c.caller.decode(hidden, layer, sequences, how)
    for (session, step), outcome in zip(parts, outcomes):
        c.judge.step(session, step, outcome, how, sent)
    if strange:
        reason = outcomes[-1].reason
        if reason not in {"SESSION_UNKNOWN", "QUEUE_FULL"} | STOPPED | c.judge.own_statuses(how):
            c.ledger.find("unexpected refusal", f"an unknown session in a Decode: {reason or 'success'}")


async def rewind_session(c: SoakClient) -> None:
    """RewindSession to a random position: all layers or none. Repeated when it was cancelled."""
    sessions = c.settled()
    if not sessions:
        return
    session = c.choose.choice(sessions)
    history = session.history
    longest = max(layer.length for layer in history.layers)
    position = c.choose.choice((0, c.choose.randint(0, longest), max(0, longest - c.choose.randint(0, 9))))
    allowed = history.rewind_refusals(position)
    how = c.how() if allowed == {""} else "plain"
    for attempt in range(ATTEMPTS):
        sent = time.monotonic()
        info, error = await c.caller.disturbed(
            session.handle.rewind(position, timeout=c.caller.timeout(how)), how, "RewindSession"
        )
        reason = "" if error is None else error.reason or error.code.name
        if c.judge.gone(session, reason, f"RewindSession of {session.id} to {position}"):
            return
        if reason == "":
            if "" not in allowed:
                c.ledger.find("unexpected success", f"RewindSession of {session.id} to {position}: {allowed}")
            session.touch(sent, "RewindSession")
            history.apply_rewind(position)
            if list(info.layer_lengths) != [layer.length for layer in history.layers]:
                c.ledger.find("wrong answer", f"RewindSession of {session.id}: {info.layer_lengths}")
            return
        if reason in c.judge.own_statuses(how) | STOPPED | {"QUEUE_FULL"}:
            c.ledger.refuse(reason)
        elif reason not in allowed:
            c.ledger.find("unexpected refusal", f"RewindSession of {session.id} to {position}: {error}")
            return
        else:
            c.ledger.refuse(reason)
            return
        how = "plain" if not c.relay else c.how()
        await c.backoff(attempt)
    await end(c, session)


async def end(c: SoakClient, session: SoakSession) -> None:
    """Closes a session, whatever became of it."""
    session.closing = True
    session.gone = True
    for attempt in range(ATTEMPTS):
        try:
            await session.handle.close(timeout=60)
            c.ledger.count("sessions closed")
            return
        except attnd.AttndError as error:
            reason = error.reason or error.code.name
            if reason in session.may_be_gone():
                c.ledger.refuse(reason)
                return
            if not lost(c, reason):
                c.ledger.find("unexpected refusal", f"CloseSession of {session.id}: {error}")
                return
            await c.backoff(attempt)
