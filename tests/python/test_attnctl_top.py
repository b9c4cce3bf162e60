"""attnctl top: its numbers are those of /metrics, and a terminal is left as it was found."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import numpy as np
import pytest

import attnd
from support import metrics_text, server_process
from support.metrics_text import quantile, value
from support.server_process import ServerProcess

ATTNCTL = Path(server_process.BINARY).with_name("attnctl")
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def tiny(http="127.0.0.1:0"):
    return ServerProcess("--model", "builtin:apex1-tiny", "--http", http)


@pytest.fixture
def server():
    running = tiny()
    yield running
    running.stop()


def rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)


def top(*words, **options):
    command = [str(ATTNCTL), "top", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


# ------------------------------------------------------------------ numbers


def test_once_shows_what_the_metrics_say(server):
    address = server.ready["http"]
    with attnd.Client(server.address) as client:
        session = client.create_session()
        client.create_session(max_tokens=200)
        session.prefill(0, rows(100))
        session.prefill(5, rows(100))
        done = top(address, "--once", "--json", "--interval", 0.2)
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        metrics = metrics_text.scrape(address)
    seen = json.loads(done.stdout)["servers"][0]
    assert (seen["address"], seen["reachable"], seen["restarted"]) == (address, True, False)
    assert seen["sessions"] == 2 == value(metrics, "attnd_sessions")
    assert seen["queue_depth"] == 0 and seen["inflight_rpcs"] == 0
    assert seen["cache"]["capacity_bytes"] == value(metrics, "attnd_kv_cache_capacity_bytes")
    ratio = value(metrics, "attnd_kv_cache_usage_ratio")
    assert seen["cache"]["usage_ratio"] == pytest.approx(ratio, rel=1e-6)
    for kind in ("global", "local", "held"):
        for state in ("used", "reserved"):
            bytes_there = value(metrics, f"attnd_kv_cache_{state}_bytes", kind=kind)
            assert seen["cache"][f"{state}_bytes"][kind] == bytes_there
    assert seen["cache"]["rows"] == {"global": 100, "local": 100}
    resident = value(metrics, "process_resident_memory_bytes")
    assert seen["resident_bytes"] == pytest.approx(resident, rel=0.2)
    assert seen["calls"]["Prefill"]["per_s"] == 0  # before the interval
    assert seen["calls"]["Prefill"]["latency_ms"]["p50"] is None
    text = top(address, "--once", "--interval", 0.2).stdout
    assert f"{address}  0.1.0 on cpu" in text and "\nsessions  2; " in text and "\x1b" not in text


def frames(process):
    """Frames with the calls of each method in the interval, exact."""
    for line in process.stdout:
        frame = json.loads(line)["servers"][0]
        calls = {m: round(c["per_s"] * frame["seconds"], 6) for m, c in frame["calls"].items()}
        yield frame, calls


def test_rates_and_percentiles_are_the_difference_between_two_readings(server):
    address = server.ready["http"]
    command = [str(ATTNCTL), "top", address, "--json", "--interval", "1"]
    with attnd.Client(server.address) as client, \
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # fmt: skip
        session = client.create_session()
        session.prefill(0, rows(10))
        views = frames(process)
        next(views)
        for _ in range(8):
            session.decode(0, rows(1))
        with pytest.raises(attnd.AttndError):
            client.get_session("nobody")
        metrics = metrics_text.scrape(address)
        frame, calls = next(views)
        after, later = next(views)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert calls["Decode"] == 8 and later["Decode"] == 0
    assert calls["GetSession"] == 1
    assert frame["calls"]["GetSession"]["failed_per_s"] * frame["seconds"] == pytest.approx(1)
    for key, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        seen = frame["calls"]["Decode"]["latency_ms"][key]
        seconds = quantile(metrics, "attnd_rpc_duration_seconds", q, method="Decode")
        assert seen == pytest.approx(1e3 * seconds)
        for part in ("queue", "compute"):
            seen = frame["phases"]["decode"]["local"][f"{part}_ms"][key]
            seconds = quantile(metrics, f"attnd_step_{part}_seconds", q, phase="decode", kind="local")
            assert seen == pytest.approx(1e3 * seconds)
    assert frame["phases"]["decode"]["local"]["tokens_per_s"] * frame["seconds"] == pytest.approx(8)
    assert frame["batches"]["decode"]["per_s"] * frame["seconds"] == pytest.approx(8)
    assert frame["batches"]["decode"]["rows_mean"] == 1
    assert after["calls"]["Decode"]["latency_ms"]["p50"] is None
    assert 0.5 < frame["seconds"] < 5


def test_several_servers_and_one_that_is_not_there(server):
    other = tiny()
    try:
        with attnd.Client(server.address) as a, attnd.Client(other.address) as b:
            sessions = [a.create_session(), b.create_session(), b.create_session()]
            assert len(sessions) == 3
            here = [server.ready["http"], other.ready["http"]]
            done = top(*here, "127.0.0.1:1", "--once", "--json", "--interval", 0.2)
            text = top(*here, "127.0.0.1:1", "--once", "--interval", 0.2)
    finally:
        other.stop()
    assert done.returncode == text.returncode == 1
    assert done.stderr == text.stderr == "attnctl: top: 127.0.0.1:1: no connection\n"
    seen = json.loads(done.stdout)
    assert [one["reachable"] for one in seen["servers"]] == [True, True, False]
    assert seen["servers"][2]["error"] == "no connection"
    assert seen["total"]["sessions"] == 3
    assert text.stdout.startswith("2 of 3 servers ")
    assert "127.0.0.1:1  unreachable: no connection" in text.stdout


def test_errors_are_one_line():
    for words, code in ((["127.0.0.1:1", "--once"], 1), (["nowhere"], 2), (["--interval", "0.01"], 2)):
        done = top(*words)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("attnctl: top: ") and done.stderr.count("\n") == 1


# ------------------------------------------------------------------ the terminal


class Screen:
    """attnctl top on a terminal of its own."""

    def __init__(self, *words, columns=100, lines=40, **environment):
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        self.written = b""

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        base = {key: text for key, text in os.environ.items() if key != "NO_COLOR"}
        self.process = subprocess.Popen(
            [str(ATTNCTL), "top", *words], stdin=self.slave, stdout=self.slave,
            stderr=subprocess.PIPE, env={**base, "TERM": "xterm", **environment},
            preexec_fn=take_terminal,
        )  # fmt: skip

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.written += os.read(self.master, 65536)

    def wait_for(self, text, seconds=30, since=0):
        end = time.monotonic() + seconds
        while text not in self.written[since:]:
            assert time.monotonic() < end, f"{text!r} did not come: {self.written[-2000:]!r}"
            self.read(0.1)

    def frame(self):
        """The next frame that begins and ends from now on: its lines without escapes."""
        since = len(self.written)
        end = time.monotonic() + 30
        while True:
            whole = self.written[since:].split(b"\x1b[H")[1:-1]
            if whole:
                plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", whole[-1]).decode()
                return [line.rstrip("\r") for line in plain.split("\n")]
            assert time.monotonic() < end, "no frame came"
            self.read(0.1)

    def send(self, keys):
        os.write(self.master, keys)

    def finish(self):
        """The exit code; what is still written is read."""
        end = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < end, "it did not end"
            self.read(0.05)
        self.read(0.05)
        return self.process.returncode

    def restored(self):
        shown = self.written.rindex(b"\x1b[?25h") > self.written.rindex(b"\x1b[?25l")
        left = self.written.rindex(LEAVE) > max(self.written.rindex(ENTER), self.written.rindex(b"\x1b[H"))
        return shown and left and termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def open_screen():
    screens = []

    def opened(*words, **options):
        screens.append(Screen(*words, **options))
        return screens[-1]

    yield opened
    for screen in screens:
        screen.close()


@pytest.mark.parametrize("ending", [b"q", b"\x03", signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_before_however_it_ends(server, open_screen, ending):
    screen = open_screen(server.ready["http"], "--interval", "0.2")
    screen.wait_for(b"sessions")
    assert screen.written.startswith(ENTER)
    while_running = termios.tcgetattr(screen.slave)
    assert not while_running[3] & (termios.ICANON | termios.ECHO)
    if isinstance(ending, bytes):
        screen.send(ending)
    else:
        screen.process.send_signal(ending)
    assert screen.finish() == 0
    assert screen.process.stderr.read() == b""
    assert screen.restored()


def test_it_stops_and_goes_on_as_a_job(server, open_screen):
    screen = open_screen(server.ready["http"], "--interval", "0.2")
    screen.wait_for(b"sessions")
    screen.send(b"\x1a")  # Ctrl-Z
    screen.wait_for(LEAVE)
    stopped, status = os.waitpid(screen.process.pid, os.WUNTRACED)
    assert stopped and os.WIFSTOPPED(status)
    assert screen.restored()
    since = len(screen.written)
    screen.process.send_signal(signal.SIGCONT)
    screen.wait_for(ENTER, since=since)
    screen.wait_for(b"sessions", since=since)
    screen.send(b"q")
    assert screen.finish() == 0 and screen.restored()


def test_it_follows_the_terminals_size(server, open_screen):
    screen = open_screen(server.ready["http"], "--interval", "0.2", columns=100, lines=40)
    screen.wait_for(b"phases")
    assert max(map(len, screen.frame())) > 40
    screen.resize(40, 6)
    screen.frame()
    small = screen.frame()
    assert len(small) == 6 and max(map(len, small)) == 40
    assert small[-1].startswith("... ")
    screen.resize(100, 40)
    screen.frame()
    assert any(line.startswith("phases") for line in screen.frame())


def test_colours_unless_they_are_not_wanted(server, open_screen):
    coloured = open_screen(server.ready["http"], "--interval", "0.2")
    coloured.wait_for(b"\x1b[1mcache")
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = open_screen(server.ready["http"], "--interval", "0.2", **environment)
        plain.wait_for(b"refusals")
        assert re.search(rb"\x1b\[[0-9;]*m", plain.written) is None


def test_a_server_that_goes_and_comes_back(open_screen):
    first = tiny()
    address = first.ready["http"]
    screen = open_screen(address, "--interval", "0.2")
    screen.wait_for(b"sessions")
    first.stop()
    screen.wait_for(b"unreachable: no connection")
    since = len(screen.written)  # it is said once, maybe before the server's ready line is read
    second = tiny(address)
    try:
        screen.wait_for(b"restarted", since=since)
        screen.wait_for(b"sessions", since=since)
        assert b"-" not in re.findall(rb"  decode local +(\S+)", screen.written[since:])
    finally:
        second.stop()
    screen.send(b"q")
    assert screen.finish() == 0 and screen.restored()
