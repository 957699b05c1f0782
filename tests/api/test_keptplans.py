"""What a jitted function keeps, and what it says of Python numbers."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import autofuse as af
from autofuse.api import jit as module
from autofuse.api.keptplans import KeptPlans
from autofuse.errors import ArgumentError

X = np.arange(6.0).reshape(2, 3)


def damped(x, settings, rate):
    return x * settings["decay"] - rate


# ---- which plans stay ------------------------------------------------------------------------------------------------


def test_what_was_asked_for_longest_ago_goes_first():
    plans = KeptPlans(most=2)
    plans.keep("a", 1, 0)
    plans.keep("b", 2, 0)
    assert plans.find("a") == 1
    plans.keep("c", 3, 0)
    assert (plans.find("a"), plans.find("b"), plans.find("c")) == (1, None, 3)
    assert sorted(plans) == [1, 3]


def test_plans_with_large_constants_are_bounded_in_bytes():
    plans = KeptPlans(most=100, most_bytes=1000)
    for number in range(10):
        plans.keep(number, number, 400)
    assert sorted(plans) == [8, 9]
    plans.keep("large", 10, 5000)  # of the last call: it is needed now
    assert list(plans) == [10]


def test_a_jitted_function_keeps_so_many_plans_and_goes_on_being_right(monkeypatch):
    jitted = af.jit(np.negative)
    monkeypatch.setattr(jitted, "_plans", KeptPlans(most=2))
    for size in (1, 2, 3, 4, 1, 2):
        np.testing.assert_array_equal(jitted(np.ones(size)), -np.ones(size))
        assert len(jitted._plans) <= 2


def test_threads_that_call_while_plans_go_all_get_their_answers(monkeypatch):
    jitted = af.jit(np.negative)
    monkeypatch.setattr(jitted, "_plans", KeptPlans(most=1))
    arrays = [np.full(size, float(size)) for size in (1, 2, 3)] * 4
    with ThreadPoolExecutor(3) as pool:
        for array, result in zip(arrays, pool.map(jitted, arrays), strict=True):
            np.testing.assert_array_equal(result, -array)


# ---- Python numbers --------------------------------------------------------------------------------------------------


def test_the_third_plan_for_a_number_alone_is_told_of_once_by_the_parameter_s_name():
    jitted = af.jit(damped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitted(X, {"decay": 0.5}, 1)
        jitted(X, {"decay": 0.25}, 1)
    with pytest.warns(af.NumberWarning) as told:
        jitted(X, {"decay": 0.125}, 1)
    (message,) = [str(warning.message) for warning in told]
    assert "damped was compiled 3 times" in message
    assert 'settings["decay"] (0.5, 0.25, 0.125)' in message
    assert "np.float64(0.125)" in message
    assert "rate" not in message
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitted(X, {"decay": 0.0625}, 1)


def test_a_number_as_an_array_needs_one_plan():
    jitted = af.jit(damped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for decay in (0.5, 0.25, 0.125, 0.0625):
            jitted(X, {"decay": np.float64(decay)}, 1)
    assert len(jitted._plans) == 1


def test_calls_that_differ_in_shapes_too_are_told_nothing():
    jitted = af.jit(damped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (1, 2, 3, 4):
            jitted(np.ones(size), {"decay": 1.0 / size}, size)


# ---- the deadline ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deadline", [0, -1.0, True, "2", float("inf"), float("nan")])
def test_a_deadline_that_is_none_is_refused(deadline):
    for call in (lambda: af.jit(damped, deadline=deadline), lambda: af.compile(np.negative, X, deadline=deadline)):
        with pytest.raises(ArgumentError, match=r"deadline=.* must be a number of seconds above 0.*deadline=None"):
            call()


@pytest.mark.parametrize("deadline", [None, 0.5])
def test_a_jitted_function_s_plans_are_compiled_with_its_deadline(monkeypatch, deadline):
    from autofuse.api import compiling

    given = []
    original = compiling.compile
    monkeypatch.setattr(compiling, "compile", lambda *a, **k: given.append(k["deadline"]) or original(*a, **k))
    module.jit(np.negative, deadline=deadline)(X)
    assert given == [deadline]


def test_an_unrolled_loop_is_a_warning_that_names_the_line_and_a_note():
    def settled(x):
        for _ in range(40):
            x = x * 0.5 + 1.0
        return x

    with pytest.warns(af.UnrolledLoopWarning, match=r"settled was traced 40 times.*af\.scan or af\.fori_loop") as told:
        plan = af.compile(settled, X, roll=False)
    assert told[0].filename == __file__
    assert any(note.startswith("unrolled loop: ") for note in plan.document.notes)
    np.testing.assert_array_equal(plan(X), settled(X))
