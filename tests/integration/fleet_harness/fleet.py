"""Three servers behind a balancer, and what is known of them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any, Iterable, List, Optional, Sequence, Type

import attnd
from support.server_process import ServerProcess

from .balancers import Balancer
from .configs import Endpoint
from .probe import Probe

# A later flag takes the place of an earlier one.
FLAGS = ("--model", "builtin:apex1-tiny", "--threads", "1", "--kv_cache_bytes", "256MiB")


# The balancer's threads take them by chance, and each has its own view of the servers.
_CONNECTIONS = 12


class FleetError(Exception):
    pass


class Server(ServerProcess):
    """A server of the build tree."""

    def __init__(self, build: Path, number: int, *flags: str):
        super().__init__(*FLAGS, *flags, binary=build / "bin" / "attnd")
        self.address = self.address.split(",")[-1]  # --listen adds an address
        self.endpoint = Endpoint(number, self.address, self.ready["http"])
        with attnd.Client(self.address) as client:
            self.id = client.stats().server_id

    @property
    def name(self) -> str:
        return self.endpoint.name

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    @property
    def exit_code(self) -> Optional[int]:
        return self._process.poll()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()

    def connections(self) -> int:
        """Connections that are open to its gRPC port, by their ends at the peers."""
        peer, established = f":{int(self.address.rpartition(':')[2]):04X}", "01"
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        fields = [line.split() for line in lines]
        return sum(f[3] == established and f[2].endswith(peer) for f in fields)

    def sessions(self) -> List[str]:
        """Ids of the sessions that are here, asked past the balancer."""
        with attnd.Client(self.address) as client:
            return [info.session_id for info in client.list_sessions()]


class Fleet:
    """Servers attnd-1 to attnd-N behind `kind`; all end with it."""

    def __init__(
        self,
        build: Path,
        kind: Type[Balancer],
        binary: Path,
        folder: Path,
        size: int = 3,
        flags: Sequence[str] = (),
    ):
        self._build = build
        self._flags = flags
        self._binary = binary
        self._folder = folder
        self.servers: List[Server] = []
        try:
            for _ in range(size):
                self.start_server()
            self.balancer = kind(binary, folder / "balancer", [s.endpoint for s in self.servers])
            self.balancer.start()
            self.wait_for(self.servers)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def stop(self) -> None:
        if hasattr(self, "balancer"):
            self.balancer.stop()
        for server in self.servers:
            if server.running:
                server.kill()

    @property
    def attnctl(self) -> Path:
        return self._build / "bin" / "attnctl"

    def start_server(self) -> Server:
        """A further server, which the balancer does not know yet."""
        server = Server(self._build, len(self.servers) + 1, *self._flags)
        self.servers.append(server)
        return server

    def start_again(self, server: Server) -> Server:
        """A server of the same name and addresses in the place of one that has ended."""
        place = self.servers.index(server)
        listen = ("--listen", server.endpoint.grpc, "--http", server.endpoint.http)
        self.servers[place] = Server(self._build, server.endpoint.number, *self._flags, *listen)
        return self.servers[place]

    def twin(self) -> Balancer:
        """A second balancer with the same configuration."""
        endpoints = [server.endpoint for server in self.servers]
        twin = type(self.balancer)(self._binary, self._folder / "twin", endpoints)
        try:
            twin.start()
            wait_for_servers(twin.address, [server.id for server in self.servers])
        except BaseException:
            twin.stop()
            raise
        return twin

    def name_of(self, server_id: str) -> str:
        names = {server.id: server.name for server in self.servers}
        return names.get(server_id, f"unknown {server_id!r}")

    def wait_for(self, servers: Iterable[Server], seconds: float = 30) -> float:
        """Waits until new calls reach all of these servers and no other; the seconds it took."""
        try:
            return wait_for_servers(self.balancer.address, [server.id for server in servers], seconds)
        except FleetError as error:
            raise FleetError(f"{error}; the balancer's log ends with {self.balancer.log()!r}") from None


def wait_for_servers(address: str, expected: Iterable[str], seconds: float = 30) -> float:
    """Waits until keys lead to exactly these servers, on whichever of the balancer's threads; the seconds
    it took."""
    begun, wanted = time.monotonic(), set(expected)
    keys = [f"ring-{i}" for i in range(40)]
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(Probe(address)) for _ in range(_CONNECTIONS)]
        while True:
            found = [set(probe.places(keys).values()) for probe in probes]
            if all(reached == wanted for reached in found):
                return time.monotonic() - begun
            if time.monotonic() - begun > seconds:
                raise FleetError(f"calls reach {found} after {seconds} s; expected {wanted}")
            time.sleep(0.05)
