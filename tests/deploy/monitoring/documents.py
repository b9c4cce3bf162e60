"""What must hold of the files of deploy/ among themselves. Each function yields what is wrong."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Dict, Iterator, List, Set, Tuple

import yaml

from . import expressions
from .expressions import read_yaml

SEVERITIES = {"warning", "critical"}
PARTS = ("Meaning", "Check", "Action")


def runbook_sections(text: str) -> Dict[str, str]:
    """The text of every section of the runbook, by its heading."""
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def check_of(section: str) -> str:
    """The commands of a section's check."""
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S))


def alerts_and_runbook(deploy: pathlib.Path) -> Iterator[str]:
    """Each alert has a severity, a summary and its section; each section is whole, and an alert's."""
    sections = runbook_sections((deploy / "RUNBOOK.md").read_text())
    alerts = expressions.rules(deploy / "prometheus/alerts.yaml")
    names = [rule["alert"] for rule in alerts]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"alert {name} is there twice"
    for rule in alerts:
        name, notes = rule["alert"], rule.get("annotations", {})
        if rule.get("labels", {}).get("severity") not in SEVERITIES:
            yield f"alert {name} has no severity of {', '.join(sorted(SEVERITIES))}"
        for note in ("summary", "description"):
            if not notes.get(note):
                yield f"alert {name} has no {note}"
        if notes.get("runbook") != f"deploy/RUNBOOK.md#{name.lower()}":
            yield f"alert {name} does not name its section of the runbook"
        if name not in sections:
            yield f"RUNBOOK.md has no section {name}"
    for name, section in sections.items():
        if name not in names:
            yield f"RUNBOOK.md has a section {name}, which is no alert"
        found = re.findall(r"^\*\*(\w+)\.\*\* *\S?", section, re.M)
        if tuple(found) != PARTS:
            yield f"RUNBOOK.md, {name}: has {', '.join(found)}; expected {', '.join(PARTS)}"
        if not check_of(section):
            yield f"RUNBOOK.md, {name}: the check has no command"
    for anchor in re.findall(r"\]\(#([^)]*)\)", (deploy / "RUNBOOK.md").read_text()):
        if anchor not in {name.lower() for name in sections}:
            yield f"RUNBOOK.md refers to #{anchor}, which is not there"


def rules_and_cases(deploy: pathlib.Path, cases: pathlib.Path) -> Iterator[str]:
    """promtool sees each alert fire, and sees it quiet where something is there to see; and what each rule records."""
    fires: Set[str] = set()
    quiet: Set[str] = set()
    recorded: Set[str] = set()
    for test in read_yaml(cases)["tests"]:
        recorded |= {case["expr"] for case in test.get("promql_expr_test", []) if case["exp_samples"]}
        for case in test.get("alert_rule_test", []):
            (fires if case.get("exp_alerts") else quiet).add(case["alertname"])
    for rule in expressions.rules(deploy / "prometheus/rules.yaml"):
        if rule["record"] not in recorded:
            yield f"{cases.name} has no values of {rule['record']}"
    names = {rule["alert"] for rule in expressions.rules(deploy / "prometheus/alerts.yaml")}
    for name in sorted(names - fires):
        yield f"{cases.name} has no case in which {name} fires"
    for name in sorted(names - quiet):
        yield f"{cases.name} has no case in which {name} is quiet"
    for name in sorted((fires | quiet) - names):
        yield f"{cases.name} tests {name}, which is no alert"


def _overlap(one: Dict[str, int], other: Dict[str, int]) -> bool:
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def dashboard_layout(dashboard: Dict[str, Any]) -> Iterator[str]:
    """Panels within 24 columns, side by side; ids and titles that are one panel's."""
    whole: List[Dict[str, Any]] = dashboard["panels"]
    for key in ("id", "title"):
        values = [panel[key] for panel in whole]
        for value in sorted({str(value) for value in values if values.count(value) > 1}):
            yield f"two panels have the {key} {value}"
    for at, panel in enumerate(whole):
        grid = panel["gridPos"]
        if grid["x"] + grid["w"] > 24:
            yield f"panel {panel['title']} ends at column {grid['x'] + grid['w']}; there are 24"
        for other in whole[:at]:
            if _overlap(grid, other["gridPos"]):
                yield f"panels {other['title']} and {panel['title']} overlap"


