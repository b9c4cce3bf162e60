"""The harness's own logic, without a compiler, and the faults' texts against the sources."""

import pathlib
import subprocess
import sys

import faults
import pytest
import seeder

HERE = pathlib.Path(__file__).resolve().parent

FAULT = faults.fault("some_fault", "because", "x.cuh", "a < b", "a <= b", "x_test", "X.*")

PASSED = """\
[ RUN      ] X.First
[       OK ] X.First (3 ms)
[==========] 1 test ran.
[  PASSED  ] 1 test.
"""
FAILED = """\
[ RUN      ] X.First
[       OK ] X.First (3 ms)
[ RUN      ] All/X.Second/bf16
../source/tests/x_test.cc:80: Failure
Value of: Near(c, got)
  Actual: false (relative error 0.14159693345097299, tolerance 0.0050000000000000001)
Expected: true
[  FAILED  ] All/X.Second/bf16, where GetParam() = 4-byte object <00-00 00-00> (3 ms)
[==========] 2 tests ran.
[  FAILED  ] 1 test, listed below:
"""
ENDED = """\
[ RUN      ] X.First
[       OK ] X.First (3 ms)
[ RUN      ] X.Second
emulated device: block 0, thread 30: race: Load at x.cuh:89
"""


def test_every_fault_is_in_the_sources():
    for fault in faults.FAULTS:
        for path, text in seeder.seeded(fault, seeder.read_source).items():
            assert text != seeder.read_source(path)


def test_faults_have_names_reasons_and_tests():
    names = [fault.name for fault in faults.FAULTS]
    assert len(set(names)) == len(names) >= 40
    for fault in faults.FAULTS:
        assert fault.why and fault.edits and fault.target.endswith("_test") and fault.tests, fault.name


@pytest.mark.parametrize("text, count", [("nothing of it", 0), ("a < b and a < b", 2)])
def test_text_that_is_not_there_once_is_one_clear_line(text, count):
    with pytest.raises(seeder.SeederError) as problem:
        seeder.seeded(FAULT, lambda path: text)
    assert str(problem.value) == (f"fault some_fault: its old text is found {count} times in "
                                  "kernels/cuda/x.cuh, not once: a < b")


def test_several_edits_of_one_file_are_all_made():
    fault = FAULT._replace(edits=[faults.Edit("p", "one", "1"), faults.Edit("p", "two", "2"),
                                  faults.Edit("q", "one", "3")])
    texts = {"p": "one two", "q": "one"}
    assert seeder.seeded(fault, texts.__getitem__) == {"p": "1 2", "q": "3"}


def test_missing_text_ends_the_run_before_anything_is_built(monkeypatch, tmp_path, capsys):
    fault = FAULT._replace(edits=[faults.Edit("kernels/cuda/combine.cuh", "not there", "")])
    monkeypatch.setattr(faults, "FAULTS", [fault])
    assert seeder.main(["--build", str(tmp_path / "b")]) == 2
    assert capsys.readouterr().out == ("tests/cuda_faults/run: fault some_fault: its old text is found 0 "
                                       "times in kernels/cuda/combine.cuh, not once: not there\n")
    assert not (tmp_path / "b").exists()


def test_outcome_of_a_program():
    assert seeder.outcome(0, PASSED) == seeder.Outcome("", "", 1)
    assert seeder.outcome(1, FAILED) == seeder.Outcome(
        "All/X.Second/bf16", "relative error 0.142, tolerance 0.005", 2)
    assert seeder.outcome(-6, ENDED) == seeder.Outcome("X.Second", "race: Load at x.cuh:89", 1)
    place = "[ RUN      ] X.First\n../source/tests/x.cc:7: broken invariant: zero\n"
    assert seeder.outcome(-6, place).message == "x.cc:7: broken invariant: zero"
    assert seeder.outcome(-11, "[ RUN      ] X.First\n").message == "ended by SIGSEGV"


def test_long_messages_are_cut():
    assert len(seeder.outcome(-6, ENDED + "x" * 500).message) <= seeder.MESSAGE


