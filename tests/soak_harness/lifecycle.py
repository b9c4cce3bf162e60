"""Actions: sessions begin, are looked at, idle until they expire, end, and end under running steps."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Optional

import attnd

from . import choosing
from .client import MAX_SESSIONS, SoakClient
from .history import History
from .sessions import SoakSession
from .steps import end, look, lost, send

SHORT_TTL = (0.8, 2.5)  # seconds


async def open_session(c: SoakClient) -> None:
    """CreateSession with a random prefix, reservation, time to live and id."""
    if len(c.sessions) >= MAX_SESSIONS:
        await end(c, c.sessions.pop(0))
        return
    family = c.choose.choice(c.setting.families)
    reserve = c.choose.choice((0, 0, 0, 30, 200, c.setting.rules.max_seq_len))
    max_tokens = max(reserve, family.prefix) if reserve else 0
    ttl = c.choose.uniform(*SHORT_TTL) if c.choose.random() < 0.15 else None
    call = c.client.create_session(
        prefix_length=family.prefix,
        max_tokens=max_tokens,
        idle_ttl=ttl,
        session_id=c.name() if c.choose.random() < 0.5 else None,
        timeout=60,
    )
    how = "cancel" if c.choose.random() < 0.03 else "plain"
    sent = time.monotonic()
    handle, error = await c.caller.disturbed(call, how, "CreateSession")
    if error is not None:
        allowed = {"TOO_MANY_SESSIONS"} | ({"CACHE_FULL"} if max_tokens else set())
        refusal(c, error, allowed | ({"CANCELLED"} if how == "cancel" else set()), "CreateSession")
        return
    c.sessions.append(adopted(c, handle, History(family, c.setting.rules, max_tokens), ttl, sent))


def adopted(
    c: SoakClient, handle: attnd.AsyncSession, history: History, ttl: Optional[float], sent: float
) -> SoakSession:  # fmt: skip
    """A new session; `sent` is when the call was that began it."""
    c.ledger.count("sessions begun")
    return SoakSession(handle, history, ttl or c.setting.idle_ttl, c.setting.evicts, sent)


def refusal(c: SoakClient, error: attnd.AttndError, allowed: set, what: str) -> None:
    """The error is one of the allowed reasons, or the transport's where this client broke it."""
    reason = error.reason or error.code.name
    if reason in allowed or lost(c, reason):
        c.ledger.refuse(reason)
    else:
        c.ledger.find("unexpected refusal", f"{what}: {error}; expected {' or '.join(sorted(allowed))}")


async def close_session(c: SoakClient) -> None:
    if c.sessions:
        await end(c, c.choose.choice(c.sessions))


async def close_under_steps(c: SoakClient) -> None:
    """CloseSession while steps of the session wait or run: they are answered, one way or the other."""
    sessions = c.settled()
    if not sessions:
        return
    session = c.choose.choice(sessions)
    layers = range(len(session.history.layers))
    steps = [choosing.step(c.choose, session.history, index) for index in layers]
    steps = [replace(step, decode=False, position=0, rewind=True, expected_length=0) for step in steps]
    session.closing = True
    sends = [asyncio.ensure_future(send(c, session, step, "plain")) for step in steps]
    await asyncio.sleep(c.setting.service.around(c.choose) / 4)
    await asyncio.gather(end(c, session), *sends)


async def expire(c: SoakClient) -> None:
    """Leaves a short-lived session alone until it has expired, or nearly, and then looks."""
    short = [session for session in c.settled() if session.ttl <= SHORT_TTL[1]]
    if not short:
        return
    session = c.choose.choice(short)
    await asyncio.sleep(session.ttl * c.choose.uniform(0.9, 1.2))
    idle = time.monotonic() - session.named
    await look(c, session)
    # Expiries are looked at once in a while; a second later it must have been noticed.
    if not session.gone and idle > session.ttl + 2:
        c.ledger.find("unexpected success", f"session {session.id} outlived its ttl of {session.ttl:g} s")


async def look_around(c: SoakClient) -> None:
    """GetSession, ListSessions, GetStats or GetModel."""
    try:
        if c.sessions and c.choose.random() < 0.5:
            await look(c, c.choose.choice(c.sessions))
            return
        if c.choose.random() < 0.3:
            found = [info async for info in c.client.list_sessions(c.choose.randint(1, 50), timeout=60)]
            if len({info.session_id for info in found}) != len(found):
                c.ledger.find("wrong answer", "ListSessions names a session twice")
            return
        stats = await c.client.stats(timeout=60)
        used = stats.kv_cache_used_bytes + stats.kv_cache_reserved_bytes
        if not 0 <= used <= stats.kv_cache_capacity_bytes:
            c.ledger.find("inconsistent metrics", f"GetStats: {stats}")
    except attnd.AttndError as error:
        refusal(c, error, set(), "a look around")
