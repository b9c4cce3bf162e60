"""A real Prometheus that scrapes real servers under load, and what it answers."""

from __future__ import annotations

import math
import os
import pathlib
import subprocess
import time
from typing import Any, Callable, Iterator, List

import attnd
import yaml
from support.server_process import ServerProcess  # of tests/python

from . import documents, expressions, load
from .expressions import read_yaml
from .processes import Alertmanager, Failed, Prometheus, wait_for

SCRAPE = "1s"
RATE = "30s"  # $__rate_interval
# What the load must have made before anything is judged: each has a value above 0.
MADE = [
    *[f'increase(attnd_rejected_total{{reason="{reason}"}}[1m])' for reason in sorted(load.EXPECTED)],
    *[f'increase(attnd_sessions_ended_total{{reason="{reason}"}}[1m])' for reason in ("closed", "expired", "evicted")],
    *[f'increase(attnd_tokens_total{{phase="{phase}",kind="{kind}"}}[1m])'
      for phase in ("prefill", "decode") for kind in ("local", "global")],
    *[f'increase(attnd_rpc_requests_total{{code="OK",method="{method}"}}[1m])' for method in (
        "Prefill", "Decode", "Steps.Prefill", "Steps.Decode", "CreateSession", "GetSession", "ListSessions",
        "ForkSession", "RewindSession", "CloseSession", "ExportSession", "ImportSession", "GetModel", "GetStats",
        "Drain")],
    *[f'increase(attnd_rpc_requests_total{{code="{code}"}}[1m])'
      for code in ("CANCELLED", "RESOURCE_EXHAUSTED", "NOT_FOUND", "UNAVAILABLE")],
    *[f'max_over_time(attnd_kv_cache_used_bytes{{kind="{kind}"}}[1m])' for kind in ("global", "local", "held")],
    "max_over_time(attnd_queue_depth[1m])", "max_over_time(attnd_inflight_bytes[1m])",
    "sum(attnd_kv_cache_reserved_bytes)", "attnd_draining",
]  # fmt: skip


def configure(deploy: pathlib.Path, folder: pathlib.Path, targets: List[str], alertmanager: str) -> pathlib.Path:
    """prometheus.yaml and its rules with other addresses and times; all else is as it is deployed."""
    config = read_yaml(deploy / "prometheus/prometheus.yaml")
    config["global"].update(scrape_interval=SCRAPE, scrape_timeout=SCRAPE, evaluation_interval=SCRAPE)
    config["scrape_configs"][0]["static_configs"][0]["targets"] = targets
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager]
    for name in config["rule_files"]:
        rules = read_yaml(deploy / "prometheus" / name)
        for group in rules["groups"]:
            for rule in group["rules"]:
                if rule.get("alert") == "AttndReplicaDown":
                    rule["for"] = "3s"  # the one that is seen to arrive
        (folder / name).write_text(yaml.safe_dump(rules))
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class Fleet:
    """Two servers, a Prometheus that scrapes both, an Alertmanager; `stop` ends all of them."""

    def __init__(self, build: pathlib.Path, deploy: pathlib.Path, folder: pathlib.Path):
        self.deploy = deploy
        self.folder = folder
        self.build = build
        self._running: List[Any] = []
        try:
            self.busy = self._keep(ServerProcess(*load.BUSY, binary=build / "bin/attnd"))
            self.drained = self._keep(ServerProcess(*load.DRAINED, binary=build / "bin/attnd"))
            self.alertmanager = self._keep(Alertmanager(folder, deploy / "prometheus/alertmanager.yaml"))
            self.targets = [self.busy.ready["http"], self.drained.ready["http"]]
            address = self.alertmanager.url.split("//")[1]
            self.prometheus = self._keep(Prometheus(folder, configure(deploy, folder, self.targets, address)))
            wait_for("a scrape before the load", lambda: self.prometheus.values("sum(up)") == [2])
            self.start = time.monotonic()
        except BaseException:
            self.stop()
            raise

    def _keep(self, process: Any) -> Any:
        self._running.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self._running):
            process.stop()

    def drain(self) -> None:
        """The second server drains, with a session that nobody moves."""
        with attnd.Client(self.drained.address) as client:
            client.create_session(max_tokens=load.ROWS)
            client.drain()

    def make_load(self, seconds: float = 8) -> None:
        """For so long at least, and until there is some of everything."""
        running = load.Load(self.busy.address, self.folder)
        try:
            self.drain()
            time.sleep(seconds)
            wait_for("load of every kind", lambda: running.fault or not self.missing(), 60)
        except Failed:
            raise Failed(f"the load made none of: {', '.join(self.missing())}") from None
        finally:
            running.stop()
        ended = time.time()
        if running.fault:
            raise Failed(f"the load met {running.fault}")
        wait_for("a scrape of the end", lambda: self.prometheus.values("min(timestamp(up))") > [ended])

    def missing(self) -> List[str]:
        return [text for text in MADE if not any(value > 0 for value in self.prometheus.values(text))]

    def seconds(self) -> float:
        return time.monotonic() - self.start


