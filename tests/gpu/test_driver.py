"""The driver of tests/gpu/check without a card: its plan, its limits, its results, its messages."""

import json
import pathlib
import struct
import subprocess
import sys
import types

import card as cards
import driver
import flatten
import numpy
import plan
import pytest
import results

HERE = pathlib.Path(__file__).resolve().parent


def check_script(*arguments):
    return subprocess.run([sys.executable, HERE / "check", *arguments], text=True,
                          capture_output=True, timeout=60)


def test_the_plan_fits_in_eight_minutes():
    assert plan.TOTAL_SECONDS == 480
    assert sum(step.seconds for step in plan.STEPS) <= plan.TOTAL_SECONDS
    assert all(step.seconds > 0 and hasattr(driver.Check, step.name) for step in plan.STEPS)


def test_dry_run_prints_the_plan_and_does_nothing(tmp_path):
    build = tmp_path / "build"
    done = check_script("--dry-run", "--build", str(build))
    assert done.returncode == 0
    for step in plan.STEPS:
        assert f"{step.name:10} {step.seconds:4} s" in done.stdout
    assert not build.exists()


def test_help():
    done = check_script("--help")
    assert done.returncode == 0 and "--dry-run" in done.stdout and "3 no card" in done.stdout


def test_unknown_steps_are_refused():
    done = check_script("--only", "bench,nothing")
    assert done.returncode == 2 and "unknown steps: nothing" in done.stderr


def test_without_a_driver_there_is_one_line_and_a_status_of_its_own(tmp_path, capsys):
    def load(name):
        raise OSError(f"{name}: cannot open shared object file")

    status = driver.main(["--build", str(tmp_path / "b")], find_card=lambda: cards.find(load))
    captured = capsys.readouterr()
    assert status == driver.NO_CARD == 3
    assert captured.out == ""
    assert captured.err == ("tests/gpu/check: no CUDA driver: libcuda.so.1: cannot open shared "
                            "object file; nothing was checked\n")
    assert not (tmp_path / "b").exists()


def fake_libcuda(architecture, count=1, init=0):
    def device_count(pointer):
        pointer._obj.value = count
        return 0

    def name(buffer, _, __):
        buffer.value = b"NVIDIA Test"
        return 0

    def attribute(pointer, which, _):
        pointer._obj.value = architecture // 10 if which == 75 else architecture % 10
        return 0

    return lambda _: types.SimpleNamespace(
        cuInit=lambda _: init, cuDeviceGetCount=device_count, cuDeviceGetName=name,
        cuDeviceGetAttribute=attribute)


def test_cards():
    assert cards.find(fake_libcuda(90)) == cards.Card("NVIDIA Test", 90)
    with pytest.raises(cards.NoCard, match="sm_75; the kernels need sm_80"):
        cards.find(fake_libcuda(75))
    with pytest.raises(cards.NoCard, match="the driver sees none"):
        cards.find(fake_libcuda(90, count=0))
    with pytest.raises(cards.NoCard, match="cuInit returns 100"):
        cards.find(fake_libcuda(90, init=100))
    assert [cards.arch_option(a) for a in (80, 89, 90, 100, 120)] == [
        "80-real", "89-real", "90a-real", "100a-real", "120-real"]


def runner_and_steps(tmp_path, steps, methods, total=100.0):
    runner = driver.Runner(tmp_path / "log.txt")
    runner.log.write_text("")
    check = types.SimpleNamespace(results=lambda done: {"steps": list(done)}, **methods(runner))
    written = []
    outcome = driver.run_steps(check, runner, steps, total, written.append)
    return outcome["steps"], written


def test_a_step_that_takes_too_long_is_stopped_and_the_next_begins(tmp_path):
    steps = (plan.Step("slow", 1, ""), plan.Step("next", 5, ""))
    done, written = runner_and_steps(tmp_path, steps, lambda runner: {
        # A shell that leaves a child behind: both are stopped.
        "slow": lambda: runner.run("sh", "-c", "sleep 30 & sleep 30"),
        "next": lambda: "ran"})
    assert [(s["name"], s["result"], s["detail"]) for s in done] == [
        ("slow", "FAILED", "out of time"), ("next", "passed", "ran")]
    assert 1 <= done[0]["seconds"] < 10
    assert len(written) == 2  # results are written after every step


def test_nothing_follows_a_needed_step_that_failed(tmp_path):
    steps = (plan.Step("first", 5, "", True), plan.Step("next", 5, ""))
    done, _ = runner_and_steps(tmp_path, steps, lambda runner: {
        "first": lambda: runner.run("sh", "-c", "echo why; exit 1"), "next": lambda: "ran"})
    assert [(s["name"], s["detail"]) for s in done] == [("first", "sh exits with 1")]
    assert done[0]["log"] == ["$ sh -c echo why; exit 1", "why"]


def test_the_whole_has_a_limit_of_its_own(tmp_path):
    steps = (plan.Step("first", 60, ""), plan.Step("next", 60, ""))
    done, _ = runner_and_steps(tmp_path, steps, lambda runner: {
        "first": lambda: runner.run("sleep", "30"), "next": lambda: "ran"}, total=1.5)
    assert [(s["result"], s["detail"]) for s in done] == [
        ("FAILED", "out of time"), ("left out", "no time")]


