"""The real server with the rendered flag file, asked as the rendered probes and commands would."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.request

import pytest
import yaml
from chart import CHART, render
from running_server import make_secrets, serve, write_flag_file
from values import CASES

SERVED = ("defaults", "models on a claim", "a balancer elsewhere", "TLS and tokens", "mutual TLS")


@pytest.fixture(params=SERVED, ids=lambda name: name.replace(" ", "_"))
def served(request, attnd, tmp_path):
    """A rendered case and the real server with its flags."""
    rendered = render(CASES[request.param])
    make_secrets(tmp_path)
    with serve(attnd, write_flag_file(rendered, tmp_path)) as server:
        yield rendered, server


def passes(probe, server, attnctl):
    if "httpGet" in probe:
        try:
            return urllib.request.urlopen(server.http + probe["httpGet"]["path"], timeout=5).status == 200
        except urllib.error.HTTPError:
            return False
    # Without credentials and without TLS, as the kubelet.
    health = [attnctl, "health", f"--target={server.grpc}", f"--service={probe['grpc']['service']}"]
    return subprocess.run(health, capture_output=True, timeout=20).returncode == 0


def test_every_flag_of_the_config_map_is_known_to_the_server(rendered, attnd, tmp_path):
    path = write_flag_file(rendered, tmp_path)
    read = subprocess.run([attnd, f"--flagfile={path}", "--dump_flags"], text=True, capture_output=True)
    assert read.returncode == 0, read.stderr
    known = {flag["name"] for flag in json.loads(read.stdout)}
    assert {line[2:].split("=", 1)[0] for line in rendered.flags()} <= known


def test_a_flag_that_the_server_does_not_know_stops_it_with_the_line(attnd, tmp_path):
    path = write_flag_file(render({"flags": {"kv_cache_byte": "1GiB"}}), tmp_path)
    read = subprocess.run([attnd, f"--flagfile={path}", "--check"], text=True, capture_output=True)
    assert read.returncode == 2
    assert re.search(r"attnd\.conf:\d+: unknown flag --kv_cache_byte", read.stderr)


def test_a_server_that_serves_passes_all_probes_and_one_that_drains_only_liveness(served, attnctl):
    rendered, server = served
    container = rendered.container()
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert passes(container[name], server, attnctl), name
    server.terminate()
    deadline = time.monotonic() + 2  # every case drains for longer
    while passes(container["readinessProbe"], server, attnctl):
        assert time.monotonic() < deadline, "still ready after SIGTERM"
    assert passes(container["livenessProbe"], server, attnctl)


def test_the_autoscalers_metric_is_served(attnd, tmp_path):
    rendered = render({"autoscaling": {"enabled": True}})
    (metric,) = rendered.one("HorizontalPodAutoscaler")["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    with serve(attnd, write_flag_file(rendered, tmp_path)) as server:
        lines = urllib.request.urlopen(server.http + "/metrics", timeout=5).read().decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.split()[0] == name]
    assert 0 <= float(value) < float(metric["pods"]["target"]["averageValue"])
    (rule,) = yaml.safe_load((CHART.parent / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    assert rule["seriesQuery"].split("{")[0] == rule["name"]["as"] == name


@pytest.mark.parametrize("case", ["a balancer elsewhere", "Envoy", "TLS and tokens", "mutual TLS"])
def test_pre_stop_calls_attnctl_drain_with_flags_that_it_has(case, attnctl):
    command = render(CASES[case]).container()["lifecycle"]["preStop"]["exec"]["command"][-1]
    help_text = subprocess.run([attnctl, "drain", "--help"], text=True, capture_output=True, check=True).stdout
    flags = re.findall(r"--([a-z_]+)", command)
    assert "via" in flags
    for flag in flags:
        assert f"  --{flag} " in help_text, flag
    assert subprocess.run(["sh", "-n", "-c", command]).returncode == 0