def dashboard_panels(dashboard: Dict[str, Any]) -> Iterator[str]:
    """Every panel says what it shows, in which unit, of which data source."""
    for panel in expressions.panels(dashboard):
        title = panel["title"]
        if not panel.get("description", "").endswith("."):
            yield f"panel {title} has no description"
        unit = panel["fieldConfig"]["defaults"].get("unit") or panel["options"].get("yAxis", {}).get("unit")
        if not unit:
            yield f"panel {title} has no unit"
        if not panel["targets"]:
            yield f"panel {title} asks nothing"
        refs = [target["refId"] for target in panel["targets"]]
        if len(set(refs)) != len(refs):
            yield f"panel {title} uses a refId twice"
        for asked in [panel, *panel["targets"]]:
            if asked["datasource"] != {"type": "prometheus", "uid": "${datasource}"}:
                yield f"panel {title} is not of the data source that is chosen"
        for target in panel["targets"]:
            for series in expressions.selectors(target["expr"]):
                if 'job=~"$job"' not in series or 'instance=~"$instance"' not in series:
                    yield f"panel {title}, {target['refId']}: {series} is not of the job and replica that are chosen"


def provisioning(deploy: pathlib.Path) -> Iterator[str]:
    """Compose mounts what the configurations name, and Prometheus scrapes its replicas."""
    compose = read_yaml(deploy / "compose.yaml")["services"]
    prometheus = read_yaml(deploy / "prometheus/prometheus.yaml")
    for host in _hosts(prometheus):
        if host not in compose:
            yield f"prometheus.yaml names {host}, which compose.yaml does not have"
    scraped = {host for host in _hosts(prometheus["scrape_configs"])}
    for name in compose:
        if name.startswith("attnd") and name not in scraped:
            yield f"prometheus.yaml does not scrape {name}"
    beside = {path.name for path in (deploy / "prometheus").glob("*.yaml")}
    for name in sorted(set(prometheus["rule_files"]) - beside):
        yield f"prometheus.yaml names the rules {name}, which are not there"
    mounts = dict(_mounts(deploy, compose["grafana"]["volumes"]))
    for folder in ("provisioning", "dashboards"):
        if (deploy / "grafana" / folder).resolve() not in mounts:
            yield f"compose.yaml does not mount grafana/{folder}"
    provider = read_yaml(deploy / "grafana/provisioning/dashboards/attnd.yaml")
    path = provider["providers"][0]["options"]["path"]
    if mounts.get((deploy / "grafana/dashboards").resolve()) != path:
        yield f"dashboards are read from {path}, where compose.yaml mounts none"
    source = read_yaml(deploy / "grafana/provisioning/datasources/prometheus.yaml")
    if re.sub(r"^http://|:.*", "", source["datasources"][0]["url"]) not in compose:
        yield "the data source is no service of compose.yaml"
    if source["datasources"][0]["jsonData"]["timeInterval"] != prometheus["global"]["scrape_interval"]:
        yield "the data source's timeInterval is not the scrape_interval of prometheus.yaml"


def _hosts(config: Any) -> Iterator[str]:
    """Of all targets anywhere in a configuration."""
    if isinstance(config, dict):
        for key, value in config.items():
            yield from (target.split(":")[0] for target in value) if key == "targets" else _hosts(value)
    elif isinstance(config, list):
        for value in config:
            yield from _hosts(value)


def _mounts(deploy: pathlib.Path, volumes: List[str]) -> Iterator[Tuple[pathlib.Path, str]]:
    for volume in volumes:
        source, target = volume.split(":")[:2]
        if source.startswith("."):
            yield (deploy / source).resolve(), target


def named_alerts(deploy: pathlib.Path) -> Iterator[str]:
    """An alert that is spoken of anywhere is one."""
    names = {rule["alert"] for rule in expressions.rules(deploy / "prometheus/alerts.yaml")}
    spoken = ("RUNBOOK.md", "prometheus/alertmanager.yaml", "grafana/dashboards/attnd.json")
    for place in spoken:
        for name in sorted(set(re.findall(r"\bAttnd[A-Z]\w+", (deploy / place).read_text())) - names):
            yield f"{place} speaks of {name}, which is no alert"


def well_formed(deploy: pathlib.Path) -> Iterator[str]:
    """Every YAML and JSON file of the monitoring can be read."""
    for folder in ("prometheus", "grafana"):
        for path in sorted((deploy / folder).rglob("*.*")):
            try:
                json.loads(path.read_text()) if path.suffix == ".json" else read_yaml(path)
            except (ValueError, yaml.YAMLError) as error:
                yield f"{path.relative_to(deploy)}: {error}"


def problems(deploy: pathlib.Path, cases: pathlib.Path) -> List[str]:
    """All that is wrong with the files."""
    broken = list(well_formed(deploy))
    if broken:
        return broken
    found = [*alerts_and_runbook(deploy), *rules_and_cases(deploy, cases), *named_alerts(deploy), *provisioning(deploy)]
    for path in sorted((deploy / "grafana/dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text())
        said = [*dashboard_layout(dashboard), *dashboard_panels(dashboard)]
        found += [f"{path.name}: {text}" for text in said]
    return found
