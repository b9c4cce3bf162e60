"""The real Envoy with the chart's configuration and the real HAProxy with deploy/haproxy's, each before real servers.

Keys go where hash_rings.py says, also after a server was added; TLS holds; Envoy's preStop command drains it.

Run by tests/deploy/helm --balancers; ATTND_ENVOY names the binary.
"""

import contextlib
import dataclasses
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request

import grpc
import hash_rings
import numpy as np
import pytest
import yaml
from chart import ROOT, render
from running_server import make_secrets, serve, write_flag_file
from values import CASES

KEYS = [f"worker-{i}" for i in range(400)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Fleet:
    """Servers of a tiny model on given ports; the last is started later."""

    def __init__(self, attnd, count):
        self.attnd = attnd
        self.ports = [(free_port(), free_port()) for _ in range(count)]
        self.processes = []
        self.ids = []

    def start(self, count):
        for grpc_port, http_port in self.ports[len(self.processes) : len(self.processes) + count]:
            flags = ["--model=builtin:apex1-tiny", "--kv_cache_bytes=16MiB", "--drain_seconds=0"]
            flags += [f"--listen=127.0.0.1:{grpc_port}", f"--http=127.0.0.1:{http_port}"]
            self.processes.append(
                subprocess.Popen([self.attnd, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            )
            assert self.processes[-1].stdout.readline().startswith("attnd ready")
            self.ids.append(self.ids_through(grpc_port, ["a"])[0])

    @staticmethod
    def ids_through(port, keys):
        """The server that answers each key."""
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/attnd.v1.AdminService/GetStats")
            found = []
            for key in keys:
                _, done = call.with_call(b"", metadata=[("attnd-session-key", key)], timeout=10, wait_for_ready=True)
                found.append(dict(done.initial_metadata())["attnd-server"])
            return found

    def places(self, port):
        """The number of the server that each key goes to through a balancer, once it uses all that run."""
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(grpc.RpcError):
                found = self.ids_through(port, KEYS)
                # Twice alike: a server may have come in the middle.
                if set(found) == set(self.ids) and found == self.ids_through(port, KEYS):
                    return np.array([self.ids.index(one) for one in found])
            assert time.monotonic() < deadline, "the balancer does not use every server"
            time.sleep(0.3)


@contextlib.contextmanager
def running(command, log):
    with log.open("w") as out:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@pytest.fixture
def fleet(attnd):
    made = Fleet(attnd, 4)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@dataclasses.dataclass(frozen=True)
class Envoy:
    port: int
    admin: int
    names: list  # of the servers, as it hashes them


@contextlib.contextmanager
def envoy_of(rendered, server_ports, folder):
    """Envoy as the chart configures it, but for its own ports and the servers' addresses; its files are in `folder`."""
    texts = rendered.one("ConfigMap", "fleet-attnd-envoy")["data"]
    files = {
        name: yaml.safe_load(text.replace("/etc/envoy-tls", f"{folder}/envoy-tls")) for name, text in texts.items()
    }
    names = []
    for locality, port in zip(
        files["cluster.yaml"]["resources"][0]["load_assignment"]["endpoints"], server_ports, strict=True
    ):
        endpoint = locality["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
        names.append(endpoint["hostname"])
    made = Envoy(free_port(), free_port(), names)
    config = files["envoy.yaml"]
    config["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = made.port
    config["admin"]["address"]["socket_address"]["port_value"] = made.admin
    source = {"path": f"{folder}/cluster.yaml", "watched_directory": {"path": str(folder)}}
    config["dynamic_resources"]["cds_config"]["path_config_source"] = source
    for name, content in files.items():
        (folder / name).write_text(yaml.dump(content))
    command = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]["command"]
    command = [part.replace("/etc/envoy/", f"{folder}/") for part in command[1:]]
    with running([os.environ["ATTND_ENVOY"], *command], folder / "envoy.log"):
        yield made


@pytest.fixture
def envoy(fleet, tmp_path):
    rendered = render({"envoy": {"enabled": True}, "autoscaling": {"enabled": True, "maxReplicas": 4}})
    with envoy_of(rendered, [port for port, _ in fleet.ports], tmp_path) as made:
        yield made


def test_envoy_places_keys_as_simulated_and_one_server_more_moves_only_its_own(fleet, envoy):
    hashes = hash_rings.envoy_hashes(KEYS)
    fleet.start(3)
    three = fleet.places(envoy.port)
    assert np.array_equal(three, hash_rings.place(hash_rings.envoy_ring(envoy.names[:3], 1024), hashes))
    fleet.start(1)
    four = fleet.places(envoy.port)
    assert np.array_equal(four, hash_rings.place(hash_rings.envoy_ring(envoy.names, 1024), hashes))
    assert set(four[three != four]) == {3}


def test_envoys_pre_stop_command_is_taken_by_its_admin(fleet, envoy):
    fleet.start(1)
    fleet.places(envoy.port)
    rendered = render({"envoy": {"enabled": True}})
    hook = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"][
        "command"
    ]
    assert hook[:2] == ["/bin/bash", "-c"]
    script = hook[2].replace("/9901", f"/{envoy.admin}")
    script = re.sub(r"sleep \d+", "head -n 1 <&3", script)
    answer = subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=20)
    assert "200 OK" in answer.stdout, answer
    # Still served: only new connections are turned away, later.
    assert fleet.ids_through(envoy.port, ["a"]) == fleet.ids
    with urllib.request.urlopen(f"http://127.0.0.1:{envoy.admin}/ready") as ready:
        assert ready.read().strip() == b"LIVE"


def text_field(number, text):
    """A field of a protobuf message."""
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def call_with_key(port, method, key, request):
    """The server that answered; grpc.RpcError where it refused."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/attnd.v1.SessionService/{method}")
        _, done = call.with_call(request, metadata=[("attnd-session-key", key)], timeout=10)
        return dict(done.initial_metadata())["attnd-server"]


def test_a_servers_pre_stop_command_moves_its_sessions_through_envoy(fleet, envoy, attnctl):
    fleet.start(2)
    places = fleet.places(envoy.port)
    keys = KEYS[:12]
    for key in keys:  # a session named like its key
        call_with_key(envoy.port, "CreateSession", key, text_field(1, key) + text_field(5, key))
    assert 0 < np.count_nonzero(places[:12] == 0) < 12
    rendered = render({"envoy": {"enabled": True}})
    script = rendered.container()["lifecycle"]["preStop"]["exec"]["command"][-1]
    script = script.replace("127.0.0.1:8470", f"127.0.0.1:{fleet.ports[0][0]}")
    script, swapped = re.subn(r"--via \S+", f"--via 127.0.0.1:{envoy.port}", script)
    assert swapped == 1
    path = {**os.environ, "PATH": f"{attnctl.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], text=True, capture_output=True, env=path, timeout=120)
    assert done.returncode == 0, done
    for key in keys:
        assert call_with_key(envoy.port, "GetSession", key, text_field(1, key)) == fleet.ids[1]
        with pytest.raises(grpc.RpcError):
            call_with_key(fleet.ports[0][0], "GetSession", key, text_field(1, key))


def test_with_mutual_tls_calls_pass_envoy_with_a_certificate_and_not_without(attnd, attnctl, tmp_path):
    rendered = render(CASES["mutual TLS"])
    make_secrets(tmp_path)
    (tmp_path / "envoy-tls").mkdir()
    for name in ("server", "client"):
        (tmp_path / "envoy-tls" / name).symlink_to(tmp_path / "tls")
    tls = tmp_path / "tls"
    certificate = [f"--tls_ca={tls}/ca.crt", f"--tls_cert={tls}/tls.crt", f"--tls_key={tls}/tls.key"]
    with serve(attnd, write_flag_file(rendered, tmp_path)) as server:
        ports = [int(server.grpc.rpartition(":")[2]), free_port(), free_port()]
        with envoy_of(rendered, ports, tmp_path) as envoy:
            health = [attnctl, "health", f"--target=localhost:{envoy.port}", "--timeout_s=5"]
            deadline = time.monotonic() + 20
            while (answer := subprocess.run([*health, *certificate], text=True, capture_output=True)).returncode:
                assert time.monotonic() < deadline, answer
                time.sleep(0.3)
            assert answer.stdout == "SERVING\n"
            assert subprocess.run([*health, certificate[0]], capture_output=True).returncode == 1


def test_haproxy_places_keys_as_simulated_and_one_server_more_moves_only_its_own(fleet, tmp_path):
    port = free_port()
    text = (ROOT / "deploy/haproxy/haproxy.cfg").read_text()
    line = re.search(r"^  server attnd-1 attnd-1:8470 id 1\b.*$", text, re.M)[0]
    text = re.sub(r"^  server .*\n", "", text, flags=re.M).replace("bind :8470", f"bind 127.0.0.1:{port}")
    text = text.replace("/run/haproxy", str(tmp_path)).replace(
        " resolvers dns init-addr none", ""
    )  # addresses, not names
    weight = int(re.search(r"weight (\d+)", text)[1])
    for i, (grpc_port, http_port) in enumerate(fleet.ports, start=1):
        server = (
            line.replace("attnd-1:8470", f"127.0.0.1:{grpc_port}")
            .replace("attnd-1", f"attnd-{i}")
            .replace("id 1", f"id {i}")
        )
        text += f"{server} port {http_port}\n"
    (tmp_path / "haproxy.cfg").write_text(text)
    hashes = hash_rings.haproxy_hashes(KEYS)
    fleet.start(3)
    with running(["haproxy", "-db", "-f", tmp_path / "haproxy.cfg"], tmp_path / "haproxy.log"):
        three = fleet.places(port)
        assert np.array_equal(three, hash_rings.place(hash_rings.haproxy_ring([1, 2, 3], weight), hashes))
        fleet.start(1)
        four = fleet.places(port)
        assert np.array_equal(four, hash_rings.place(hash_rings.haproxy_ring([1, 2, 3, 4], weight), hashes))
        assert set(four[three != four]) == {3}