RESULTS = {
    "card": {"name": "NVIDIA Test", "architecture": 90},
    "steps": [{"name": n, "result": "passed", "seconds": 1.0} for n in ("build", "kernels", "layers")],
    "checks": [{"suite": "gqa", "name": "a", "ok": True, "error": 1e-3, "tolerance": 4e-3},
               {"suite": "gqa", "name": "b", "ok": True, "error": 2e-3, "tolerance": 4e-3}],
    "bench": [{"device": "NVIDIA Test"},
              {"name": "decode", "us": 12.5, "value": 4.0, "unit": "TB/s", "share": 0.9,
               "target": ">= 95 % of copy", "met": False},
              {"left_out": "prefill"}],
    "peers": [{"name": "PyTorch", "us": 20.0, "value": 2.0, "unit": "TB/s"}],
}


def test_results_are_one_file_with_tables_and_json():
    text = results.markdown(RESULTS)
    assert "| gqa | 2 | 0 | 0.50 |" in text
    assert "| decode | 12.5 | 4 TB/s | 90 % | >= 95 % of copy: missed |" in text
    assert "| prefill | left out: no time | | | |" in text
    assert "| PyTorch | 20.0 | 2 TB/s |  |  |" in text
    assert json.loads(text.split("```json\n")[1].split("\n```")[0]) == RESULTS


def test_what_counts_as_well():
    assert results.all_well(RESULTS)  # a missed target is no failure
    failed = {**RESULTS, "checks": RESULTS["checks"] + [
        {"suite": "plain", "name": "c", "ok": False, "detail": "not finite at 3"}]}
    assert not results.all_well(failed)
    assert "| plain | c | FAILED | not finite at 3 |" in results.markdown(failed)
    assert not results.all_well({**RESULTS, "checks": []})
    for result in ("FAILED", "left out"):
        steps = [{**RESULTS["steps"][0]}, {"name": "kernels", "result": result, "seconds": 1.0}]
        assert not results.all_well({**RESULTS, "steps": steps})


def test_lines_of_a_program_that_was_stopped(tmp_path):
    path = tmp_path / "lines"
    assert results.read_lines(path) == []
    path.write_text('{"a": 1}\n{"b": 2}\n{"c": ')
    assert results.read_lines(path) == [{"a": 1}, {"b": 2}]


def sanitizer(tmp_path, status, lines):
    """A Check whose compute-sanitizer writes `lines` as gpu_check and exits with `status`."""
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\nfor a; do [ "$p" = --out ] && out=$a; p=$a; done\n'
                    f"printf '%s' '{lines}' > \"$out\"\nexit {status}\n")
    tool.chmod(0o755)
    args = driver.parse(["--build", str(tmp_path), "--sanitizer", str(tool)])
    runner = driver.Runner(tmp_path / "log.txt")
    runner.deadline = driver.time.monotonic() + 20
    return driver.Check(args, cards.Card("x", 90), runner)


def test_sanitizer(tmp_path):
    good = '{"suite": "gqa", "name": "a", "ok": true}\n'
    assert sanitizer(tmp_path, 0, good).memcheck() == "1 checks"
    with pytest.raises(driver.Stopped, match="reports errors"):
        sanitizer(tmp_path, driver.SANITIZER_FOUND_ERRORS, good).memcheck()
    with pytest.raises(driver.Stopped, match="1 checks failed"):
        sanitizer(tmp_path, 1, good.replace("true", "false")).memcheck()
    # It refuses the device: that is no fault of the kernels.
    assert "does not work here" in sanitizer(tmp_path, 255, "").racecheck()


def test_golden_cases_are_flattened(tmp_path):
    golden = HERE.parent / "golden"
    assert flatten.flatten(golden, tmp_path, ["apex1_tiny"]) == 22
    lines = (tmp_path / "golden.txt").read_text().splitlines()
    floats = (tmp_path / "golden.bin").read_bytes()
    assert lines[0].split()[:10] == "model apex1_tiny 64 4 2 16 8 16 24 64".split()
    scales = [float.fromhex(s) for s in lines[0].split()[10:]]
    assert scales == pytest.approx([16 ** -0.5, 24 ** -0.5], rel=1e-15)
    # The first case's x is what the safetensors file has.
    case = next(line.split() for line in lines if line.startswith("case 0 1 "))
    raw = (golden / "apex1_tiny" / "cases.safetensors").read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    begin, end = json.loads(raw[8 : 8 + size])["layer0.len1.prefix0.x"]["data_offsets"]
    at = 4 * int(case[3])
    assert floats[at : at + 256] == raw[8 + size + begin : 8 + size + end]


def test_frequencies_are_those_of_the_python_tests():
    sys.path.insert(0, str(HERE.parent / "python"))
    from support import reference
    for path in sorted((HERE.parent / "golden").glob("*/model.yaml")):
        config = flatten.read_config(path)
        for width in (config["d_head"], config["d_head_rope"]):
            numpy.testing.assert_allclose(flatten.frequencies(config, int(width)),
                                          reference.frequencies(config, int(width)), rtol=1e-14)
