"""The command line of tests/soak."""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import random
import sys
from typing import List, Optional

from . import core_soak, phases
from .ledger import Ledger
from .report import write_json
from .server import StartError

EPILOG = """
Many clients at once (asyncio, a connection each, one in four through a relay that breaks it) create
sessions of random prefixes, reservations and times to live, and run random steps on them, one at a
time, many sessions in one Decode, and pipelined on Steps. Meanwhile calls are cancelled, deadlines
pass, connections are reset, answers on Steps are left unread, sessions are closed under running
steps and left to expire, and malformed bytes come in. The cache and the queue are far too small.

  wrong answers   every row is compared with a float64 forward pass (tests/golden/README.md's rule),
                  every refusal with the wire contract's rules of positions
  pages leaked    when all sessions are closed, every gauge must be back to 0
  RSS             the end may not be above the time after the warm-up, but for the slack it names
  stuck           a call that does not end within 90 s
  /metrics        read ten times a second: the ratio within 0..1, sums equal, counters never fall

examples:
  tests/soak --minutes 2                              what tests/run does
  tests/soak --minutes 2 --build build-address        the server of a sanitizer's build
  tests/soak --minutes 2 --without-grpc --build build-thread
                                                      core's scheduler from many threads
  tests/soak --minutes 1 --seed 7                     the same choices again; times differ

Exit code: 0 all well, 1 something was found (the first of its kind are told at once), 2 called
wrongly or nothing to run.
"""


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e5:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return value


def count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 1000")
    return int(text)


def arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/soak", description="Soaks attnd in clients that misbehave, and judges every answer.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--minutes", type=positive, default=2, help="how long (default 2)")
    parser.add_argument("--clients", type=count, default=64, help="clients, or threads without gRPC (default 64)")
    parser.add_argument("--seed", type=int, default=None, help="of all choices (default: another each time)")
    parser.add_argument("--build", default="build", help="build tree (default build)")
    parser.add_argument("--without-grpc", action="store_true", help="core's engine alone, in one process")
    parser.add_argument("--json", default="", help="write the table to this file too")
    options = parser.parse_args(argv)
    if options.json and options.without_grpc:
        parser.error("--json goes without --without-grpc, whose table is the test's")
    return options


def main(argv: Optional[List[str]] = None) -> int:
    options = arguments(argv)
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    build = pathlib.Path(options.build)
    print(f"seed {seed}", flush=True)
    try:
        if options.json:
            pathlib.Path(options.json).open("a").close()
        if options.without_grpc:
            return core_soak.run(build, options.minutes, options.clients, seed)
        ledger = Ledger()
        table = asyncio.run(phases.run(build, options.minutes, options.clients, seed, ledger))
    except (StartError, OSError) as error:
        print(f"tests/soak: {error}", file=sys.stderr)
        return 2
    print("\n".join(table.lines()))
    if options.json:
        write_json(pathlib.Path(options.json), table)
    return 1 if ledger.failed else 0
