"""The end of a phase: the server comes to rest, its totals agree, and nothing is left."""

from __future__ import annotations

import asyncio
import time
from typing import List

import attnd

from .client import Setting, SoakClient
from .exposition import Exposition, at_rest, leaked_bytes
from .scraper import scrape

REST = 60.0  # seconds for what was cancelled to be over


async def scraped(setting: Setting) -> Exposition:
    return await asyncio.get_running_loop().run_in_executor(None, scrape, setting.http)


async def sessions_of(client: attnd.AsyncClient) -> List[attnd.SessionInfo]:
    return [info async for info in client.list_sessions(1000, timeout=60)]


async def compare_totals(setting: Setting, client: SoakClient) -> None:
    """With nothing running: /metrics, GetStats and the sum over ListSessions say the same."""
    deadline = time.monotonic() + REST
    wrong = ["the server does not come to rest"]
    while wrong and time.monotonic() < deadline:
        before = await scraped(setting)
        stats = await client.client.stats(timeout=60)
        sessions = await sessions_of(client.client)
        after = await scraped(setting)
        resting = not after.value("attnd_queue_depth") and not after.value("attnd_inflight_rpcs")
        still = before.by("attnd_sessions_ended_total", "reason") == after.by(
            "attnd_sessions_ended_total", "reason"
        )
        if resting and still:
            wrong = disagreements(after, stats, sessions, forks="ForkSession" not in setting.missing)
        await asyncio.sleep(0.2)
    for text in wrong:
        setting.ledger.find("inconsistent metrics", text)


def disagreements(
    found: Exposition, stats: attnd.Stats, sessions: List[attnd.SessionInfo], forks: bool
) -> List[str]:
    """Shared pages count for each holder: where there are forks the sum may be more."""
    used, reserved = (int(found.value(f"attnd_kv_cache_{what}_bytes")) for what in ("used", "reserved"))
    held = sum(info.cache_bytes for info in sessions)
    promised = sum(info.reserved_bytes for info in sessions)
    wrong = []
    if (stats.kv_cache_used_bytes, stats.kv_cache_reserved_bytes) != (used, reserved):
        wrong.append(f"GetStats says {stats}; /metrics {used} used and {reserved} reserved")
    if stats.sessions != len(sessions):
        wrong.append(f"GetStats counts {stats.sessions} sessions, ListSessions has {len(sessions)}")
    if held < used or (held > used and not forks):
        wrong.append(f"the sessions hold {held} bytes; {used} are in use")
    if promised != reserved:
        wrong.append(f"the sessions have {promised} bytes reserved; {reserved} are")
    return wrong


async def close_everything(setting: Setting, client: SoakClient) -> int:
    """Closes every session and waits for all gauges to be 0; the cache bytes that are not."""
    deadline = time.monotonic() + REST
    while True:
        for info in await sessions_of(client.client):
            try:
                await client.client.close_session(info.session_id, timeout=60)
            except attnd.NotFound:
                pass  # expired meanwhile
        found = await scraped(setting)
        left = at_rest(found)
        if not left or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.3)
    for text in left:
        setting.ledger.find("left behind", text)
    return leaked_bytes(found)
