"""attnctl bench against a real server: the load asked for, what a stall costs, a clean end."""

import csv
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import attnd
from support import metrics_text, server_process
from support.server_process import ServerProcess

ATTNCTL = Path(server_process.BINARY).with_name("attnctl")
LAYERS = 6  # of apex1-tiny


@pytest.fixture
def server():
    running = ServerProcess("--model", "builtin:apex1-tiny")
    yield running
    running.stop()


def start(server, *words):
    command = [str(ATTNCTL), "bench", "--target", server.address, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def bench(server, *words):
    """(exit code, the JSON report or None, standard error)."""
    process = start(server, "--json", *words)
    out, err = process.communicate(timeout=120)
    return process.returncode, json.loads(out) if out else None, err


def session_ids(server):
    with attnd.Client(server.address) as client:
        return [session.session_id for session in client.list_sessions()]


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.mark.parametrize("mode, method, rows", [
    ("decode", "Decode", 2), ("steps", "Steps.Decode", 2), ("prefill", "Prefill", 100),
])  # fmt: skip
def test_a_modest_rate_is_reached_without_an_error(server, mode, method, rows):
    words = ["--mode", mode, "--rate", 20, "--arrivals", "constant", "--duration", 2, "--warm_up", 0.5]
    words += ["--sessions", 8, "--prompt", 100] + ([] if mode == "prefill" else ["--batch", 2])
    code, report, err = bench(server, *words)
    assert (code, err) == (0, "")
    assert report["due"] == report["answered"] == 40
    assert (report["failed"], report["unstarted"], report["errors"]) == (0, 0, {})
    assert 10 < report["answered_per_s"] <= 20
    assert report["rows_per_s"] == pytest.approx(report["answered_per_s"] * rows * LAYERS)
    times = report["latency_ms"]
    assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["p999"] <= times["max"]
    assert session_ids(server) == []
    # The server saw those requests and the 10 of the warm-up, a call a layer.
    metrics = metrics_text.scrape(server.ready["http"])
    assert metrics_text.value(metrics, "attnd_sessions_created_total") == 8
    calls = metrics_text.value(metrics, "attnd_rpc_requests_total", method=method, code="OK")
    prompts = 8 * LAYERS if method == "Prefill" and mode != "prefill" else 0
    assert calls == 50 * LAYERS + prompts


def test_one_layer_and_several_clients(server):
    words = ["--layers", 5, "--rate", 50, "--duration", 1, "--warm_up", 0, "--clients", 3]
    code, report, err = bench(server, *words, "--sessions", 6, "--prompt", 0, "--seed", 7)
    assert (code, err) == (0, "")
    assert report["layers"] == [5] and report["clients"] == 3
    assert report["answered"] == report["due"] > 25
    metrics = metrics_text.scrape(server.ready["http"])
    tokens = metrics_text.value(metrics, "attnd_tokens_total", phase="decode", kind="global")
    assert tokens == report["answered"]
    assert metrics_text.value(metrics, "attnd_tokens_total", phase="decode", kind="local") == 0


def test_the_seed_decides_when_requests_are_due(server):
    words = ["--rate", 200, "--duration", 0.3, "--warm_up", 0, "--prompt", 0]
    first, again, other = [bench(server, *words, "--seed", seed)[1]["due"] for seed in (1, 1, 2)]
    assert first == again != other


def test_requests_due_in_a_stall_count_from_when_they_were_due(server, tmp_path):
    file = tmp_path / "intervals.csv"
    process = start(server, "--json", "--rate", 50, "--arrivals", "constant", "--duration", 4, "--warm_up", 0,
                    "--sessions", 1, "--layers", 0, "--csv", file, "--interval", 0.5)  # fmt: skip
    name = ("attnd_rpc_requests_total", (("code", "OK"), ("method", "Decode")))
    wait_for(lambda: metrics_text.scrape(server.ready["http"])[name] >= 25)
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(0.8)
    os.kill(server.pid, signal.SIGCONT)
    report = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 0 and report["due"] == report["answered"] == 200
    # One request met the stall; 40 were due in it and waited 400 ms on average.
    assert report["latency_ms"]["max"] >= report["service_ms"]["max"] >= 700
    assert report["latency_ms"]["p90"] >= 300
    assert report["service_ms"]["p90"] < 150
    assert report["late"] >= 30
    rows = list(csv.DictReader(file.open()))
    assert [float(row["from_s"]) for row in rows] == [0.5 * i for i in range(8)]
    assert [int(row["due"]) for row in rows] == [25] * 8
    assert sum(int(row["late"]) for row in rows) == report["late"]
    assert max(float(row["max_ms"]) for row in rows) == pytest.approx(report["latency_ms"]["max"], abs=0.001)


def test_more_than_the_server_can_do_is_said(server):
    words = ["--mode", "prefill", "--prompt", 200, "--rate", 20000, "--duration", 1, "--warm_up", 0.5]
    code, report, err = bench(server, *words)
    assert (code, err) == (0, "")
    assert report["unstarted"] > report["due"] / 2 and report["answered"] > 0
    assert report["answered_per_s"] < 10000
    assert report["latency_ms"]["p99"] > 500  # what was never sent counts with its wait


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_report_and_its_sessions(server, number):
    process = start(server, "--json", "--rate", 100, "--duration", 600, "--warm_up", 0)
    name = ("attnd_rpc_requests_total", (("code", "OK"), ("method", "Decode")))
    wait_for(lambda: metrics_text.scrape(server.ready["http"])[name] >= 100)
    assert len(session_ids(server)) == 16
    assert all(one.startswith("bench-") for one in session_ids(server))
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "attnctl: bench: interrupted\n")
    report = json.loads(out)
    assert report["interrupted"] and report["answered"] > 0 and report["duration_s"] < 600
    assert session_ids(server) == []


