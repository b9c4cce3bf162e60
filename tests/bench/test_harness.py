"""The judgements of the harness, on figures that a fake bench makes up."""

import dataclasses
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness import beside_rows, idle_rows, measure, rows, table  # noqa: E402

CEILINGS = {"ceiling_fma": {"ms": 1, "flop": 100e9}, "ceiling_read": {"ms": 1, "bytes": 20e9}}


class FakeBench:
    rounds = 1

    def __init__(self, figures, peer=None):
        self.figures = {**CEILINGS, **figures}
        self.peer = peer

    def medians(self, _program, _names, _threads=1):
        return self.figures

    def against(self, *_):
        return self.figures, self.peer


def case(ms, flop, read=1e9):
    return {"case": {"ms": ms, "flop": flop, "bytes": read}}


def verdict(measure, bench):
    return rows.Row("row", "what", measure).result(bench)


@pytest.mark.parametrize("flop, read, share, expected", [
    (70e9, 1e9, "70 %", "ok"), (59e9, 1e9, "59 %", "MISSED"), (1e9, 15e9, "75 %", "ok")])  # fmt: skip
def test_a_share_is_of_the_nearer_roof(flop, read, share, expected):
    found = verdict(rows.share_of("program", "case", 0.6), FakeBench(case(1, flop, read)))
    assert (found["share"], found["verdict"]) == (share, expected)


def test_a_named_roof_is_taken():
    found = verdict(rows.share_of("program", "case", 0.6, roof="peak"), FakeBench(case(1, 10e9, 19e9)))
    assert (found["share"], found["verdict"]) == ("10 %", "MISSED")


@pytest.mark.parametrize("peer, flop, expected", [
    (6.0, 50e9, "ok"),  # six times as fast
    (2.0, 20e9, "MISSED"),  # three times as fast would be 30 % of the peak
    (2.0, 70e9, "MISSED"),  # 105 %: and says so
    (2.0, 50e9, "MISSED"),  # 75 %: within reach
    (None, 50e9, "not measured"),
])  # fmt: skip
def test_a_peer_that_cannot_be_beaten_is_a_miss_with_its_reason(peer, flop, expected):
    measure = rows.faster_than("script", "case", "program", "case", 3, "Peer")
    found = verdict(measure, FakeBench(case(1.0, flop), peer))
    assert found["verdict"] == expected
    beyond = flop == 70e9
    assert ("105 %" in found.get("note", "")) == beyond


def test_a_ratio_is_by_the_unit():
    figures = {"many": {"ms": 4.0, "flop": 1, "bytes": 1}, "one": {"ms": 1.0, "flop": 1, "bytes": 1}}
    measure = rows.ratio_of("program", "many", "one", most=0.35, per=(16, 1))
    assert verdict(measure, FakeBench(figures)) | {"share": "0.25 x", "verdict": "ok"} == verdict(
        measure, FakeBench(figures))  # fmt: skip


IDLE = idle_rows.Idle(sessions=1000, pages=10**9, grown=10**9, empty_cpu=0.001, idle_cpu=0.002, spread=0.1, back=0.5,
                      left=10**6, alone={"p50": 1, "p99": 2, "max": 3}, beside={"p50": 1, "p99": 2, "max": 9})  # fmt: skip


@pytest.mark.parametrize("judge, field, least_missed", [
    (idle_rows.memory, "grown", 10**9 + 20 * 10**6 + 8192 * 1000 + 1),
    (idle_rows.processor, "idle_cpu", 0.01),
    (idle_rows.expiry, "back", 1.01),
    (idle_rows.delay(20), "beside", {"p50": 1, "p99": 2, "max": 20.1}),
])  # fmt: skip
def test_idle_sessions_are_held_to_their_budgets(judge, field, least_missed):
    assert judge(IDLE)["ok"]
    assert not judge(dataclasses.replace(IDLE, **{field: least_missed}))["ok"]


def test_a_prefill_beside_decodes_is_said_beside_both_alone():
    decode = {"p50": 1.0, "p99": 2.0, "max": 9.0}
    found = beside_rows.judged({"decode_alone": decode, "decode_beside": {**decode, "p99": 10.0},
                                "prefill_alone": [1.0, 2.0], "prefill_beside": [4.0, 8.0]}, 4000)  # fmt: skip
    assert (found["value"], found["verdict"]) == (5, "for information")
    assert "local 1000 rows/s, alone 4000; global 500 rows/s, alone 2000" in found["note"]


def test_the_table_has_a_line_a_row_and_the_notes():
    machine = {"cpu": "CPU", "cores": 2, "isa": "avx2"}
    results = [{"name": "first", "verdict": "ok", "note": "why"}, {"name": "second", "verdict": "MISSED"}]
    lines = table.text(machine, results).splitlines()
    assert lines[0] == "CPU, 2 cores, avx2"
    assert [line.split()[0] for line in lines[4:6]] == ["first", "second"]
    assert lines[-1] == "first: why"


def test_names_of_rows_are_unique():
    names = [row.name for row in rows.ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("arguments, says", [
    (["--rounds", "0"], "number of 1 or more"), (["--rounds", "-1"], "number of 1 or more"),
    (["--only", "pool_handover,typo"], "begins with 'typo'"), (["--only", "unknown"], "'unknown'"),
    (["--build", "/nonexistent"], "is missing"), (["--json", "/nonexistent/x.json"], "cannot be written")])  # fmt: skip
def test_a_wrong_call_is_one_line_and_exit_code_2(arguments, says, tmp_path):
    program = tmp_path / "bin" / "bench_kernels"  # measures nothing
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho \'{"benchmarks": []}\'\n')
    program.chmod(0o755)
    driver = pathlib.Path(__file__).resolve().parent / "run"
    given = [sys.executable, str(driver), "--build", str(tmp_path), *arguments]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_peer_that_does_not_start_is_one_line(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bench_kernels").touch()
    bench = measure.Bench(tmp_path, "", 1, "/nonexistent/python")
    with pytest.raises(measure.BenchError, match="does not start: No such file"):
        bench.peer("torch_layers.py", "any")
