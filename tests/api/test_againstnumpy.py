"""Tuned plans against the function they were made from; times are given, none is taken."""

import time
from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.api import againstnumpy, tunedplans
from autofuse.api.againstnumpy import against_function
from autofuse.api.plan import Plan
from autofuse.errors import SlowerThanNumpyWarning
from autofuse.frontend.traced import trace
from autofuse.testing.plans import example_plan

X = np.arange(6.0)


def doubled(x):
    x *= 2
    return x + 1


@pytest.fixture
def timed(monkeypatch):
    """Sets what the function's first call, and the blocks of a race, are said to take."""

    def say(first_us, plan_us=(), function_us=()):
        def race(calls, blocks, block_us, seed, *, by, resting):
            for call in calls.values():
                call()
            return {"plan": list(plan_us), "function": list(function_us)}

        def roughly(call, left_us, clock):
            call()
            return first_us

        monkeypatch.setattr(againstnumpy, "_roughly_us", roughly)
        monkeypatch.setattr(againstnumpy, "interleave", race)

    return say


def tuned(function, e2e_us=100.0):
    """A plan that took so long in the worker."""
    certificate = replace(example_plan().certificate, e2e_us=e2e_us)
    return replace(af.compile(function, X).document, certificate=certificate)


def test_a_plan_that_is_slower_has_a_note_and_a_warning(timed):
    timed(80.0, [100.0, 110, 90, 105, 100, 100, 100], [50.0] * 7)
    x = X.copy()
    with pytest.warns(SlowerThanNumpyWarning, match="the plan of doubled is slower than the function itself") as caught:
        document = against_function(tuned(doubled), doubled, trace(doubled, X), [x], 60.0)
    assert [note.split(":")[0] for note in document.notes] == ["slower than the function itself through NumPy"]
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize(
    ("first_us", "plan_us"),
    [(200.0, [900.0] * 7), (80.0, [51.0] * 7), (80.0, [40.0] * 7), (80.0, [50.0, 500, 50, 500, 50, 500, 500])],
    ids=["slower in the worker", "as fast", "faster", "disturbed"],
)
def test_no_alarm_otherwise(timed, recwarn, first_us, plan_us):
    timed(first_us, plan_us, [50.0] * 7)
    document = against_function(tuned(doubled), doubled, trace(doubled, X), [X.copy()], 60.0)
    assert document.notes == tuned(doubled).notes
    assert not recwarn.list


@pytest.mark.parametrize(("first_us", "function_us"), [(300.0, 300.0), (80.0, 49.0)], ids=["apart", "in turns"])
def test_the_functions_own_time_is_certified_and_explained(timed, first_us, function_us):
    timed(first_us, [40.0] * 7, [49.0, 50, 51, 52, 53, 54, 55])
    plan = Plan(against_function(tuned(doubled), doubled, trace(doubled, X), [X.copy()], 60.0))
    assert plan.certificate.function_us == function_us
    assert f"by itself; the plan is {function_us / 100:.3g} times as fast" in plan.explain()


def test_a_slow_function_runs_once():
    calls = []

    def slow(x):
        calls.append(time.perf_counter_ns())
        while len(calls) < 2 and time.perf_counter_ns() < calls[0] + 2_000_000:
            pass
        return doubled(x)

    document = against_function(tuned(doubled), slow, trace(doubled, X), [X.copy()], 0.005)
    assert len(calls) == 1
    assert document.certificate.function_us >= 2000.0


def test_a_function_that_refuses_random_data_is_not_timed(timed):
    def picky(x):
        if type(x) is np.ndarray:
            raise ValueError("not these")
        return x + 1

    timed(80.0, [100.0] * 7, [50.0] * 7)
    document = tuned(lambda x: x + 1)
    assert against_function(document, picky, trace(lambda x: x + 1, X), [X], 60.0) == document


@pytest.mark.parametrize(("seconds", "function_us"), [(1e-4, None), (0.03, 80.0)])
def test_there_is_no_race_without_time_for_it(timed, seconds, function_us):
    timed(80.0, [100.0] * 7, [50.0] * 7)
    document = against_function(tuned(doubled), doubled, trace(doubled, X), [X.copy()], seconds)
    assert document.notes == tuned(doubled).notes
    assert document.certificate.function_us == function_us


def test_an_interrupt_while_the_function_runs_keeps_the_tuned_plan(monkeypatch):
    """Tuning is over by then: all of it would be lost."""

    def interrupted(call, clock):
        raise KeyboardInterrupt

    monkeypatch.setattr(againstnumpy, "rough_us", interrupted)
    monkeypatch.setattr(tunedplans, "_tuned", lambda *_: tuned(doubled))
    plan = af.tune(doubled, X.copy(), budget=60.0, db="kept.db")
    assert tunedplans.was_interrupted(plan)
    assert "db='kept.db' to resume" in plan.document.notes[-1]
