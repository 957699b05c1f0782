"""`numerics="fast"`: what it changes, that it changes nothing else, and that it is part of the plan."""

import json

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError

X = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)


def normalise(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def ops(plan):
    return [node.op for node in plan.graph.nodes if node.op not in ("constant", "broadcast_in_dim")]


def both(function, *args):
    return [af.compile(function, *args, numerics=numerics) for numerics in ("strict", "fast")]


def test_products_and_sums_round_once():
    x = np.float32([1 + 2**-12])
    strict, fast = both(lambda x, y: x * x - y, x, x)  # a difference stays as it is
    assert ops(fast) == ops(strict) == ["multiply", "subtract"]
    strict, fast = both(lambda x, y: x * x + y, x, x)
    assert ops(fast) == ["fma"]
    y = -(x * x)
    assert strict(x, y) == 0  # the product's rounding error is gone
    assert fast(x, y) == np.float32(2**-24)


def test_numbers_meet():
    strict, fast = both(lambda x: (x + 1.5) * 2.0 / 3.0 + 0.0, X)
    assert ops(strict) == ["add", "multiply", "divide", "add"]
    assert len(ops(fast)) < 4
    np.testing.assert_allclose(fast(X), strict(X), rtol=1e-6)


def test_one_division_serves_a_row():
    strict, fast = both(softmax, X)
    divisions = [[node.output.type.size for node in plan.graph.nodes if node.op == "divide"] for plan in (strict, fast)]
    assert divisions == [[X.size], [X.shape[0]]]
    np.testing.assert_allclose(fast(X), strict(X), rtol=1e-6)


def test_what_is_not_finite_is_not_kept():
    infinite = np.float32([np.inf, np.nan, -1.0])
    strict, fast = both(lambda x: (x - x) + x * 0.0, infinite)
    np.testing.assert_array_equal(strict(infinite), [np.nan, np.nan, 0.0])
    np.testing.assert_array_equal(fast(infinite), [0.0, 0.0, 0.0])


@pytest.mark.parametrize("policy", ["unfused", "analytical", "rule:xla", "rule:xla-priority", "rule:inductor"])
def test_every_policy_fuses_what_fast_numerics_make(policy):
    def scaled(x, gain, bias):
        return normalise(x) * gain + bias

    gain, bias = X[0] + 2, X[1]
    plan = af.compile(scaled, X, gain, bias, policy=policy, numerics="fast")
    assert "fma" in ops(plan)
    np.testing.assert_allclose(plan(X, gain, bias), scaled(X, gain, bias), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_mode_is_in_the_plan_and_in_what_is_measured(tmp_path):
    plan = af.tune(normalise, X, numerics="fast", max_trials=3, progress=False)
    path = plan.save(tmp_path / "normalise.json")
    assert json.loads(path.read_text())["numerics"] == af.load(path).document.numerics == "fast"
    np.testing.assert_allclose(af.load(path)(X), normalise(X), rtol=1e-4, atol=1e-5)
    strict = {kernel.digest for kernel in af.compile(normalise, X).kernels}
    assert not strict & {kernel.digest for kernel in plan.kernels}  # records are found by these


def test_variants_are_cleaned_up_in_the_same_mode():
    plan = af.compile(normalise, X, numerics="fast", variants="tables=large")
    assert (plan.document.numerics, "divide" in ops(plan)) == ("fast", False)


def test_a_store_keeps_the_modes_apart(tmp_path):
    fast = af.jit(normalise, store=tmp_path, on_miss="error", numerics="fast")
    strict = af.jit(normalise, store=tmp_path, on_miss="error")
    for jitted, numerics in ((fast, "fast"), (strict, "strict")):
        jitted.store.put(af.compile(normalise, X, numerics=numerics).document)
    assert [jitted.plan(X).document.numerics for jitted in (fast, strict)] == ["fast", "strict"]


@pytest.mark.parametrize("make", [af.compile, af.tune, lambda fn, x, **options: af.jit(fn, **options)])
def test_there_are_two_modes(make):
    with pytest.raises(ArgumentError, match='numerics=\'fats\': give "strict" or "fast"'):
        make(normalise, X, numerics="fats")