class FakeCopy:
    """A copy whose tests and compiler say what they are told."""

    def __init__(self, folder, result, problem=""):
        self.source = folder
        self.log = folder / "log.txt"
        self.result, self.problem = result, problem
        self.path = folder / "kernels/cuda/x.cuh"
        self.path.parent.mkdir(parents=True)
        self.path.write_text("if (a < b) {")

    def put(self, name, data):
        (self.source / name).write_bytes(data)

    def build(self, targets):
        self.built = self.path.read_text()
        return self.problem

    def test(self, target, tests):
        return self.result


def test_a_fault_is_seeded_for_its_test_alone(tmp_path):
    copy = FakeCopy(tmp_path, seeder.Outcome("X.First", "wrong", 1))
    row = seeder.run_fault(copy, FAULT)
    assert row.caught and (row.test, row.message) == ("X.First", "wrong")
    assert copy.built == "if (a <= b) {" and copy.path.read_text() == "if (a < b) {"
    assert seeder.judge([row]) == 0


@pytest.mark.parametrize("result, problem, message", [
    (seeder.Outcome("", "", 3), "", "3 tests passed"),
    (seeder.Outcome("", "no end after 120 s"), "", "no end after 120 s"),
    (seeder.Outcome("X.First", "wrong", 1), "x.cuh:3: error: no", "does not compile: x.cuh:3: error: no"),
    (seeder.Outcome("X.First", faults.TRIMMED_MESSAGE, 1), "", faults.TRIMMED_MESSAGE)])
def test_a_fault_that_no_test_fails_for_is_not_caught(tmp_path, result, problem, message):
    copy = FakeCopy(tmp_path, result, problem)
    row = seeder.run_fault(copy, FAULT)
    assert not row.caught and row.message == message
    assert copy.path.read_text() == "if (a < b) {"
    caught = row._replace(caught=True)
    assert seeder.judge([caught, row]) == 1
    assert "NOT CAUGHT" in seeder.table([caught, row])


def test_nothing_run_is_not_success():
    assert seeder.judge([]) == 1


@pytest.mark.parametrize("result, problem, says", [
    (seeder.Outcome("X.First", "wrong", 1), "", "fails x_test X.*: X.First wrong"),
    (seeder.Outcome("", "", 0), "", "x_test has no test X.*"),
    (seeder.Outcome("", "", 1), "x.cuh:3: error: no", "does not compile")])
def test_the_unmodified_copy_has_to_pass(tmp_path, result, problem, says):
    with pytest.raises(seeder.SeederError) as error:
        seeder.check_unmodified(FakeCopy(tmp_path, result, problem), [FAULT])
    assert says in str(error.value)


def test_the_unmodified_copy_that_passes(tmp_path):
    assert seeder.check_unmodified(FakeCopy(tmp_path, seeder.Outcome("", "", 2)), [FAULT, FAULT]) == 2


def test_kernels_that_no_test_runs_are_trimmed():
    for path in seeder.ROOT.glob("kernels/cuda/*/*.cu"):
        name = str(path.relative_to(seeder.ROOT))
        text = path.read_text()
        kept = (not name.startswith(("kernels/cuda/gqa/", "kernels/cuda/latent/")) or
                name.removeprefix("kernels/cuda/").removesuffix(".cu") in faults.INSTANCES)
        assert (seeder.trimmed(name, text) == text) == kept, name
    for name in faults.INSTANCES:
        assert (seeder.ROOT / "kernels/cuda" / (name + ".cu")).exists()
    with pytest.raises(seeder.SeederError):
        seeder.trimmed("kernels/cuda/gqa/gqa_new.cu", "// another way")


def run(*arguments):
    return subprocess.run([sys.executable, HERE / "run", *arguments], text=True, capture_output=True,
                          timeout=60)


def test_help_and_list():
    assert "Exit code" in run("--help").stdout
    listed = run("--list")
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == len(faults.FAULTS)


def test_unknown_faults_are_refused():
    done = run("--only", "window_off_by_one,nothing")
    assert done.returncode == 2 and "unknown faults: nothing" in done.stderr
