"""The soak can fail: each kind of fault, given to the judge that is to notice it."""

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import attnd
import numpy as np
import pytest
from soak_harness import calls, lifecycle, streams
from soak_harness.history import History, Rules, Step
from soak_harness.ledger import Ledger
from soak_harness.sessions import Judge, Outcome, SoakSession

ROWS, WIDTH, WINDOW, REWIND = 200, 4, 7, 16
RULES = Rules(WINDOW, REWIND, (False, True), ROWS, 1 << 20, WIDTH)


def family(prefix=0):
    """Two variants that leave each other at row 50; the answers are the negated rows."""
    random = np.random.default_rng(1)
    base = random.standard_normal((2, ROWS, WIDTH)).astype(np.float32)
    other = random.standard_normal((2, ROWS, WIDTH)).astype(np.float32)
    other[:, :50] = base[:, :50]
    common = np.array([[ROWS, 50], [50, ROWS]])
    return streams.Family(prefix, [base, other], [-base.astype(np.float64), -other.astype(np.float64)], common)


class Bench:
    """A judge, and a session of it."""

    def __init__(self, prefix=0, max_tokens=0, ttl=20.0):
        self.ledger = Ledger()
        self.judge = Judge(self.ledger)
        history = History(family(prefix), RULES, max_tokens)
        handle = SimpleNamespace(session_id="s")
        self.session = SoakSession(handle, history, ttl, evictable=False, sent=time.monotonic())

    def answer(self, step, error=None, how="plain", change=None, **options):
        history = self.session.history
        begin, _ = history.answered(step)
        outcome = Outcome(error)
        if error is None:
            outcome = Outcome(None, history.expected(step).astype(np.float32), begin, step.end)
            if change is not None:
                change(outcome)
        return self.judge.step(self.session, step, outcome, how, time.monotonic(), **options)

    @property
    def found(self):
        return dict(self.ledger.found)


def refusal(reason, kind=attnd.FailedPrecondition):
    return kind("text", reason=reason)


def test_right_answers_are_no_findings():
    bench = Bench()
    assert bench.answer(Step(0, 0, 60, 0)) == "done"
    assert bench.answer(Step(0, 60, 3, 0, decode=True)) == "done"
    assert bench.answer(Step(0, 50, 3, 1, rewind=True)) == "done"
    assert bench.answer(Step(0, 53, 1, 0), refusal("CACHE_FULL", attnd.ResourceExhausted)) == "refused"
    assert not bench.found and bench.ledger.counts["rows checked"] == 66


def one_element(outcome):
    outcome.output[1, 2] += 0.01


def a_nan(outcome):
    outcome.output[0, 0] = np.nan


def a_row_less(outcome):
    outcome.output = outcome.output[1:]


def rows_of_elsewhere(outcome):
    outcome.output_position += 1


def another_length(outcome):
    outcome.length += 1


@pytest.mark.parametrize("change", [one_element, a_nan, a_row_less, rows_of_elsewhere, another_length])
def test_a_wrong_answer_is_found(change):
    bench = Bench()
    bench.answer(Step(1, 0, 5, 0), change=change)
    assert bench.found == {"wrong answer": 1} and bench.ledger.failed


def test_rows_that_should_have_been_cut_away_are_found():
    bench = Bench()
    bench.answer(Step(1, 0, 80, 0))
    step = Step(1, 49, 10, 1, rewind=True)

    def stale(outcome):
        outcome.output = -bench.session.history.hidden(replace(step, variant=0))

    bench.answer(step, change=stale)
    assert bench.found == {"wrong answer": 1}


@pytest.mark.parametrize("reason, kind", [
    ("POSITION_MISMATCH", attnd.FailedPrecondition), ("INTERNAL", attnd.Internal),
    ("SESSION_EXPIRED", attnd.NotFound), ("SESSION_UNKNOWN", attnd.NotFound),
    ("SESSION_CLOSED", attnd.NotFound), ("", attnd.Unavailable), ("", attnd.DeadlineExceeded)])  # fmt: skip
def test_a_refusal_without_cause_is_found(reason, kind):
    bench = Bench()
    bench.answer(Step(0, 0, 5, 0), refusal(reason, kind))
    assert bench.found == {"unexpected refusal": 1}


def test_a_wrong_length_beside_a_refusal_is_found():
    bench = Bench()
    step = Step(0, 9, 5, 0, decode=True)
    outcome = Outcome(refusal("POSITION_MISMATCH"), length=1)
    bench.judge.step(bench.session, step, outcome, "plain", time.monotonic())
    assert bench.found == {"wrong answer": 1}


