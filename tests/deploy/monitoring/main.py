"""The command line of tests/deploy/run."""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Iterable, List, Optional

from . import documents, live
from .processes import Failed

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
CASES = ROOT / "tests/deploy/rules_test.yaml"
PARTS = ("files", "grafana", "promtool", "live", "beside")
BESIDE = ("helm", "lint-image", "balancers")
EPILOG = """
  files        every alert has its section of RUNBOOK.md and its cases for promtool; panels have units and
               descriptions; compose.yaml mounts what the configurations name
  grafana      the dashboard is read and written by Grafana's own types, which know all of it; they are installed from
               PyPI into BUILD/deploy-grafana
  promtool     check config, check rules, test rules; amtool check-config
  live         two real attnd (built-in tiny model), a real Prometheus with the deployed rules and a real
               Alertmanager: load of every kind, then every expression of the dashboard, of the recording
               rules and of the alerts has data; the runbook's checks are run; a server is stopped and the
               alert arrives
  beside       tests/deploy/{helm,lint-image,balancers}, those that are there

examples:
  tests/deploy/run                     what tests/run --only deploy does
  tests/deploy/run --only files,promtool
                                       within seconds, while rules or panels are edited

Needs the packages of tests/deploy/packages.txt and a build of attnd and attnctl.
Exit code: 0 all well, 1 something was found, 2 called wrongly or something is missing.
"""


class Report:
    """Prints a line for each check, and what is wrong below it."""

    def __init__(self) -> None:
        self.failed = False
        self._last = time.monotonic()

    def add(self, name: str, problems: Iterable[str]) -> None:
        found = list(problems)
        self.failed |= bool(found)
        now = time.monotonic()
        print(f"{name:44} {'FAILED' if found else 'ok':6} {now - self._last:5.1f} s", flush=True)
        for text in found:
            print(f"  {text}", flush=True)
        self._last = now


def _command(*command: str) -> List[str]:
    """What a command that failed said."""
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.strip().splitlines() if done.returncode else []


def check_files(report: Report) -> None:
    tests = ("/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(pathlib.Path(__file__).parent))
    report.add("tests of these checks", _command(*tests))
    report.add("alerts, runbook, cases, dashboards, compose", documents.problems(DEPLOY, CASES))


def check_grafana(report: Report, build: pathlib.Path) -> None:
    here = pathlib.Path(__file__).parent
    wanted = (here / "requirements.txt").read_text()
    venv = build / "deploy-grafana"
    installed = venv / "requirements.txt"
    problems: List[str] = []
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        problems = _command("/usr/bin/python3", "-m", "venv", str(venv)) or _command(
            str(venv / "bin/pip"), "install", "-q", "--disable-pip-version-check", "-r", str(here / "requirements.txt")
        )
        if not problems:
            installed.write_text(wanted)
    dashboards = map(str, sorted((DEPLOY / "grafana/dashboards").glob("*.json")))
    python = str(venv / "bin/python")
    report.add(
        "dashboards in Grafana's types", problems or _command(python, str(here / "grafana_schema.py"), *dashboards)
    )


def check_promtool(report: Report) -> None:
    folder = DEPLOY / "prometheus"
    rules = [str(folder / name) for name in ("rules.yaml", "alerts.yaml")]
    report.add("promtool check config", _command("promtool", "check", "config", str(folder / "prometheus.yaml")))
    report.add("promtool check rules", _command("promtool", "check", "rules", "--lint-fatal", *rules))
    report.add("promtool test rules", _command("promtool", "test", "rules", str(CASES)))
    report.add("amtool check-config", _command("amtool", "check-config", str(folder / "alertmanager.yaml")))


def check_live(report: Report, build: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(prefix="attnd-deploy-") as name:
        fleet = live.Fleet(build, DEPLOY, pathlib.Path(name))
        try:
            fleet.make_load()
            report.add("load of every kind", [])
            report.add("promtool check metrics", live.metrics(fleet))
            report.add("rules are evaluated", live.settled(live.evaluated, fleet))
            for asked in live.dashboard_expressions(fleet):
                report.add(f"dashboard, {len(asked)} expressions", live.dashboards(fleet, asked))
            report.add("recording rules", live.recorded(fleet))
            report.add("alerts", live.settled(live.alerts, fleet))
            report.add("what is not there is missed", live.missed(fleet))
            report.add("the runbook's checks", live.runbook(fleet))
            report.add("an alert arrives", live.notified(fleet))
        finally:
            fleet.stop()


def check_beside(report: Report) -> None:
    for name in BESIDE:
        script = ROOT / "tests/deploy" / name
        if script.is_file():
            print(f"-- tests/deploy/{name}", flush=True)
            runs = os.access(script, os.X_OK)
            status = subprocess.run([str(script)], cwd=ROOT).returncode if runs else "none: not executable"
            report.add(f"tests/deploy/{name}", [f"status {status}"] if status else [])


def arguments(argv: Optional[List[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/deploy/run", description="Checks what deploy/ has for operators.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas (default all)")
    parser.add_argument("--build", default="build", help="build tree with bin/attnd and bin/attnctl (default build)")
    options = parser.parse_args(argv)
    options.only = options.only.split(",")
    for part in options.only:
        if part not in PARTS:
            parser.error(f"unknown part '{part}'")
    return options


def main(argv: Optional[List[str]] = None) -> int:
    options = arguments(argv)
    build = (ROOT / options.build).resolve()
    report = Report()
    try:
        if "files" in options.only:
            check_files(report)
        if "grafana" in options.only:
            check_grafana(report, build)
        if "promtool" in options.only:
            check_promtool(report)
        if "live" in options.only:
            check_live(report, build)
        if "beside" in options.only:
            check_beside(report)
    except FileNotFoundError as error:
        print(f"tests/deploy/run: {error.filename} is missing (tests/deploy/packages.txt, or a build)", file=sys.stderr)
        return 2
    except (Failed, RuntimeError, OSError) as error:
        print(f"tests/deploy/run: {error}", file=sys.stderr)
        return 1
    return 1 if report.failed else 0
