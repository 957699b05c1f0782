"""Generators of NumPy's as arguments: the same numbers and the same state afterwards as without autofuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, TraceError
from autofuse.frontend import traced
from autofuse.ir.generators import put_back
from autofuse.ir.interpreter import interpret
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget


def philox(seed: int = 7, jumps: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed).jumped(jumps))


def equal_states(a: np.random.Generator, b: np.random.Generator) -> bool:
    return repr(a.bit_generator.state) == repr(b.bit_generator.state)


def words(rng: Any) -> Any:
    """What takes whole words of 64 bits."""
    return (
        rng.random((3, 5)),
        rng.uniform(-1, [2.0, 3.0]),
        rng.uniform(np.float32(-3), 4, size=(2, 1)),
        rng.integers(0, 2**40, 3),
        rng.integers(-(2**63), 2**63, 3),
        rng.integers(0, 2**64 - 1, 3, np.uint64, endpoint=True),
        rng.random(()),
    )


def halves(rng: Any) -> Any:
    """What takes words of 32 bits; an odd number of them, so that halves are left over."""
    return (
        rng.random(7, np.float32),
        rng.integers(0, 16, 5),
        rng.integers(16),
        rng.integers(-4, 4, size=3, dtype=np.int32),
        rng.integers(0, 2**32, 3, np.uint64),
        rng.integers(5, 6, 3),
        rng.random((0, 2), np.float32),
    )


def parts(rng: Any) -> Any:
    """What takes parts of words of 32 bits."""
    return (
        rng.integers(0, 8, (2, 3), np.uint8),
        rng.integers(-128, 128, 9, np.int8),
        rng.integers(0, 2, 40, bool),
        rng.integers(0, 4, 5, np.int16),
        rng.integers(True, size=3, dtype=bool),
        rng.integers(0, 2**16, 3, np.uint16),
    )


def mixed(rng: Any) -> Any:
    return (*halves(rng), *words(rng), *parts(rng), *words(rng), *halves(rng))


def few(rng: Any) -> Any:
    """One of each kind, for what compiles: half a word is left over in every second call."""
    return rng.random((2, 3), np.float32), rng.integers(0, 4, 5, np.int8), rng.uniform(-1, 1, 5), rng.integers(0, 8, 3)


def interpreted(program: Any, rng: np.random.Generator) -> Any:
    found = traced.trace(program, rng)
    leaves = found.flatten((rng,))
    outputs = interpret(found.graph, *leaves)
    for number, output in found.writebacks:
        leaves[number][...] = outputs[output]
    put_back(leaves)
    return found.unflatten(outputs)


@pytest.mark.parametrize("jumps", [0, 3])
@pytest.mark.parametrize("program", [words, halves, parts, mixed])
def test_numbers_and_state_are_numpys(program, jumps):
    with_numpy, own = philox(jumps=jumps), philox(jumps=jumps)
    for _ in range(4):
        expected, found = program(with_numpy), interpreted(program, own)
        for right, value in zip(expected, found, strict=True):
            np.testing.assert_array_equal(value, right)
            assert value.dtype == np.asarray(right).dtype
        assert equal_states(with_numpy, own)


def test_the_counter_carries_through_all_words():
    states = [philox().bit_generator.state for _ in range(2)]
    generators = [philox() for _ in states]
    for generator, state in zip(generators, states, strict=True):
        state["state"]["counter"] = np.full(4, 2**64 - 1, np.uint64)
        generator.bit_generator.state = state
    for _ in range(2):
        np.testing.assert_array_equal(interpreted(lambda rng: rng.random(6), generators[1]), generators[0].random(6))
        assert equal_states(*generators)


@pytest.mark.parametrize("policy", ["unfused", "analytical"])
def test_a_plan_draws_what_numpy_draws(policy, tmp_path):
    with_numpy, own = philox(), philox()
    plan = af.compile(few, own, policy=policy)
    assert equal_states(with_numpy, own), "compiling draws nothing"
    plan.save(tmp_path / "few.json")
    for plan_or_loaded in (plan, af.load(tmp_path / "few.json"), plan):
        for right, value in zip(few(with_numpy), plan_or_loaded(own), strict=True):
            np.testing.assert_array_equal(value, right)
        assert equal_states(with_numpy, own)


@pytest.mark.slow
def test_the_state_advances_with_memory_for_results_and_in_jit_and_in_containers():
    def noisy(x: Any, tools: Any) -> Any:
        rng = tools["rng"]
        return x + rng.random(x.shape, np.float32)

    x, with_numpy, own = np.ones(33, np.float32), philox(), philox()
    plan, out = af.compile(noisy, x, {"rng": own}), np.empty(33, np.float32)
    np.testing.assert_array_equal(plan(x, {"rng": own}, out=out), noisy(x, {"rng": with_numpy}))
    assert equal_states(with_numpy, own)
    jitted = af.jit(noisy)
    for _ in range(3):
        np.testing.assert_array_equal(jitted(x, {"rng": own}), noisy(x, {"rng": with_numpy}))
        assert equal_states(with_numpy, own)


def test_helpers_closures_and_bound_methods_draw_too():
    def program(rng: Any) -> Any:
        draw = rng.random

        def helper() -> Any:
            return rng.integers(0, 4, 3) + draw(3)

        buffer = np.zeros((2, 2))
        rng.random(out=buffer)
        return helper(), buffer, isinstance(rng, np.random.Generator)

    with_numpy, own = philox(), philox()
    for right, value in zip(program(with_numpy), interpreted(program, own), strict=True):
        np.testing.assert_array_equal(value, right)


def test_numbers_without_a_size_are_pythons_and_take_on_dtypes():
    def program(rng: Any) -> Any:
        x = np.ones(3, np.float32)
        return x * rng.random(), x + 2 * rng.uniform(-1, 1), x / rng.random(dtype=np.float32), rng.integers(8)

    with_numpy, own = philox(), philox()
    for right, value in zip(program(with_numpy), interpreted(program, own), strict=True):
        np.testing.assert_array_equal(value, right)
        assert value.dtype == right.dtype
    assert equal_states(with_numpy, own)


def test_python_loops_draw_and_are_loops():
    def walk(x: Any, rng: Any) -> Any:
        for i in range(40):
            if i % 2:
                x[i] += rng.random()
            x += rng.uniform(-1, 1, x.shape)
        return x

    with_numpy, own = philox(), philox()
    plan = af.compile(walk, np.zeros(40), own)
    assert any(node.op == "scan" for node in plan.graph.nodes)
    np.testing.assert_array_equal(plan(np.zeros(40), own), walk(np.zeros(40), with_numpy))
    assert equal_states(with_numpy, own)


@pytest.mark.slow
def test_draws_on_the_simulated_device():
    driver = SimulatedDriver(H200)
    target: Any = SimulatedTarget(H200, driver, "simulated")
    plan = af.compile(few, philox(), backend="simulated")
    executable, state = target.executable(plan.document), traced.trace(few, philox()).flatten((philox(),))
    expected = few(philox())
    for driver.order in ("forward", "reverse"):
        for right, value in zip(expected, executable.run([np.array(state[0])]), strict=False):
            np.testing.assert_array_equal(value, right)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            lambda rng: rng.normal(size=3),
            r"Generator\.normal of a generator that is an argument cannot be traced.*af\.",
        ),
        (lambda rng: rng.integers(0, 10, 3), "of 10 different numbers cannot be traced.*more likely"),
        (lambda rng: rng.integers(0, np.arange(1, 3)), "takes Python integers as low and high"),
        (
            lambda rng: rng.integers(0, 2, dtype=bool),
            r"dtype bool without a size gives a number of Python's.*size=\(\)",
        ),
        (
            lambda rng: rng.uniform([0.0, 1.0], 2, size=3),
            r"argument low must be broadcast to shape=\(3,\), got shape \(2,\)",
        ),
        (lambda rng: rng.integers(4, 4, 3), "high must be greater than low"),
        (lambda rng: rng.integers(0, 512, 3, np.uint8), "out of bounds for uint8"),
        (lambda rng: rng.random(3, np.float16), "dtype must be float64 or float32, got float16"),
        (lambda rng: rng.random(3, out=np.zeros(4)), r"out must have dtype float64 and the shape size, got f64\[4\]"),
        (
            lambda rng: af.fori_loop(0, 3, lambda i, x: x + rng.random(2), np.zeros(2)),
            "body draws from a generator of the enclosing function.*a key in the loop's state",
        ),
        (lambda rng: rng.bit_generator, r"Generator\.bit_generator of a generator"),
    ],
)
def test_what_is_not_traced_says_what_to_write(program, message):
    with pytest.raises(TraceError, match=f"(?s){message}"):
        af.trace(program, philox())


def test_other_generators_are_refused_with_the_one_that_is_taken():
    with pytest.raises(ArgumentError, match=r"np\.random\.Generator\(np\.random\.Philox\(seed\)\)"):
        af.trace(lambda rng: rng.random(3), np.random.default_rng(0))
    plan = af.compile(lambda rng: rng.random(3), philox())
    with pytest.raises(
        ArgumentError,
        match=r"rng must be a generator, got Generator; pass np\.random\.Generator\(np\.random\.Philox\(seed\)\)",
    ):
        plan(np.random.default_rng(0))