def test_a_reserved_session_never_meets_cache_full():
    bench = Bench(max_tokens=100)
    bench.answer(Step(0, 0, 5, 0), refusal("CACHE_FULL", attnd.ResourceExhausted))
    assert bench.found == {"unexpected refusal": 1}


def test_a_session_may_expire_after_its_time():
    bench = Bench(ttl=0.01)
    time.sleep(0.02)
    assert bench.answer(Step(0, 0, 5, 0), refusal("SESSION_EXPIRED", attnd.NotFound)) == "gone"
    assert not bench.found


def test_a_refusal_does_not_tell_that_an_idle_session_is_there():
    full, expired = refusal("QUEUE_FULL", attnd.ResourceExhausted), refusal("SESSION_EXPIRED", attnd.NotFound)
    bench = Bench(ttl=0.01)
    time.sleep(0.02)
    assert bench.answer(Step(0, 0, 5, 0), full) == "refused"
    assert bench.answer(Step(0, 0, 5, 0), expired) == "gone"
    assert not bench.found
    bench = Bench(ttl=20.0)
    bench.answer(Step(0, 0, 5, 0), full)  # within its time it restarts it
    bench.answer(Step(0, 0, 5, 0), expired)
    assert bench.found == {"unexpected refusal": 1}


def test_a_session_that_outlives_its_time_is_found(monkeypatch):
    async def answered(c, session):
        session.touch(time.monotonic(), "GetSession")

    monkeypatch.setattr(lifecycle, "look", answered)
    for idle, found in ((2.5, {}), (3.5, {"unexpected success": 1})):
        bench = Bench(ttl=0.8)
        bench.session.named -= idle - 0.8  # it is left alone for another ttl, at most
        setting = SimpleNamespace(settled=lambda bench=bench: [bench.session], ledger=bench.ledger)
        setting.choose = SimpleNamespace(choice=lambda of: of[0], uniform=lambda low, high: 1.0)
        asyncio.run(lifecycle.expire(setting))
        assert bench.found == found, idle


def test_success_where_a_refusal_is_due_is_found():
    bench = Bench()
    bench.answer(Step(0, 7, 5, 0))  # the layer is empty
    assert bench.found == {"unexpected success": 1}


def test_an_unknown_outcome_is_repeated_from_either_state():
    bench = Bench()
    step = Step(0, 0, 5, 0)
    assert bench.answer(step, refusal("", attnd.Cancelled), how="cancel") == "unknown"
    assert bench.session.history.layers[0].pending == step
    assert bench.answer(replace(step, rewind=True, expected_length=5)) == "done"
    assert bench.session.history.settled and not bench.found


def test_a_lost_step_that_must_be_refused_is_not_repeated():
    bench = Bench()
    bench.answer(Step(0, 0, 5, 0))
    assert bench.answer(Step(0, 4, 1, 1), refusal("", attnd.Cancelled), how="cancel") == "refused"
    assert bench.session.history.settled


@pytest.mark.parametrize("at, refusals", [
    (0, {""}), (100, {""}), (90, {""}), (84, {""}), (83, {"REWIND_TOO_FAR"}), (20, {"PREFIX_ANSWERED"})])  # fmt: skip
def test_the_rules_of_cuts(at, refusals):
    history = History(family(prefix=30), RULES)
    history.apply(Step(0, 0, 95, 0))
    history.apply(Step(0, 95, 5, 0))
    history.layers[0].first = 100 - WINDOW - REWIND
    assert history.cut_refusals(0, at) == refusals
    assert history.cut_refusals(0, 95) == {""}  # the last step's start


def test_prefix_rows_are_answered_together():
    history = History(family(prefix=30), RULES)
    assert history.answered(Step(0, 0, 29, 0)) == (0, 0)
    assert history.answered(Step(0, 20, 15, 0)) == (0, 35)
    assert history.answered(Step(0, 20, 15, 0, output_rows="last")) == (34, 35)
    assert history.refusals(Step(0, 0, 1, 0, decode=True)) == {"PREFIX_INCOMPLETE"}


def test_variants_may_be_changed_below_their_branch():
    assert family().compatible(0, 50) == [0, 1]
    assert family().compatible(0, 51) == [0]


def test_what_hangs_is_found(monkeypatch):
    monkeypatch.setattr(calls, "BOUND", 0.05)
    ledger = Ledger()
    with pytest.raises(calls.Stuck):
        asyncio.run(calls.bounded(asyncio.sleep(60), "a call", ledger))
    assert ledger.found == {"stuck": 1}
