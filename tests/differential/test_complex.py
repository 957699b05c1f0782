"""Programs of complex numbers: fused, unfused, interpreted and NumPy's; and what callers give and get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import autofuse as af
from autofuse.errors import ArgumentError, PlanError

Array = NDArray[Any]


def numbers(shape: tuple[int, ...], dtype: Any = np.complex64, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def random_program(rng: np.random.Generator) -> Callable[[Any, Any, Any], Any]:
    """A function of two complex matrices and a real one, made of steps that keep numbers near 1."""
    unary: list[Callable[[Any], Any]] = [
        np.conj,
        lambda z: z * (0.5 - 0.5j),
        lambda z: np.exp(1j * z.real),
        lambda z: z / (1 + np.abs(z)),
        np.sqrt,
        np.tanh,
        lambda z: z - z.mean(0),
        lambda z: z / (1 + z.sum(1, keepdims=True).imag ** 2),
        lambda z: np.roll(z, 1, 1),
        lambda z: np.where(z.real > 0, z, 1j),
        lambda z: z[::-1],
        lambda z: np.cumsum(z, 0) * 0.2,
        lambda z: np.concatenate([z[:, 2:], z[:, :2]], 1),
    ]
    binary: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a * b,
        lambda a, b: a + b,
        lambda a, b: a - 2j * b,
        lambda a, b: a / (b + 3),
        lambda a, b: (a @ b.conj().T) @ b * 0.02,
    ]
    steps = [(int(rng.integers(len(binary))), rng.integers(len(unary), size=2).tolist()) for _ in range(4)]

    def program(z: Any, w: Any, x: Any) -> Any:
        for first, (left, right) in steps:
            z, w = binary[first](unary[left](z), w), unary[right](w)
        return z, np.abs(w) * x, (z * w).sum(0), w.T

    return program


def check_random_programs(seeds: range) -> None:
    for seed in seeds:
        rng = np.random.default_rng(seed)
        program = random_program(rng)
        dtype = (np.complex64, np.complex128)[seed % 2]
        shape = (int(rng.integers(1, 14)), int(rng.integers(3, 19)))
        arguments = (numbers(shape, dtype, seed), numbers(shape, dtype, seed + 1), rng.standard_normal(shape))
        expected = program(*arguments)
        tolerance = 1e-4 if seed % 2 == 0 else 1e-11
        for policy in ("analytical", "unfused"):
            found = af.compile(program, *arguments, policy=policy)(*arguments)
            for mine, theirs in zip(found, expected, strict=True):
                assert mine.dtype == theirs.dtype
                assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=f"seed {seed}, {policy}")


@pytest.mark.slow
def test_random_programs() -> None:
    check_random_programs(range(1))


@pytest.mark.slow
def test_many_random_programs() -> None:
    check_random_programs(range(1, 60))


@pytest.mark.slow
def test_fusing_changes_no_bit() -> None:
    def program(z: Any, w: Any) -> Any:
        return np.exp(z * w) / (w + 2j), np.log(z) * np.abs(w)

    z, w = numbers((7, 33)), numbers((7, 33), seed=1)
    for one, other in zip(
        af.compile(program, z, w)(z, w), af.compile(program, z, w, policy="unfused")(z, w), strict=True
    ):
        assert_array_equal(one, other)


def test_callers_give_and_get_complex_arrays(tmp_path: Any) -> None:
    def turned(z: Any, w: Any) -> Any:
        w *= 2j
        w[0] += z[0]
        return z.T * w[0, 0]

    z, given = numbers((4, 3)), numbers((4, 3), seed=1)
    after = given.copy()
    expected = turned(z, after)
    made = af.compile(turned, z, given)
    for plan in (made, af.load(made.save(tmp_path / "plan.json"))):
        w, out = given.copy(), np.empty((3, 4), np.complex64)
        assert_allclose(plan(z, w), expected, rtol=1e-5)
        assert_allclose(w, after, rtol=1e-5)
        w = given.copy()
        assert plan(np.asfortranarray(z), w, out=out) is out
        assert_allclose(out, expected, rtol=1e-5)
        with pytest.raises(ArgumentError, match="needs dtype complex64, got complex128"):
            plan(z.astype(np.complex128), w)
        with pytest.raises(ArgumentError, match=r"needs shape \(4, 3\)"):
            plan(numbers((4, 2)), w)
        with pytest.raises(ArgumentError, match=r"out: needs c64\[3,4\]"):
            plan(z, w, out=np.empty((3, 4)))


def test_a_plan_says_which_arguments_are_complex(tmp_path: Any) -> None:
    plan = af.compile(lambda x, z: z * x, np.ones(3, np.float32), af.spec("c64[3]"))
    assert (plan.document.complex_inputs, plan.document.complex_outputs) == ((1,), (0,))
    path = plan.save(tmp_path / "plan.json")
    text = path.read_text()
    for right, wrong in (("[1]", "[0]"), ("[1]", "[5]"), ("[1]", "[1, 1]")):
        path.write_text(text.replace(f'"complex_inputs": {right}', f'"complex_inputs": {wrong}'))
        with pytest.raises(PlanError, match="complex"):
            af.load(path)


def test_scalars_and_python_numbers() -> None:
    z = numbers((5,))
    plan = af.compile(lambda z, s, by: (z * s).sum() * by, z, np.complex64(2j), 1 + 2j)
    found = plan(z, np.complex64(2j), 1 + 2j)
    assert type(found) is np.complex64
    assert_allclose(found, (z * np.complex64(2j)).sum() * (1 + 2j), rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"must be \(1\+2j\)"):
        plan(z, np.complex64(2j), 2 + 2j)


def test_a_stored_plan_of_parts_serves_both_kinds_of_arguments(tmp_path: Any) -> None:
    """The same graph, of complex numbers and of reals along an axis of 2."""
    z = numbers((4, 3))
    store = tmp_path / "plans"
    first = af.jit(lambda z: z + z, store=store, on_miss="error")
    first.store.put(af.compile(lambda z: z + z, z).document)
    assert_allclose(first(z), z + z)
    parts = z.view(np.float32).reshape(4, 3, 2)
    assert_allclose(af.jit(lambda x: x + x, store=store, on_miss="compile")(parts), parts + parts)


@pytest.mark.slow
def test_tuning_measures_the_plan_and_the_function() -> None:
    z = numbers((64, 64))
    plan = af.tune(lambda z: np.abs(z * z.conj()).sum(0), z, budget=2.0, progress=False)
    assert_allclose(plan(z), np.abs(z * z.conj()).sum(0), rtol=1e-5)


@pytest.mark.parametrize("backend", ["simulated", "counted"])
def test_other_targets(backend: str) -> None:
    def program(z: Any, w: Any) -> Any:
        w += 1j
        return np.sqrt(z) * w, np.fft.fft(z, axis=0), np.linalg.inv(z[:, :3])

    z, w = numbers((3, 5)), numbers((3, 5), seed=1)
    after = w.copy()
    expected = program(z, after)
    plan = af.compile(program, z, w, backend=backend)
    for mine, theirs in zip(plan(z, w), expected, strict=True):
        assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert_allclose(w, after, rtol=1e-5)


def test_arrays_of_a_device() -> None:
    z = numbers((3, 5))
    plan: Any = af.compile(lambda z: z * 2j, z, backend="simulated")
    found = plan(plan.target.driver.array(z))
    assert found.dtype == np.complex64
    assert_allclose(found.get(), z * 2j, rtol=1e-5)