def test_a_signal_while_sessions_are_made_closes_those_there_are(server):
    process = start(server, "--sessions", 20000, "--prompt", 200, "--duration", 1)
    wait_for(lambda: len(session_ids(server)) > 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (1, "", "attnctl: bench: interrupted\n")
    assert session_ids(server) == []


def test_failures_are_counted_and_lost_sessions_made_anew(server):
    words = ["--rate", 20, "--duration", 3, "--warm_up", 0, "--sessions", 4, "--prompt", 10]
    process = start(server, "--json", *words)
    wait_for(lambda: len(session_ids(server)) == 4)
    with attnd.Client(server.address) as client:
        client.close_session(session_ids(server)[0])
    out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 1
    assert err == "attnctl: bench: failed requests: 1; --max_errors is 0\n"
    assert report["errors"] == {"NOT_FOUND SESSION_CLOSED": 1}
    assert report["failed"] == 1 and report["answered"] == report["due"] - 1
    assert session_ids(server) == []
    metrics = metrics_text.scrape(server.ready["http"])
    assert metrics_text.value(metrics, "attnd_sessions_created_total") == 5


def test_a_server_that_dies_and_comes_back_is_loaded_again(tmp_path):
    first = ServerProcess("--model", "builtin:apex1-tiny")
    file = tmp_path / "intervals.csv"
    process = start(first, "--json", "--mode", "steps", "--rate", 20, "--duration", 7, "--warm_up", 0,
                    "--sessions", 4, "--prompt", 10, "--timeout_s", 1, "--max_errors", 1000,
                    "--csv", file)  # fmt: skip
    wait_for(lambda: len(session_ids(first)) == 4)
    time.sleep(0.3)
    os.kill(first.pid, signal.SIGKILL)
    time.sleep(1.2)
    second = ServerProcess("--model", "builtin:apex1-tiny", "--listen", first.address)
    try:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        report = json.loads(out)
        assert report["errors"]["NOT_FOUND SESSION_UNKNOWN"] >= 4  # each lane's, once or more
        assert report["errors"].keys() & {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
        last = list(csv.DictReader(file.open()))[-1]
        assert int(last["answered"]) == int(last["due"]) > 0
        assert session_ids(first) == []  # the second, at the address of the first
    finally:
        second.stop()


def test_no_room_for_the_sessions_is_one_line_and_leaves_none(server):
    small = ServerProcess("--model", "builtin:apex1-tiny", "--kv_cache_bytes", "3MiB")
    try:
        code, report, err = bench(small, "--sessions", 500, "--prompt", 200)
        assert code == 1 and report is None
        assert err.startswith("attnctl: bench: ") and err.endswith(" (CACHE_FULL)\n")
        assert err.count("\n") == 1 and session_ids(small) == []
    finally:
        small.stop()


def test_wrong_usage_is_exit_code_2(server, tmp_path):
    for words in (["--prompt", 1000], ["--layers", 6], ["--sessions", 3, "--batch", 2], ["--rate", "x"]):
        code, report, err = bench(server, *words)
        assert code == 2 and report is None and err.count("\n") == 1
    code, report, err = bench(server, "--csv", tmp_path / "none" / "file")
    assert code == 2 and report is None and "cannot be written" in err
