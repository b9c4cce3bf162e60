"""The judgement of the files: each of these faults is found."""

import pathlib
import shutil

import pytest

from . import documents

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path):
    """A copy of deploy/ and of the cases, to break."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    shutil.copy(ROOT / "tests/deploy/rules_test.yaml", tmp_path)
    return tmp_path


FAULTS = [
    ("deploy/RUNBOOK.md", "## AttndRefusals", "## Refusals", "has no section AttndRefusals"),
    ("deploy/RUNBOOK.md", "**Action.** CACHE_FULL", "CACHE_FULL", "AttndRefusals: has Meaning, Check"),
    ("deploy/RUNBOOK.md", "(#attndqueueslow)", "(#queue)", "refers to #queue"),
    ("deploy/prometheus/alerts.yaml", "labels: {severity: critical}", "labels: {severity: bad}", "no severity"),
    ("deploy/prometheus/alerts.yaml", "alert: AttndDrainStuck", "alert: AttndStuck", "in which AttndStuck fires"),
    ("deploy/prometheus/alerts.yaml", "RUNBOOK.md#attndrestarting", "RUNBOOK.md", "does not name its section"),
    ("tests", "{eval_time: 5m, alertname: AttndRefusals}", "", "no case in which AttndRefusals is quiet"),
    ("tests", "expr: job:attnd_sessions:sum", "expr: up", "no values of job:attnd_sessions:sum"),
    ("deploy/prometheus/prometheus.yaml", "attnd-3:9470", "attnd-4:9470", "names attnd-4"),
    ("deploy/prometheus/prometheus.yaml", "  - alerts.yaml", "  - alarms.yaml", "names the rules alarms.yaml"),
    ("deploy/prometheus/prometheus.yaml", "rule_files:", "rule_files: [", "prometheus.yaml: "),
    ("deploy/grafana/dashboards/attnd.json", '"title": "Queue"', '"title": "Cores busy"', "have the title"),
    ("deploy/grafana/dashboards/attnd.json", '"w": 12', '"w": 13', "ends at column 25"),
    ("deploy/grafana/dashboards/attnd.json", 'queue_depth{job=~\\"$job\\",', "queue_depth{", "is not of the job"),
    ("deploy/grafana/dashboards/attnd.json", '"unit": "reqps"', '"units": ""', "has no unit"),
    (
        "deploy/grafana/dashboards/attnd.json",
        "AttndQueueSlow fires",
        "AttndQueueFull fires",
        "speaks of AttndQueueFull",
    ),
    ("deploy/grafana/provisioning/dashboards/attnd.yaml", "/var/lib/grafana", "/srv", "compose.yaml mounts none"),
]


@pytest.mark.parametrize("name, before, after, said", FAULTS)
def test_a_fault_is_found(folder, name, before, after, said):
    path = folder / ("rules_test.yaml" if name == "tests" else name)
    text = path.read_text()
    assert before in text
    lines = [line for line in text.splitlines() if line.strip() != f"- {before}" or after]
    path.write_text("\n".join(lines).replace(before, after))
    found = documents.problems(folder / "deploy", folder / "rules_test.yaml")
    assert [text for text in found if said in text], found
