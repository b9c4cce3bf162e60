"""Envoy and HAProxy as child processes, with the configurations of deploy/."""

from __future__ import annotations

import random
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import List, Optional, Sequence

from . import configs
from .configs import Endpoint


class BalancerError(Exception):
    pass


def free_address() -> str:
    """One that nobody has now, nor is given unasked: below the ports that systems hand out."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return f"127.0.0.1:{port}"
            except OSError:
                pass


class Balancer:
    """Serves on `address` until `stop`. `folder` has its configuration and its log."""

    name = ""

    def __init__(self, binary: Path, folder: Path, servers: Sequence[Endpoint]):
        folder.mkdir(parents=True)
        self._binary = binary
        self._folder = folder
        self._servers = list(servers)
        self._process: Optional[subprocess.Popen] = None
        self.address = free_address()

    def start(self) -> None:
        command = self._configured()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + 30
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise BalancerError(f"{' '.join(map(str, command))} does not serve: {self.log()}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]

    def add(self, server: Endpoint) -> None:
        """Adds a server while the balancer runs."""
        self._servers.append(server)
        self._add(server)

    def take_out(self, server: Endpoint) -> None:
        """No new call goes to the server, which lives on."""
        raise NotImplementedError

    def put_back(self, server: Endpoint) -> None:
        raise NotImplementedError

    def _listens(self) -> bool:
        host, _, port = self.address.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def _configured(self) -> List[str]:
        """Writes the configuration; the command."""
        raise NotImplementedError

    def _add(self, server: Endpoint) -> None:
        raise NotImplementedError


class Envoy(Balancer):
    name = "envoy"

    def _configured(self) -> List[str]:
        self._admin = free_address()
        path = configs.write_envoy(self._folder, self.address, self._admin, self._servers)
        options = ["--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"]
        return [str(self._binary), "--config-path", str(path), *options]

    def _add(self, server: Endpoint) -> None:
        configs.write_envoy_cluster(self._folder, self._servers)

    def take_out(self, server: Endpoint) -> None:
        configs.write_envoy_cluster(self._folder, [one for one in self._servers if one != server])

    def put_back(self, server: Endpoint) -> None:
        configs.write_envoy_cluster(self._folder, self._servers)

    def counter(self, name: str) -> int:
        """A counter of Envoy's own, such as cluster.attnd.outlier_detection.ejections_enforced_total."""
        url = f"http://{self._admin}/stats?filter=^{name}$"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.read().decode().rpartition(":")[2])


class HAProxy(Balancer):
    name = "haproxy"

    def _configured(self) -> List[str]:
        path = configs.write_haproxy(self._folder, self.address, self._servers)
        return [str(self._binary), "-db", "-f", str(path)]

    def _add(self, server: Endpoint) -> None:
        for line in configs.haproxy_commands(server):
            answer = self._command(line)
            if answer.strip() and "registered" not in answer:
                raise BalancerError(f"{line}: {answer.strip()}")

    def take_out(self, server: Endpoint) -> None:
        self._command(f"set server attnd/{server.name} state maint")

    def put_back(self, server: Endpoint) -> None:
        self._command(f"set server attnd/{server.name} state ready")

    def _command(self, line: str) -> str:
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(10)
            admin.connect(str(self._folder / "admin.sock"))
            admin.sendall(line.encode() + b"\n")
            return b"".join(iter(lambda: admin.recv(4096), b"")).decode()


KINDS = {kind.name: kind for kind in (Envoy, HAProxy)}
