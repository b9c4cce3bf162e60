"""The judgements of /metrics, of memory and of the command line."""

import pathlib
import subprocess
import sys

import pytest
from soak_harness import exposition, memory
from soak_harness.exposition import Exposition
from soak_harness.ledger import Ledger
from soak_harness.memory import MIB, Memory
from soak_harness.report import Table

SOAK = pathlib.Path(__file__).resolve().parents[1] / "soak"

TEXT = """\
# HELP attnd_sessions Sessions held.
# TYPE attnd_sessions gauge
attnd_sessions 2
# TYPE attnd_sessions_created_total counter
attnd_sessions_created_total 5
# TYPE attnd_sessions_ended_total counter
attnd_sessions_ended_total{reason="closed"} 2
attnd_sessions_ended_total{reason="expired"} 1
# TYPE attnd_kv_cache_capacity_bytes gauge
attnd_kv_cache_capacity_bytes 1000
# TYPE attnd_kv_cache_used_bytes gauge
attnd_kv_cache_used_bytes{kind="global"} 300
attnd_kv_cache_used_bytes{kind="local"} 100
# TYPE attnd_kv_cache_reserved_bytes gauge
attnd_kv_cache_reserved_bytes{kind="global"} 100
# TYPE attnd_kv_cache_usage_ratio gauge
attnd_kv_cache_usage_ratio 0.5
# TYPE attnd_kv_cache_tokens gauge
attnd_kv_cache_tokens{kind="global"} 7
# TYPE attnd_queue_depth gauge
attnd_queue_depth 0
# TYPE attnd_inflight_rpcs gauge
attnd_inflight_rpcs 0
# TYPE attnd_rpc_requests_total counter
attnd_rpc_requests_total{method="Prefill",code="OK"} 3
# TYPE attnd_rpc_duration_seconds histogram
attnd_rpc_duration_seconds_bucket{method="Prefill",le="+Inf"} 3
attnd_rpc_duration_seconds_count{method="Prefill"} 3
attnd_rpc_duration_seconds_sum{method="Prefill"} 0.25
"""


def changed(*pairs):
    text = TEXT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return Exposition(text)


def test_a_consistent_scrape_passes():
    now = Exposition(TEXT)
    more = changed(('code="OK"} 3', 'code="OK"} 4\nattnd_rpc_requests_total{method="Prefill",code="CANCELLED"} 1'))
    assert exposition.moment(now) == [] and exposition.change(now, more) == []
    assert now.by("attnd_kv_cache_used_bytes", "kind") == {"global": 300, "local": 100}


@pytest.mark.parametrize("old, new, says", [
    ("ratio 0.5", "ratio 1.5", "usage ratio is 1.5"), ("ratio 0.5", "ratio 0.4", "of the capacity"),
    ('kind="local"} 100', 'kind="local"} 700', "of the capacity"), ('kind="local"} 100', 'kind="local"} -1', "is -1"),
    ("attnd_sessions 2", "attnd_sessions 3", "created minus ended is 2"), ("depth 0", "depth nan", "is nan"),
    ('{kind="global"} 7', '{session="s"} 7', "unknown labels: session")])  # fmt: skip
def test_an_inconsistent_moment_is_found(old, new, says):
    assert any(says in text for text in exposition.moment(changed((old, new))))


@pytest.mark.parametrize("old, new, says", [
    ("created_total 5", "created_total 4", "fell from 5 to 4"),
    ('le="+Inf"} 3', 'le="+Inf"} 2', "fell from 3 to 2"), ("} 0.25", "} 0.1", "fell"),
    ('attnd_kv_cache_tokens{kind="global"} 7', 'attnd_kv_cache_tokens{kind="s-17"} 7', "series came"),
    ('attnd_kv_cache_tokens{kind="global"} 7\n', "", "series went")])  # fmt: skip
def test_a_counter_that_falls_and_series_that_come_are_found(old, new, says):
    assert any(says in text for text in exposition.change(Exposition(TEXT), changed((old, new))))


EMPTY = [("attnd_sessions 2", "attnd_sessions 0"), ('"global"} 300', '"global"} 0'), ('"local"} 100', '"local"} 0'),
         ('reserved_bytes{kind="global"} 100', 'reserved_bytes{kind="global"} 0'), ('"global"} 7', '"global"} 0')]  # fmt: skip


@pytest.mark.parametrize("left", range(len(EMPTY)))
def test_what_is_left_behind_is_found(left):
    assert exposition.at_rest(changed(*EMPTY)) == []
    found = changed(*EMPTY[:left], *EMPTY[left + 1 :])
    assert len(exposition.at_rest(found)) == 1
    assert (exposition.leaked_bytes(found) > 0) == (left in (1, 2, 3))


def test_requests_without_a_duration_are_found():
    found = changed(*EMPTY, ('code="OK"} 3', 'code="OK"} 4'))
    assert exposition.at_rest(found) == ["Prefill: 4 requests, 3 durations"]


@pytest.mark.parametrize("rate, grown", [(0, False), (0.01, False), (1, True)])
def test_memory_that_grows_is_found(rate, grown):
    samples = [(float(at), (50 + rate * at) * MIB) for at in range(100)]
    assert memory.measure(samples, 0, 100, sanitized=False).grown == grown


def test_memory_of_the_warm_up_does_not_count():
    samples = [(float(at), (50 if at < 20 else 90) * MIB) for at in range(100)]
    assert not memory.measure(samples, 0, 100, sanitized=False).grown


def test_the_table_ends_with_what_matters():
    ledger = Ledger()
    ledger.refuse("CACHE_FULL")
    table = Table(ledger, 64, 2, 7, [("refusing", Memory(50 * MIB, 51 * MIB, 8 * MIB))])
    text = "\n".join(table.lines())
    told = ("seed 7: passed", "refused: CACHE_FULL", "wrong answers                0", "pages leaked", "first 50.0 MiB")
    for said in told:
        assert said in text
    ledger.find("wrong answer", "text")
    assert "FAILED" in table.lines()[0]


@pytest.mark.parametrize("arguments, says", [
    (["--minutes", "0"], "number above 0"), (["--clients", "x"], "number from 1 to 1000"),
    (["--build", "/nonexistent"], "is missing"), (["--without-grpc", "--build", "/nonexistent"], "is missing"),
    (["--json", "/nonexistent/x.json"], "No such file"), (["--minuets", "1"], "unrecognized")])  # fmt: skip
def test_a_wrong_call_is_one_line_and_exit_code_2(arguments, says):
    done = subprocess.run([sys.executable, str(SOAK), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
