"""Rows about many idle sessions: what they take, what they cost, and how all of them end at once."""

import dataclasses
import functools
import json
import time

from . import servers

ROWS = 64  # of a session, in every layer
REST = 8192  # bytes beside its pages that a session may take, and leave behind
IDLE_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Idle:
    """What was seen of one filled server, from the first session to the end of the last."""

    sessions: int
    pages: int  # bytes of all their pages
    grown: int  # resident bytes above the empty server's
    empty_cpu: float  # share of a CPU without sessions
    idle_cpu: float  # and with them
    spread: float  # seconds between the first expiry and the last
    back: float  # from the last expiry until sessions and memory are gone
    left: int  # resident bytes above the empty server's, then
    alone: dict[str, float]  # ms of another session's decodes, nothing else going on
    beside: dict[str, float]  # and while these sessions end


def cpu_share(server: servers.Server) -> float:
    """Of one CPU, over some seconds in which nobody calls."""
    before, began = server.cpu_seconds(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    return (server.cpu_seconds() - before) / (time.monotonic() - began)


def back_after(server: servers.Server, expiry: float, sessions: int, resident: int) -> float:
    """Seconds after `expiry` (Unix time) until no more sessions and bytes than these are there; a
    minute when they stay."""
    while time.time() < expiry + 60:
        if server.rss() <= resident and server.metric("attnd_sessions") <= sessions:
            break
        time.sleep(0.01)
    return time.time() - expiry


@functools.cache
def filled(bench, sessions: int, cache_bytes: int, ttl: int) -> Idle:
    """Fills a server, leaves it alone, and lets everything expire beside a session that decodes."""
    arguments = ("--model=builtin:apex1-small", "--weights=random:1", f"--kv_cache_bytes={cache_bytes}")
    with servers.attnd(bench, *arguments) as server:
        bench.run("bench_sessions", server.address, 1, ROWS)  # first use of everything
        with servers.decoding(bench, server, 1, ROWS) as alone:
            time.sleep(2)
        empty, pages = server.rss(), server.metric("attnd_kv_cache_used_bytes")
        empty_cpu = cpu_share(server)
        found = json.loads(bench.run("bench_sessions", server.address, sessions, ROWS, ttl))
        grown, pages = server.rss() - empty, found["used_bytes"] - pages
        time.sleep(1)
        idle_cpu = cpu_share(server)
        time.sleep(max(0.0, found["first_expiry"] - 2 - time.time()))
        with servers.decoding(bench, server, 1, ROWS) as beside:
            kept = server.metric("attnd_sessions") - sessions
            back = back_after(server, found["last_expiry"], kept, empty + sessions * REST)
            left = server.rss() - empty
    return Idle(sessions, int(pages), grown, empty_cpu, idle_cpu, found["last_expiry"] - found["first_expiry"],
                back, left, alone, beside)  # fmt: skip


def memory(idle: Idle) -> dict:
    limit = idle.pages * 1.02 + idle.sessions * REST
    return {"measured": f"{idle.grown / 2**20:.1f} MiB", "ceiling": f"pages {idle.pages / 2**20:.1f} MiB",
            "share": f"{idle.grown / idle.pages:.3f} x", "budget": "<= pages + 2 % + 8 KiB a session",
            "ok": idle.grown <= limit, "value": idle.grown / idle.pages}  # fmt: skip


def processor(idle: Idle) -> dict:
    return {"measured": f"{100 * idle.idle_cpu:.2f} % of a CPU", "ceiling": f"empty {100 * idle.empty_cpu:.2f} %",
            "share": "", "budget": "< 1 %", "ok": idle.idle_cpu < 0.01, "value": idle.idle_cpu}  # fmt: skip


def expiry(idle: Idle) -> dict:
    return {"measured": f"{idle.back:.2f} s", "ceiling": f"all within {idle.spread:.2f} s", "share": "",
            "budget": "<= 1 s", "ok": idle.back <= 1, "value": idle.back,
            "note": f"{idle.left / 2**20:.1f} MiB stay, {idle.left / idle.sessions:.0f} bytes a session"}  # fmt: skip


def delay(most: float):
    """The longest that another session's decode took meanwhile."""

    def judge(idle: Idle) -> dict:
        longest = idle.beside["max"]
        return {"measured": f"{longest:.1f} ms at most", "ceiling": f"alone {idle.alone['max']:.1f} ms",
                "share": "", "budget": f"<= {most:g} ms", "ok": longest <= most, "value": longest,
                "note": f"p50 {idle.beside['p50']:.2f} ms, p99 {idle.beside['p99']:.2f} ms; "
                        f"alone {idle.alone['p50']:.2f} and {idle.alone['p99']:.2f} ms"}  # fmt: skip

    return judge


def of_idle(judge, sessions: int = 10_000, cache_bytes: int = 8 << 30, ttl: int = 40):
    """A row on what was seen; the rows of one run look at the same server."""
    return lambda bench: judge(filled(bench, sessions, cache_bytes, ttl))
