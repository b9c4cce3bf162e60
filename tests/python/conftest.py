"""Puts the package of the source tree on the path, with its stubs made, and starts servers.

ATTND_BIN names the server binary (default build/bin/attnd), ATTND_GOLDEN the golden cases
(default tests/golden). With ATTND_INSTALLED=1 the package installed by pip is tested instead
of the source tree's.
"""

import os
import sys
from pathlib import Path

import pytest

# Servers are started while gRPC's threads run. Newer gRPC would act on each fork, and sometimes
# broke the child before its exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "client" / "python"
sys.path.insert(0, str(HERE))
if os.environ.get("ATTND_INSTALLED") != "1":
    sys.path.insert(0, str(PACKAGE))


def _make_stubs():
    """Makes the stubs anew unless this interpreter's protobuf takes the ones there are."""
    sys.path.insert(1, str(PACKAGE))
    import generate_stubs

    out = PACKAGE / "attnd" / "_proto"
    if generate_stubs.is_stale(out):
        generate_stubs.generate(out)
    try:
        import attnd  # noqa: F401
    except Exception:  # made by another generator, for another protobuf
        for name in [name for name in sys.modules if name.split(".")[0] == "attnd"]:
            del sys.modules[name]
        generate_stubs.generate(out)


if os.environ.get("ATTND_INSTALLED") != "1":
    _make_stubs()

import attnd  # noqa: E402
from support import golden  # noqa: E402
from support.balancer import Balancer  # noqa: E402
from support.fake_server import FakeServer  # noqa: E402
from support.server_process import ServerProcess  # noqa: E402


@pytest.fixture
def fake():
    """The fake server of the odd model, in process; tests may set its faults."""
    folder = golden.FOLDER / "odd"
    server = FakeServer(folder / "model.yaml", folder / "model.safetensors")
    yield server
    server.stop()


@pytest.fixture
def fake_client(fake):
    with attnd.Client(fake.address, timeout=20) as client:
        yield client


@pytest.fixture(scope="session")
def servers():
    """Starts the server of a golden model once: servers("odd") is its ServerProcess."""
    running = {}

    def server(model):
        if model not in running:
            running[model] = ServerProcess.of_golden(model)
        return running[model]

    yield server
    for process in running.values():
        process.stop()


@pytest.fixture
def connect(servers):
    """connect("odd") is a client of that model's server."""
    clients = []

    def client(model, **options):
        clients.append(attnd.Client(servers(model).address, timeout=60, **options))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


@pytest.fixture
def fleet():
    """Two real servers of the odd model, `servers`, behind a balancer, to be killed at will."""
    servers = [ServerProcess.of_golden("odd", "--drain_seconds=0.5") for _ in range(2)]
    balancer = Balancer(servers)
    balancer.servers = servers
    yield balancer
    balancer.stop()
    for server in servers:
        server.stop()


@pytest.fixture
def client(fleet):
    """A client of the fleet that soon knows that a session will not come."""
    with attnd.Client(fleet.address, timeout=30, arrival_wait=2) as one:
        yield one
