"""The paths and the stubs, the browser, and a server under load."""

import os
import pathlib
import sys

import pytest

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "client" / "python"
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "python"), str(PACKAGE)]

import generate_stubs  # noqa: E402

if generate_stubs.is_stale(PACKAGE / "attnd" / "_proto"):
    generate_stubs.generate(PACKAGE / "attnd" / "_proto")

from browser import Browser  # noqa: E402
from load import FLAGS  # noqa: E402
from support.server_process import ServerProcess  # noqa: E402


@pytest.fixture(scope="session")
def browser():
    one = Browser()
    yield one
    one.close()


@pytest.fixture
def start():
    """start(*flags) is a server of its own."""
    running = []

    def server(*flags):
        running.append(ServerProcess(*FLAGS, *flags))
        return running[-1]

    yield server
    for process in running:
        process.stop()


@pytest.fixture
def open_page(browser):
    """open_page(server) is a tab that shows the server's page, and has polled it."""
    opened = []

    def page(server, polls=2, **options):
        opened.append(browser.page(**options))
        opened[-1].open(f"http://{server.ready['http']}/")
        opened[-1].until(f"+main.dataset.polls >= {polls}")
        return opened[-1]

    yield page
    for one in opened:
        one.close()
