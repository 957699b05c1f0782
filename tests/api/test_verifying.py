"""A plan is compared with the function that it was made from."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import autofuse as af
from autofuse.api.verifying import faults_of
from autofuse.measurement.checks import WrongAnswerError

X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
IMPURE = [1.0]


def scaled(x):
    return np.tanh(x) * IMPURE[0], x.sum(axis=1)


def twice(x):
    return x * 2


def test_equal_answers_pass_and_leave_the_arguments_alone():
    def stepped(state, by):
        state["x"] -= by
        state["n"][:] += 1
        return state["x"].mean(), 3

    state = {"x": X.copy(), "n": np.arange(4)}
    plan = af.compile(stepped, state, 0.5)
    plan.verify(stepped, state, 0.5)
    assert np.array_equal(state["x"], X)
    assert np.array_equal(state["n"], np.arange(4))


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda x: (np.tanh(x), x.sum(axis=1) * 1.001), r"function itself, output 1 .*is off"),
        (lambda x: (np.tanh(x), x.sum(axis=0)), r"function itself, output 1 .*expected float32\[5\]"),
        (lambda x: (np.tanh(x).astype(float), x.sum(axis=1)), r"function itself, output 0 .*is float64"),
        (np.tanh, r"gives what was not traced: the result must be a tuple"),
    ],
)
def test_another_answer_of_the_function_is_named(other, what):
    with pytest.raises(af.AutofuseError, match=what):
        af.compile(scaled, X).verify(other, X)


def test_what_is_written_is_compared():
    def added(x):
        x += 1

    def added_once(x):
        x[0] += 1

    with pytest.raises(WrongAnswerError, match=r"function itself, output 0"):
        af.compile(added, X).verify(added_once, X)


def test_a_wrong_kernel_is_named(monkeypatch):
    plan = af.compile(twice, X)
    right = plan.in_order
    monkeypatch.setattr(plan, "in_order", lambda values: right(values) + 1)
    assert "output 0" in faults_of(plan, (X,))[0]


def test_a_function_that_is_verified_runs_only_what_is_right():
    verified = af.jit(scaled, verify=True)
    assert np.allclose(verified(X)[1], X.sum(axis=1), rtol=1e-5)
    IMPURE[0] = 2.0
    try:
        assert np.allclose(verified(X)[0], np.tanh(X))  # this plan was verified; IMPURE is its constant
        other = X[:3].copy()
        verified.plan(other)
        IMPURE[0] = 3.0
        for _ in range(2):
            with pytest.raises(WrongAnswerError, match=r"function itself, output 0"):
                verified(other)
    finally:
        IMPURE[0] = 1.0


def test_a_plan_made_for_specs_is_verified_when_it_is_called():
    calls = []

    def seen(x):
        calls.append(x.shape)
        return x + 1

    verified = af.jit(seen, verify=True)
    with pytest.warns(UserWarning, match="calls"):
        verified.plan(af.spec("f32[5,7]"))
    assert len(calls) == 1  # traced
    verified(X)
    verified(X)
    assert len(calls) == 2


def test_numbers_drawn_and_generators_are_those_of_the_function():
    def drawn(rng, x):
        return x + rng.random(x.shape)

    wide = X.astype(np.float64)
    rng = np.random.Generator(np.random.Philox(3))
    expected = drawn(np.random.Generator(np.random.Philox(3)), wide)
    assert np.array_equal(af.jit(drawn, verify=True)(rng, wide), expected)


def test_checked_indices_do_not_count_among_the_answers():
    def taken(x, i):
        return x[i]

    index = np.array([1, 4])
    af.compile(taken, X, index, check_bounds=True).verify(taken, X, index)


def test_what_cannot_be_verified_is_said():
    class Model:
        @af.jit(verify=True)
        def run(self, x):
            return x + 1

    with pytest.raises(af.AutofuseError, match=r"Model\.run: verify=True is for functions"):
        Model().run(X)
    with pytest.raises(af.AutofuseError, match="verify=1"):
        af.jit(verify=1)
    with pytest.raises(af.AutofuseError, match="takes 1 argument"):
        af.compile(twice, X).verify(twice)


def test_it_survives_pickling():
    again = pickle.loads(pickle.dumps(af.jit(twice, verify=True)))
    assert again._verify
    assert np.array_equal(again(X), X * 2)
