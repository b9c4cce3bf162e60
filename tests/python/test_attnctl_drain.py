"""attnctl drain against real servers behind a balancer, while their clients go on."""

import json
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

import attnd
from support import server_process

from test_replaying import undisturbed
from test_session import rows

ATTNCTL = Path(server_process.BINARY).with_name("attnctl")


def drain(server, fleet, *words):
    command = [str(ATTNCTL), "drain", server.address, "--via", fleet.address, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


class Worker(threading.Thread):
    """Decodes for its sessions until it is told to stop: unary calls, or on a stream."""

    def __init__(self, fleet, streams):
        super().__init__()
        self.client = attnd.Client(fleet.address, timeout=60)
        self.sessions = [self.client.create_session() for _ in range(3)]
        self.streams, self.over = streams, threading.Event()
        self.answers, self.error = [], None

    def run(self):
        try:
            if not self.streams:
                self.work(lambda x: self.client.decode(0, self.sessions, x))
            else:
                with self.client.steps(resume=True) as stream:
                    self.work(lambda x: stream.submit_decode(0, self.sessions, x).result(120))
        except Exception as error:
            self.error = error

    def work(self, decode):
        while not self.over.is_set():
            x = rows(3, len(self.answers))
            self.answers.append(decode(x).raise_for_error().output.tobytes())
            time.sleep(0.03)  # the model ends at 512 tokens


def test_no_call_fails_and_no_bit_changes(fleet):
    workers = [Worker(fleet, streams=i % 2 == 1) for i in range(8)]
    for worker in workers:
        worker.start()
    time.sleep(1)
    target = fleet.server_of(workers[0].client.affinity_key)
    here = [one for one in workers if fleet.server_of(one.client.affinity_key) is target]
    with attnd.Client(target.address) as direct:
        expected = direct.stats().sessions
        assert expected == 3 * len(here) > 0
        done = drain(target, fleet, "--json")
        told = json.loads(done.stdout)
        assert done.returncode == 0 and told["left"] == 0
        assert done.stderr == f"attnctl: drain: waiting until {fleet.address} sends its keys elsewhere ...\n"
        assert told["moved"] == expected and told["failed"] == 0
        assert told["server_id"] == direct.stats().server_id
        assert direct.stats().sessions == 0 and direct.health() == "NOT_SERVING"
    time.sleep(1)
    for worker in workers:
        worker.over.set()
    for worker in workers:
        worker.join(120)
    assert [worker.error for worker in workers] == [None] * 8
    longest = max(workers, key=lambda worker: len(worker.answers)).answers

    def alone(session):
        """The first of the three, as if it was never moved."""
        return [session.decode(0, rows(3, i)[:1]).output.tobytes() for i in range(len(longest))]

    bits = undisturbed(fleet, alone)
    for worker in workers:
        width = len(bits[0])
        assert [answer[:width] for answer in worker.answers] == bits[: len(worker.answers)]
        for session in worker.sessions:
            assert session.info().layer_lengths[0] == len(worker.answers)


def test_a_session_that_cannot_move_stays_and_is_named(fleet):
    target = fleet.servers[0]
    with attnd.Client(target.address, affinity_key="") as keyless:
        stays = keyless.create_session(session_id="no-key")
        stays.prefill(0, rows(2))
        first = drain(target, fleet, "--tries", "1", "--settle_ms", "0")
        assert first.returncode == 1
        assert "stays: no-key" in first.stdout and "it has no affinity key" in first.stdout
        assert first.stderr.startswith(f"attnctl: drain: 1 session is at {target.address} yet")
        stays.decode(0, rows(1))
        stays.close()
    again = drain(target, fleet)
    assert (again.returncode, again.stderr) == (0, "") and again.stdout.startswith("0 moved")


def test_what_an_earlier_drain_had_brought_is_only_closed(fleet, tmp_path):
    with attnd.Client(fleet.address) as client:
        session = client.create_session()
        session.prefill(1, rows(5))
        target = fleet.server_of(client.affinity_key)
        with attnd.Client(target.address) as direct:
            # As a drain that was interrupted before its last step.
            direct.export_session(session.session_id, tmp_path / "file", move=True)
            direct.drain()
            while fleet.server_of(client.affinity_key) is target:
                time.sleep(0.05)
            client.import_session(tmp_path / "file")
            session.decode(1, rows(1))
            done = drain(target, fleet, "--json", "--settle_ms", "0")
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
            assert (told["was_there"], told["moved"], told["left"]) == (1, 0, 0)
            assert direct.stats().sessions == 0
        assert session.decode(1, rows(1)).results[0].length == 7


@pytest.mark.parametrize("leads", ["back", "nowhere"])
def test_a_balancer_without_another_server_changes_nothing(fleet, leads):
    target = fleet.servers[0]
    via = {"back": target.address, "nowhere": "127.0.0.1:1"}[leads]
    command = [str(ATTNCTL), "drain", target.address, "--via", via, "--connect_ms", "300"]
    with attnd.Client(target.address) as client:
        client.create_session()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1
        assert client.health() == "SERVING"
        if leads == "back":
            assert "only the server itself answers" in done.stderr and "--force" in done.stderr
            options = ["--force", "--route_wait_s", "0", "--tries", "1"]
            done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and "sends its key here yet" in done.stdout
            assert client.health() == "NOT_SERVING"


def test_interrupted_it_says_what_stays(fleet):
    target = fleet.servers[0]
    with attnd.Client(target.address, affinity_key="k") as client:
        client.create_session()
        command = [str(ATTNCTL), "drain", target.address, "--via", fleet.address]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running = subprocess.Popen([*command, "--settle_ms", "60000"], **pipes)
        assert "waiting until" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        _, error = running.communicate(timeout=30)
        assert running.returncode == 130
        assert error.startswith("attnctl: drain: interrupted: 0 moved, 1 session is at")
        assert len(list(client.list_sessions())) == 1


@pytest.mark.parametrize("words", [[], ["a"], ["--via", "b"], ["a", "c", "--via", "b"]])
def test_called_wrongly(words):
    done = subprocess.run([str(ATTNCTL), "drain", *words], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