def dashboards(fleet: Fleet, asked: List[expressions.Expression]) -> Iterator[str]:
    """Every panel shows something, and something else than 0 while there was load."""
    for where, text in asked:
        values = [value for value in fleet.prometheus.history(text, fleet.seconds()) if math.isfinite(value)]
        if not values:
            yield f"{where}: no data for {text}"
        elif not any(values):
            yield f"{where}: 0 all the time: {text}"


def dashboard_expressions(fleet: Fleet) -> Iterator[List[expressions.Expression]]:
    values = {"job": "attnd", "instance": "|".join(fleet.targets), "__rate_interval": RATE}
    for path in sorted((fleet.deploy / "grafana/dashboards").glob("*.json")):
        panels, beside = expressions.of_dashboard(path, values)
        yield panels + beside


def recorded(fleet: Fleet) -> Iterator[str]:
    """Every recording rule records, and not only zeros."""
    for rule in expressions.rules(fleet.deploy / "prometheus/rules.yaml"):
        values = fleet.prometheus.history(rule["record"], fleet.seconds())
        if not any(math.isfinite(value) and value > 0 for value in values):
            yield f"{rule['record']} records nothing above 0: {rule['expr']}"


def alerts(fleet: Fleet) -> Iterator[str]:
    """What an alert looks at is there: its expression without the comparison, and each of its series."""
    for rule in expressions.rules(fleet.deploy / "prometheus/alerts.yaml"):
        asked = [expressions.without_comparison(rule["expr"]), *expressions.selectors(rule["expr"])]
        for text in asked:
            if not any(math.isfinite(value) for value in fleet.prometheus.values(text)):
                yield f"{rule['alert']}: no data for {text}"


def settled(judge: Callable[[Fleet], Iterator[str]], fleet: Fleet) -> List[str]:
    """What `judge` finds of this moment, when it has found it for 10 s: a scrape or two may fail on a busy machine."""
    end = time.monotonic() + 10
    while True:
        found = list(judge(fleet))
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.5)


def missed(fleet: Fleet) -> Iterator[str]:
    """The judgement itself: a metric that does not exist, and one that is 0, do not pass."""
    for text, said in (("attnd_nothing", "no data"), ("attnd_sessions * 0", "0 all the time")):
        found = list(dashboards(fleet, [expressions.Expression("made up", text)]))
        if [said in problem for problem in found] != [True]:
            yield f"{text} passes: {found}"


def evaluated(fleet: Fleet) -> Iterator[str]:
    for rule in fleet.prometheus.rules():
        if rule["health"] != "ok":
            yield f"{rule['name']} is {rule['health']}: {rule.get('lastError', 'not evaluated')}"


def runbook(fleet: Fleet) -> Iterator[str]:
    """The commands of every check run as they stand, and say something."""
    environment = {
        **os.environ,
        "PATH": f"{fleet.build / 'bin'}:{os.environ['PATH']}",
        "http": fleet.busy.ready["http"],
        "grpc": fleet.busy.address,
        "prometheus": fleet.prometheus.url,
    }
    sections = documents.runbook_sections((fleet.deploy / "RUNBOOK.md").read_text())
    for name, section in sections.items():
        said = ""
        for command in documents.check_of(section).splitlines():
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command], env=environment, text=True, capture_output=True, timeout=30
            )
            said += done.stdout
            if done.returncode:
                yield f"RUNBOOK.md, {name}: {command}: status {done.returncode} {done.stderr.strip()}"
        if not said:
            yield f"RUNBOOK.md, {name}: the check says nothing"


def metrics(fleet: Fleet) -> Iterator[str]:
    """promtool has nothing to say of /metrics."""
    for target in fleet.targets:
        page = subprocess.run(["curl", "-fsS", f"http://{target}/metrics"], capture_output=True, check=True).stdout
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
        if done.returncode or done.stdout or done.stderr:
            yield f"promtool check metrics: {(done.stdout + done.stderr).decode().strip()}"


def notified(fleet: Fleet) -> Iterator[str]:
    """A replica dies: the alert reaches who is woken for it."""

    def receivers() -> List[str]:
        return fleet.alertmanager.receivers("AttndReplicaDown", fleet.targets[1])

    if receivers():
        yield "AttndReplicaDown is there before the replica is down"
    fleet.drained.stop()
    found = wait_for("AttndReplicaDown in Alertmanager", receivers)
    if found != ["on-call"]:
        yield f"AttndReplicaDown goes to {', '.join(found)}; expected on-call"
