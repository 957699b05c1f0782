"""Arrays of the device wherever a caller may give some, and those that do not fit: a named error or a named copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.errors import ArgumentError, OutOfBoundsError
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.array import SimulatedArray
from autofuse.testing.simt.device import SimulatedDriver

X = np.random.default_rng(0).standard_normal((9, 40)).astype(np.float32)


def softmax(x: Any) -> Any:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def scaled(x: Any, y: Any) -> Any:
    """Writes into `x`, and returns something else."""
    x[...] = x * 2 + y
    return y.sum(0)


def driver_of(plan: af.Plan) -> SimulatedDriver:
    found: Any = plan.target
    return found.driver


def on(plan: af.Plan, array: NDArray[Any]) -> SimulatedArray:
    """A copy of an array on the device that runs a plan."""
    return driver_of(plan).array(array)


def strided(plan: af.Plan, array: NDArray[Any]) -> SimulatedArray:
    """The same elements, every second one of a row."""
    return on(plan, np.repeat(array, 2, axis=-1))[..., ::2]


def misaligned(plan: af.Plan, array: NDArray[Any]) -> SimulatedArray:
    """The same elements, which begin 4 bytes behind a multiple of 16."""
    there = on(plan, np.concatenate([array[:1].reshape(-1)[:1], array.reshape(-1)]))
    view = there[1:]
    return view.seen_as(array.shape, array.dtype, view.data.ptr, None)


class Foreign:
    """An array of another library, which lies on the device."""

    def __init__(self, array: SimulatedArray, *, read_only: bool = False) -> None:
        self.own, self.shape, self.dtype, self._read_only = array, array.shape, array.dtype, read_only

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.own.__cuda_array_interface__, "data": (self.own.data.ptr, self._read_only)}


class ByDlpack:
    """The same of a library that speaks DLPack only."""

    def __init__(self, array: SimulatedArray) -> None:
        self.own, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: Any) -> SimulatedArray:
        """What stands for a capsule here."""
        assert stream is not None
        return self.own


FORMS: dict[str, Any] = {
    "own": on,
    "strided": strided,
    "misaligned": misaligned,
    "foreign": lambda plan, array: Foreign(on(plan, array)),
    "foreign strided": lambda plan, array: Foreign(strided(plan, array)),
    "dlpack": lambda plan, array: ByDlpack(on(plan, array)),
}


def elements(array: Any) -> NDArray[Any]:
    return array if isinstance(array, np.ndarray) else getattr(array, "own", array).get()


# ---- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_arguments_are_read_where_they_lie(form: str) -> None:
    plan = af.compile(softmax, X, backend="simulated")
    found = plan(FORMS[form](plan, X))
    assert isinstance(found, SimulatedArray)
    np.testing.assert_array_equal(found.get(), plan(X))
    assert plan.copied_arguments == (("x",) if "strided" in form or form == "misaligned" else ())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bounds", [False, True])
def test_what_is_written_is_in_the_argument(form: str, bounds: bool) -> None:
    plan = af.compile(scaled, X.copy(), X, backend="simulated", check_bounds=bounds)
    x, y = FORMS[form](plan, X), on(plan, X)
    found = plan(x, y)
    np.testing.assert_array_equal(elements(x), X * 2 + X)
    np.testing.assert_allclose(found.get(), X.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_functions_are_traced_and_jitted_for_all_of_them(form: str) -> None:
    plan = af.compile(softmax, X, backend="simulated")
    jitted = af.jit(softmax, backend="simulated")
    given = FORMS[form](plan, X)
    for found in (jitted(given), jitted(x=given), af.compile(softmax, given, backend="simulated")(given)):
        np.testing.assert_array_equal(found.get(), plan(X))


@pytest.mark.parametrize("form", FORMS)
def test_methods_read_those_of_their_objects(form: str) -> None:
    class Layer:
        def __init__(self, weights: Any) -> None:
            self.weights = weights

        @af.jit(backend="simulated")
        def __call__(self, x: Any) -> Any:
            return x * self.weights

    plan = af.compile(softmax, X, backend="simulated")
    layer = Layer(FORMS[form](plan, X))
    np.testing.assert_array_equal(layer(X).get(), X * X)
    layer.weights = FORMS[form](plan, X + 1)
    np.testing.assert_array_equal(layer(on(plan, X)).get(), X * (X + 1))


def test_host_arrays_that_are_copied_go_with_arrays_of_the_device() -> None:
    plan = af.compile(lambda x, y: x - y, X, X, backend="simulated")
    found = plan(on(plan, X), np.asfortranarray(X * 3))
    np.testing.assert_array_equal(found.get(), X - X * 3)
    assert plan.copied_arguments == ("y",)


def test_bfloat16_comes_as_two_bytes() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    plan = af.compile(lambda x: x + x, x, backend="simulated")
    found = plan(Foreign(on(plan, x)))
    np.testing.assert_array_equal(found.get(), x + x)


@pytest.mark.parametrize("form", FORMS)
def test_a_profile_takes_them_and_leaves_them_as_they_were(form: str) -> None:
    plan = af.compile(scaled, X.copy(), X, backend="simulated", policy="unfused")
    x = FORMS[form](plan, X)
    profile = plan.profile(x, on(plan, X))
    assert [name for name, _ in profile] == [kernel.name for kernel in plan.kernels]
    np.testing.assert_array_equal(elements(x), X)


def test_bounds_are_checked_on_the_device_before_anything_is_written() -> None:
    def put(x: Any, at: Any) -> Any:
        x[at] = 1
        return x[at] * 2

    at = np.array([1, 3, 8])
    plan = af.compile(put, X.copy(), at, backend="simulated", check_bounds=True)
    x = on(plan, X)
    with pytest.raises(OutOfBoundsError, match="index 9 is out of bounds"):
        plan(x, on(plan, np.array([1, 9, 2])))
    np.testing.assert_array_equal(x.get(), X)
    plan(x, on(plan, at))
    assert (x.get()[at] == 1).all()
    out = on(plan, np.zeros((3, 40), np.float32))
    with pytest.raises(OutOfBoundsError):
        plan(x, on(plan, np.array([1, 9, 2])), out=out)
    assert not out.get().any()
    assert plan(x, on(plan, at), out=out) is out
    assert (out.get() == 2).all()


# ---- arrays for results ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["host", "host strided", *FORMS])
@pytest.mark.parametrize("given", ["host", "device"])
def test_results_are_written_into_the_callers_arrays(form: str, given: str) -> None:
    plan = af.compile(softmax, X, backend="simulated")
    empty = np.zeros_like(X)
    if form.startswith("host"):
        out: Any = empty if form == "host" else np.repeat(empty, 2, axis=1)[:, ::2]
    else:
        out = FORMS[form](plan, empty)
    for factor in (1, 2, 3):
        x = X * np.float32(factor)
        assert plan(x if given == "host" else on(plan, x), out=out) is out
        np.testing.assert_array_equal(elements(out), plan(x))


def test_results_go_there_without_another_copy() -> None:
    plan = af.compile(softmax, X, backend="simulated")
    driver = driver_of(plan)
    x, out = on(plan, X), on(plan, np.zeros_like(X))
    before = driver.calls["copy"]
    plan(x, out=out)
    assert driver.calls["copy"] == before


def test_several_results_and_one_value_twice() -> None:
    plan = af.compile(lambda x: (x + 1, (x, x + 1)), X, backend="simulated")
    first, second, third = (on(plan, np.zeros_like(X)) for _ in range(3))
    plan(on(plan, X), out=(first, (second, third)))
    for array, right in ((first, X + 1), (second, X), (third, X + 1)):
        np.testing.assert_array_equal(array.get(), right)


def test_results_may_lie_where_an_argument_does() -> None:
    plan = af.compile(softmax, X, backend="simulated", policy="unfused")
    x = on(plan, X)
    plan(x, out=x)
    np.testing.assert_array_equal(x.get(), plan(X))


def test_results_and_what_is_written_have_places_of_their_own() -> None:
    plan = af.compile(scaled, X.copy(), X, backend="simulated")
    x, y, out = on(plan, X), on(plan, X), on(plan, np.zeros(40, np.float32))
    plan(x, y, out=out)
    np.testing.assert_array_equal(x.get(), X * 3)
    np.testing.assert_allclose(out.get(), X.sum(0), rtol=1e-4, atol=1e-4)
    with pytest.raises(ArgumentError, match="out overlaps x, which the function writes into"):
        plan(x, y, out=x[0])


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_arrays_for_results_that_do_not_fit_are_refused_by_name() -> None:
    plan = af.compile(lambda x: (x + 1, x + 2), X, backend="simulated")
    x = on(plan, X)
    wrong: list[tuple[Any, str]] = [
        (on(plan, X.astype(np.float64)), r"out\[1\]: needs f32\[9,40\], got float64\[9, 40\]"),
        (on(plan, X[:3]), r"out\[1\]: needs f32\[9,40\], got float32\[3, 40\]"),
        (Foreign(on(plan, X), read_only=True), r"out\[1\]: is read-only"),
        (SimulatedDriver(H200).array(X), r"out\[1\]: lies on another simulated device"),
    ]
    for out, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            plan(x, out=(on(plan, X), out))
    both = on(plan, X)
    with pytest.raises(ArgumentError, match=r"out\[0\] and out\[1\] overlap"):
        plan(x, out=(both, both))


@pytest.mark.parametrize("bounds", [False, True])
def test_arguments_that_do_not_fit_are_refused_by_name(bounds: bool) -> None:
    plan = af.compile(scaled, X.copy(), X, backend="simulated", check_bounds=bounds)
    x, y = on(plan, X), on(plan, X)
    wrong: list[tuple[Any, Any, str]] = [
        (x, on(plan, X.astype(np.float64)), "y: needs dtype float32, got float64"),
        (x, on(plan, X[:3]), r"y: needs shape \(9, 40\), got \(3, 40\)"),
        (x, SimulatedDriver(H200).array(X), "y: lies on another simulated device"),
        (x, x, "x and y overlap, and the function writes into the first"),
        (x, x[:, ::-1], "x and y overlap, and the function writes into the first"),
        (Foreign(x, read_only=True), y, "x: the function writes into it, but it is read-only"),
        (x.seen_as(x.shape, x.dtype, x.data.ptr, (0, 4)), y, "x: the function writes into it, but its elements over"),
    ]
    for first, second, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            plan(first, second)
        with pytest.raises(ArgumentError, match=message):
            plan(first, second, out=on(plan, np.zeros(40, np.float32)))
    np.testing.assert_array_equal(x.get(), X)


def test_the_host_writes_no_results_to_a_device() -> None:
    there = on(af.compile(softmax, X, backend="simulated"), X)
    with pytest.raises(ArgumentError, match="out: needs an array"):
        af.compile(softmax, X)(X, out=there)
