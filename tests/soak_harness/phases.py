"""A soak is one phase, or two where the server can evict: each starts a server of its own."""

from __future__ import annotations

import asyncio
import pathlib
import sys
import time
from typing import List, Tuple

from . import server
from .actions import ACTIONS
from .client import Setting, SoakClient
from .ending import close_everything, compare_totals
from .ledger import Ledger
from .memory import Memory, judge_memory
from .moves import missing_methods
from .relay import Relay
from .report import Table
from .scraper import Scraper
from .streams import make_families

PREFIXES = (0, 3, 20, 90, 340)  # of sessions; 340 rows are answered in several messages
BEHIND_RELAY = 4  # every so-manieth client


async def run(build: pathlib.Path, minutes: float, clients: int, seed: int, ledger: Ledger) -> Table:
    model = server.Model()
    families = make_families(model.config, model.weights, seed, PREFIXES)
    phases: List[Tuple[str, List[str], bool]] = [("refusing", [], False)]
    if server.knows_eviction(build):
        phases.append(("evicting", ["--evict=idle_lru"], True))
    table = Table(ledger, clients, minutes, seed)
    for number, (name, flags, evicts) in enumerate(phases):
        process = server.start(build, flags)
        try:
            setting = Setting(
                address=process.address,
                http=process.ready["http"],
                rules=model.rules(),
                families=families,
                ledger=ledger,
                idle_ttl=server.IDLE_TTL,
                evicts=evicts,
                missing=set(),
                ends=time.monotonic() + minutes * 60 / len(phases),
            )
            memory = await soak(setting, clients, seed + number, bool(server.sanitizer(build)))
            table.phases.append((name, memory))
        finally:
            stop(process, ledger)
    return table


async def soak(setting: Setting, count: int, seed: int, sanitized: bool) -> Memory:
    """One phase; the RSS after the warm-up and in the end."""
    scraper = Scraper(setting.http, setting.ledger)
    clients = [await make_client(setting, number, seed) for number in range(count)]
    await clients[0].raw_channel()
    setting.missing |= await missing_methods(clients[0].raw)
    began = time.monotonic()
    tasks = [asyncio.ensure_future(client.run(ACTIONS)) for client in clients]
    _, hanging = await asyncio.wait(tasks, timeout=setting.ends - began + 180)
    for task in hanging:
        setting.ledger.find("stuck", "a client has not ended within 180 s")
        task.print_stack(file=sys.stderr)
        task.cancel()
    for task in tasks:
        if task.done() and (task.cancelled() or task.exception()):
            setting.ledger.find("failed action", f"a client has ended early: {task!r}")
    memory = judge_memory(scraper, began, setting.ends, sanitized, setting.ledger)
    await compare_totals(setting, clients[0])
    memory.leaked = await close_everything(setting, clients[0])
    for client in clients:
        await client.close()
    scraper.stop()
    return memory


async def make_client(setting: Setting, number: int, seed: int) -> SoakClient:
    relay = await Relay(setting.address).start() if number % BEHIND_RELAY == BEHIND_RELAY - 1 else None
    return SoakClient(setting, number, seed, relay)


def stop(process: server.ServerProcess, ledger: Ledger) -> None:
    """The server still runs, ends by itself, and has nothing bad to say."""
    if not process.running:
        ledger.find("server lost", f"the server has ended by itself:\n{process.log()[-6000:]}")
        return
    code = process.finish(server.GRACE)
    if code != 0:
        ledger.find("server lost", f"exit code {code} after SIGTERM:\n{process.log()[-6000:]}")
    log = process.log()
    for word in ("INTERNAL", "runtime error:", "Sanitizer"):
        if word in log:
            at = log.index(word)
            ledger.find("server log", log[max(0, at - 300) : at + 3000])
