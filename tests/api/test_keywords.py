"""Arguments as Python takes them: by position, by name, with defaults, for every way to make and call a plan."""

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.full((2, 3), 2.0, np.float32)


def blend(x, w, eps=1.0, *, shift=0.0):
    return x * w + eps - shift


def test_arguments_by_name_are_given_apart_from_options():
    plan = af.compile(blend, X, kwargs={"w": W, "shift": 0.5}, policy="unfused", threads=1)
    np.testing.assert_array_equal(plan(X, w=W, shift=0.5), blend(X, W, shift=0.5))
    np.testing.assert_array_equal(plan(X, W, shift=0.5), blend(X, W, shift=0.5))
    with pytest.raises(ArgumentError, match=r"takes 3 arguments, 1 of them by name, got 3"):
        plan(X, W, 0.5)


def test_names_of_options_may_be_parameters_of_the_function():
    def seeded(policy, *, threads, seed=None):
        return policy * threads

    plan = af.compile(seeded, X, kwargs={"threads": W}, policy="unfused", threads=1)
    np.testing.assert_array_equal(plan(X, threads=W), X * W)
    assert plan.threads == 1


def test_a_parameter_may_be_called_self():
    plan = af.compile(lambda self, x: self - x, X, W)
    np.testing.assert_array_equal(plan(x=X, self=W), W - X)
    np.testing.assert_array_equal(af.jit(lambda self, x: self - x)(x=X, self=W), W - X)


def test_an_argument_behind_a_default_that_was_left_out_goes_by_name_only():
    plan = af.compile(lambda a, b=W, c=None: a + b * c, X, kwargs={"c": W})
    np.testing.assert_array_equal(plan(X, c=W), X + W * W)
    with pytest.raises(ArgumentError, match="takes 2 arguments, 1 of them by name"):
        plan(X, W)


FORMS = [((X,), {"w": W}), ((), {"w": W, "x": X}), ((X, W), {})]


@pytest.mark.parametrize("form", FORMS, ids=["mixed", "names", "positions"])
def test_a_plan_takes_arguments_either_way(form):
    args, kwargs = form
    plan = af.compile(lambda x, w: x * w, X, W)
    np.testing.assert_array_equal(plan(*args, **kwargs), X * W)
    out = np.empty_like(X)
    assert plan(*args, **kwargs, out=out) is out
    np.testing.assert_array_equal(out, X * W)
    assert [name for name, _ in plan.profile(*args, **kwargs)] == [kernel.name for kernel in plan.kernels]


def into(x, out):
    out[...] = x * 2
    return x + 1


def test_out_is_the_functions_own_where_it_has_one():
    plan = af.compile(into, X, np.empty_like(X))
    mine, results = np.empty_like(X), np.empty_like(X)
    np.testing.assert_array_equal(plan(X, out=mine), X + 1)
    np.testing.assert_array_equal(mine, X * 2)
    mine[...] = 0
    assert plan(X, mine, out=results) is results  # given by position: out= is where results go
    np.testing.assert_array_equal(results, X + 1)
    np.testing.assert_array_equal(mine, X * 2)


def test_a_saved_plan_knows_its_names(tmp_path):
    path = af.compile(blend, X, kwargs={"w": W, "shift": 0.5}).save(tmp_path / "blend.json")
    for _ in range(2):  # the second time from what the first one prepared, if that were kept
        plan = af.load(path)
        np.testing.assert_array_equal(plan(X, W, shift=0.5), blend(X, W, shift=0.5))
        with pytest.raises(ArgumentError, match="by name"):
            plan(X, W, 0.5)


def test_a_plan_that_is_ready_takes_names_too(tmp_path):
    path = af.compile(lambda x, w: x * w, X, W).save(tmp_path / "product.json")
    af.load(path)(X, W)
    np.testing.assert_array_equal(af.load(path)(w=W, x=X), X * W)


@pytest.mark.slow
def test_tuning_takes_arguments_by_name():
    plan = af.tune(blend, X, kwargs={"w": W, "shift": 0.5}, max_trials=3, progress=False)
    np.testing.assert_array_equal(plan(X, W, shift=0.5), blend(X, W, shift=0.5))


def test_tracing_and_candidates_take_arguments_by_name():
    assert [value.name for value in af.trace(blend, X, kwargs={"w": W}).inputs] == ["x", "w"]
    assert len(af.candidates(blend, X, kwargs={"w": W})) >= 1


# ---- jit -------------------------------------------------------------------------------------------------------------


def test_one_plan_serves_a_call_however_it_is_written():
    jitted = af.jit(blend)
    for result in (jitted(X, W), jitted(X, w=W), jitted(w=W, x=X)):
        np.testing.assert_array_equal(result, blend(X, W))
    assert len(list(jitted._plans)) == 1
    assert jitted.plan(X, W) is jitted.plan(w=W, x=X)


def test_values_that_go_by_name_only_are_not_mixed_up():
    jitted = af.jit(lambda a, b=1.0, c=1.0: a * b - c)
    np.testing.assert_array_equal(jitted(X, c=W), X * 1 - W)
    np.testing.assert_array_equal(jitted(X, W), X * W - 1)
    np.testing.assert_array_equal(jitted(X, c=W), X * 1 - W)
    assert len(list(jitted._plans)) == 2


def test_gathered_arguments():
    @af.jit
    def total(first, *rest, scale, **more):
        return (first + sum(rest)) * scale + sum(more.values())

    np.testing.assert_array_equal(total(X, W, W, scale=2.0), (X + W + W) * 2)
    np.testing.assert_array_equal(total(X, scale=2.0, extra=W), X * 2 + W)
    with pytest.raises(ArgumentError, match="missing a required argument: 'scale'"):
        total(X, W)


def test_wrong_names_are_refused_with_the_signature():
    with pytest.raises(
        ArgumentError, match=r"blend\(x, w, eps=1.0, \*, shift=0.0\) was given 3 arguments: got an unexp"
    ):
        af.jit(blend)(X, W, wide=W)


def test_a_function_that_numpy_runs_takes_names_too():
    @af.jit
    def power(x, *, scale):
        return np.abs(np.linalg.eigvals(np.outer(x, x))) * scale

    with pytest.warns(UserWarning, match="power runs through NumPy"):
        np.testing.assert_array_equal(power(X, scale=2.0), power.function(X, scale=2.0))
    np.testing.assert_array_equal(power(X, scale=2.0), power.function(X, scale=2.0))


def test_a_number_that_changes_is_named_as_the_function_names_it():
    jitted = af.jit(blend)
    with pytest.warns(af.NumberWarning, match=r"differ in a Python number only: shift \(0.0, 1.0, 2.0\)"):
        [jitted(X, W, shift=shift) for shift in (0.0, 1.0, 2.0)]
