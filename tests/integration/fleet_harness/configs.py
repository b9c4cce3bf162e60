"""The balancers' configurations of deploy/ with other addresses, and nothing else changed."""

from __future__ import annotations

import copy
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Sequence

import yaml

ROOT = Path(__file__).resolve().parents[3]
ENVOY = ROOT / "deploy" / "envoy"
HAPROXY = ROOT / "deploy" / "haproxy" / "haproxy.cfg"

POINTS = 1024  # of the ring, a server: cluster.yaml says so


@dataclass(frozen=True)
class Endpoint:
    """A server behind a balancer. Its place in the ring is that of its name (Envoy) or number (HAProxy)."""

    number: int  # from 1
    grpc: str  # host:port
    http: str

    @property
    def name(self) -> str:
        return f"attnd-{self.number}"


def split(address: str) -> Dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"address": host, "port_value": int(port)}


def replace_file(path: Path, text: str) -> None:
    """As an operator does: the new file appears at once."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    os.replace(beside, path)


def envoy_cluster() -> Dict[str, Any]:
    """The cluster of deploy/envoy/cluster.yaml, of its three servers."""
    (cluster,) = yaml.safe_load((ENVOY / "cluster.yaml").read_text())["resources"]
    return cluster


def write_envoy_cluster(folder: Path, servers: Sequence[Endpoint]) -> None:
    cluster = envoy_cluster()
    first = cluster["load_assignment"]["endpoints"][0]
    localities = []
    for server in servers:
        locality = copy.deepcopy(first)
        locality["locality"]["sub_zone"] = server.name
        (endpoint,) = locality["lb_endpoints"]
        endpoint["endpoint"]["hostname"] = server.name
        endpoint["endpoint"]["address"]["socket_address"] = split(server.grpc)
        localities.append(locality)
    cluster["load_assignment"]["endpoints"] = localities
    (policy,) = cluster["load_balancing_policy"]["policies"]
    policy["typed_extension_config"]["typed_config"]["minimum_ring_size"] = POINTS * len(servers)
    replace_file(folder / "cluster.yaml", yaml.safe_dump({"resources": [cluster]}))


def write_envoy(folder: Path, listen: str, admin: str, servers: Sequence[Endpoint]) -> Path:
    """envoy.yaml and cluster.yaml in `folder`; the path of the first."""
    bootstrap = yaml.safe_load((ENVOY / "envoy.yaml").read_text())
    (listener,) = bootstrap["static_resources"]["listeners"]
    listener["address"]["socket_address"] = split(listen)
    bootstrap["admin"]["address"]["socket_address"] = split(admin)
    source = bootstrap["dynamic_resources"]["cds_config"]["path_config_source"]
    source["path"] = str(folder / Path(source["path"]).name)
    source["watched_directory"]["path"] = str(folder)
    path = folder / "envoy.yaml"
    replace_file(path, yaml.safe_dump(bootstrap))
    write_envoy_cluster(folder, servers)
    return path


def _once(pattern: str, replacement: str, text: str) -> str:
    text, count = re.subn(pattern, lambda _: replacement, text, flags=re.M)
    if count != 1:
        raise ValueError(f"haproxy.cfg has {count} lines like {pattern!r}; expected 1")
    return text


def write_haproxy(folder: Path, listen: str, servers: Sequence[Endpoint]) -> Path:
    """haproxy.cfg in `folder`, its admin socket beside it."""
    text = HAPROXY.read_text()
    text = _once(r"^  bind :8470 ", f"  bind {listen} ", text)
    text = _once(r"(?<=^  stats socket )\S+", str(folder / "admin.sock"), text)
    text, count = re.subn(r"^  server attnd-\d .*\n", "", text, flags=re.M)
    if count != 3:
        raise ValueError(f"haproxy.cfg has {count} servers; expected 3")
    text += "".join(f"  server {haproxy_server(server)}\n" for server in servers)
    path = folder / "haproxy.cfg"
    replace_file(path, text)
    return path


def haproxy_server(server: Endpoint) -> str:
    """A server's line, but for what default-server says."""
    port = split(server.http)["port_value"]
    return f"{server.name} {server.grpc} id {server.number} check-proto h1 port {port}"


def haproxy_commands(server: Endpoint) -> List[str]:
    """What adds a server while HAProxy runs: `add server` knows no default-server and no names."""
    words = " ".join(re.findall(r"^  default-server (.*)$", HAPROXY.read_text(), re.M))
    words = words.replace(" resolvers dns init-addr none", "").replace("port 9470 ", "")
    place = f"attnd/{server.name}"
    line = haproxy_server(server).partition(" ")[2]
    return [f"add server {place} {line} {words}", f"enable health {place}", f"enable server {place}"]
