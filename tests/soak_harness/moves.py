"""Actions: forks, exports, imports. Used where the server has these methods."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, List, Optional, Set, Tuple

import grpc

import attnd
from attnd._proto import attnd_pb2 as pb
from attnd.errors import from_rpc_error
from attnd.types import SessionInfo

from . import choosing
from .calls import bounded
from .client import MAX_SESSIONS, SoakClient
from .history import History
from .lifecycle import adopted, refusal
from .sessions import SoakSession
from .steps import end, lost

BAD_IMPORTS = {"BAD_DIGEST", "TRUNCATED", "FORMAT_MISMATCH", "MODEL_MISMATCH", "BAD_ARGUMENT"}
BAD_IMPORTS |= {"BAD_SESSION_ID", "NOT_FINITE", "SESSION_EXISTS", "PAST_MAX_SEQ_LEN", "CACHE_FULL"}
BAD_IMPORTS |= {"TOO_MANY_SESSIONS"}


async def missing_methods(stubs: Any) -> Set[str]:
    """Which of the methods answer UNIMPLEMENTED."""
    missing = set()
    nobody = "nobody-at-all"
    calls = {
        "ForkSession": lambda: stubs.sessions.ForkSession(pb.ForkSessionRequest(session_id=nobody), timeout=30),
        "ExportSession": lambda: _all(
            stubs.sessions.ExportSession(pb.ExportSessionRequest(session_id=nobody), timeout=30)
        ),
        "ImportSession": lambda: stubs.sessions.ImportSession(iter([]), timeout=30),
    }
    for name, call in calls.items():
        try:
            await call()
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                missing.add(name)
    return missing


async def _all(call: Any) -> List[Any]:
    return [answer async for answer in call]


async def answer_of(c: SoakClient, call: Any, what: str, hangs_up: bool = False) -> Tuple[Any, Optional[attnd.AttndError]]:
    """(answer, None) or (None, the typed error) of a call on the raw stubs."""
    c.ledger.count(f"{what} calls")

    async def awaited() -> Any:
        return await call

    try:
        answer = await bounded(awaited(), what, c.ledger)
    except grpc.RpcError as error:
        return None, from_rpc_error(error)
    except asyncio.CancelledError:  # what a call raises whose requests end in an exception
        if not hangs_up:
            raise
        return None, attnd.Cancelled("the client hung up")
    c.ledger.count(f"{what} answered")
    return answer, None


async def fork(c: SoakClient) -> None:
    """A fork holds the same rows, and both go on by themselves."""
    sessions = c.settled()
    if "ForkSession" in c.setting.missing or not sessions or len(c.sessions) >= MAX_SESSIONS:
        return
    await c.raw_channel()
    session = c.choose.choice(sessions)
    lengths = [layer.length for layer in session.history.layers]
    position = c.choose.choice((0, min(lengths), c.choose.randint(0, max(lengths) + 1)))
    max_tokens = c.choose.choice((0, 0, c.setting.rules.max_seq_len))
    request = pb.ForkSessionRequest(session_id=session.id, position=position, max_tokens=max_tokens)
    sent = time.monotonic()
    answer, error = await answer_of(c, c.raw.sessions.ForkSession(request), "ForkSession")
    if error is not None:
        if not c.judge.gone(session, error.reason, f"ForkSession of {session.id}"):
            refusal(c, error, fork_refusals(session, position, max_tokens), f"ForkSession at {position}")
        return
    history = session.history.copy()
    if must_not_fork(history, position):
        c.ledger.find("unexpected success", f"ForkSession at {position} of {history.layers}")
    history.max_tokens = max_tokens
    if position:
        history.apply_rewind(position)
    take(c, SessionInfo.from_proto(answer), history, "ForkSession", sent)


def fork_refusals(session: SoakSession, position: int, max_tokens: int) -> Set[str]:
    history = session.history
    allowed = {"TOO_MANY_SESSIONS", "QUEUE_FULL", "CACHE_FULL"}
    for index, layer in enumerate(history.layers):
        if position > layer.length:
            allowed.add("POSITION_MISMATCH")
        elif position:
            allowed |= history.cut_refusals(index, position) - {""}
            if position < history.prefix:  # also where the step that completed it could be repeated
                allowed.add("PREFIX_ANSWERED")
        if layer.length < history.prefix:
            allowed.add("PREFIX_INCOMPLETE")
    return allowed


def must_not_fork(history: History, position: int) -> bool:
    """A fork needs a position that every layer has and could be cut to."""
    return 0 < position < history.prefix or position > 0 and any(
        position > layer.length or "" not in history.cut_refusals(index, position)
        for index, layer in enumerate(history.layers)
    )


def take(c: SoakClient, info: SessionInfo, history: History, what: str, sent: float) -> None:
    """A new session with the rows of another; what it can be cut to is not known in full."""
    for layer in history.layers:
        layer.fuzzy = True
    expected = [layer.length for layer in history.layers]
    if list(info.layer_lengths) != expected:
        c.ledger.find("wrong answer", f"{what}: lengths {info.layer_lengths}; expected {expected}")
    c.sessions.append(adopted(c, attnd.AsyncSession(c.client, info), history, None, sent))
    # A fork or an import may keep the short time to live of its origin.
    seconds = info.expire_time - info.create_time if info.expire_time else None
    if seconds is not None:
        made = c.sessions[-1]
        made.ttl = min(c.setting.idle_ttl, max(0.1, seconds.total_seconds()))
        # It was created when the call began, and its idle time when it ended.
        made.least_ttl = made.ttl - (time.monotonic() - sent)


async def export_import(c: SoakClient) -> None:
    """Exports a session, now and then breaks the stream or its bytes, and imports it under another id."""
    sessions = c.settled()
    if {"ExportSession", "ImportSession"} & c.setting.missing or not sessions or len(c.sessions) >= MAX_SESSIONS:
        return
    await c.raw_channel()
    session = c.choose.choice(sessions)
    move = c.choose.random() < 0.3
    call = c.raw.sessions.ExportSession(pb.ExportSessionRequest(session_id=session.id, move=move))
    chunks, error = await exported(c, call)
    if error is not None:
        if not c.judge.gone(session, error.reason, f"ExportSession of {session.id}"):
            allowed = {"QUEUE_FULL", "CANCELLED"}
            if session.reserved and not move:
                allowed.add("CACHE_FULL")  # its reservation holds beside the copy
            refusal(c, error, allowed, "ExportSession")
            if move and error.reason != "QUEUE_FULL":  # all may have been sent before: it moves, or not
                await end(c, session)
        return
    if move:  # the steps wait outside, and the session is not used any more
        await held_steps(c, session)
        await end(c, session)
    harm = c.choose.choice(("none", "none", "none", "flip", "cut", "hang up"))
    requests = import_requests(c, chunks, harm)

    async def outgoing() -> Any:
        for request in requests:
            yield request
            await asyncio.sleep(0)
        if harm == "hang up":
            raise ConnectionError("the client went away")

    sent = time.monotonic()
    call = c.raw.sessions.ImportSession(outgoing())
    answer, error = await answer_of(c, call, "ImportSession", hangs_up=harm == "hang up")
    if error is not None:
        allowed = {"CACHE_FULL", "TOO_MANY_SESSIONS", "QUEUE_FULL"} if harm == "none" else BAD_IMPORTS
        if harm == "hang up":
            allowed = allowed | {"CANCELLED", "UNKNOWN", "INTERNAL"}  # gRPC's word on its own client
        refusal(c, error, allowed, f"ImportSession ({harm})")
        return
    if harm != "none":
        c.ledger.find("unexpected success", f"an import of a stream with harm ({harm})")
        return
    take(c, SessionInfo.from_proto(answer), session.history.copy(), "ImportSession", sent)


async def held_steps(c: SoakClient, session: SoakSession) -> None:
    """A step on a session that was exported to be moved is refused, and only that."""
    step = choosing.step(c.choose, session.history)
    outcome = await c.caller.prefill(session, replace(step, decode=False))
    early = {"QUEUE_FULL", "MESSAGE_TOO_LARGE"}  # said before the session's turn comes
    if outcome.reason in {"SESSION_MOVING"} | early | session.may_be_gone():
        c.ledger.refuse(outcome.reason)
    elif not lost(c, outcome.reason):
        text = f"session {session.id} moves, and a step got {outcome.reason or 'success'}"
        c.ledger.find("unexpected success", text)


async def exported(c: SoakClient, call: Any) -> Tuple[List[Any], Optional[attnd.AttndError]]:
    """The chunks of an export; sometimes the client hangs up in the middle."""
    c.ledger.count("ExportSession calls")
    chunks: List[Any] = []
    hang_up = c.choose.random() < 0.1

    async def read() -> None:
        async for answer in call:
            chunks.append(answer.chunk)
            if hang_up:
                call.cancel()

    try:
        await bounded(read(), "ExportSession", c.ledger)
    except grpc.RpcError as error:
        return [], from_rpc_error(error)
    except asyncio.CancelledError:
        if not hang_up:
            raise
        return [], attnd.Cancelled("the client hung up")
    if hang_up:
        return [], attnd.Cancelled("the client hung up")
    c.ledger.count("ExportSession answered")
    return chunks, None


def import_requests(c: SoakClient, chunks: List[Any], harm: str) -> List[Any]:
    requests = [pb.ImportSessionRequest(session_id=c.name() if i == 0 else "", chunk=chunk)
                for i, chunk in enumerate(chunks)]  # fmt: skip
    if harm == "cut":
        del requests[-1]
    elif harm == "flip":
        last = requests[-1].chunk
        last.digest = bytes([last.digest[0] ^ 1]) + last.digest[1:] if last.digest else b"\1" * 16
    elif harm == "hang up":
        del requests[len(requests) // 2 :]
    return requests
