"""Calls that no kernel computes, on the device: which, with NumPy's answers, in order, and what is left to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.ndimage
import scipy.special

import autofuse as af
from autofuse.errors import BackendError, CallError
from autofuse.ir import dtypes
from autofuse.ir.interpreter import interpret
from autofuse.ir.ops.library_checks import is_listed
from autofuse.ir.ops.library_signatures import parameters
from autofuse.ir.optable import all_ops
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.cuda.library import forms
from autofuse.targets.cuda.library.cupyhas import CUPY, REASONS, parameters_there
from autofuse.targets.cuda.library.forms import host_reason
from autofuse.targets.cuda.librarysteps import HOST_NOTE, LIBRARY_NOTE
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

pytestmark = [
    pytest.mark.filterwarnings("ignore::autofuse.errors.LeftToNumpyWarning"),
    pytest.mark.filterwarnings("ignore::autofuse.errors.SlowerThanNumpyWarning"),
]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((12, 40)).astype(np.float32)
A = (RNG.standard_normal((3, 8, 8)) + 4 * np.eye(8)).astype(np.float64)
SPECIAL = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0, -1.0, np.nan, 3.0, 1.0])


def planned(function: Any, *given: Any) -> Any:
    return af.compile(function, *given, backend="simulated", policy="unfused")


def reasons(plan: Any) -> list[str | None]:
    """Why the host computes each kernel that is no generated code; None for those of the device."""
    return [host_reason(k.program) for k in plan.lowered if isinstance(k.program, OpaqueProgram)]


def stepped(indices: Any) -> Any:
    sums = np.zeros(9, np.int32)
    np.add.at(sums, indices, indices * 0.7)
    return sums


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_sorts_of_every_dtype_are_stable_with_nan_last(dtype: dtypes.DType, axis: int) -> None:
    x = RNG.integers(0, 3, (7, 10)).astype(dtype.numpy)
    if dtype.is_float:
        x[2] = SPECIAL.astype(dtype.numpy)
        x[:, 4] = RNG.permutation(SPECIAL)[:7].astype(dtype.numpy)

    def both(x: Any) -> Any:
        return np.sort(x, axis), np.argsort(x, axis, kind="stable")

    plan = planned(both, x)
    assert reasons(plan) == [None, None]
    values, order = plan(x)
    right = interpret(plan.graph, x)
    np.testing.assert_array_equal(order, right[1])
    np.testing.assert_array_equal(values.astype(np.float64), right[0].astype(np.float64))


def test_an_order_that_is_left_open_is_an_order() -> None:
    x = RNG.integers(0, 3, 300)
    plan = planned(np.argsort, x)
    np.testing.assert_array_equal(plan(x), np.argsort(x, kind="stable"))


def test_the_largest_of_a_row_and_where_they_stand() -> None:
    def top(x: Any) -> Any:
        where = np.argsort(-x, axis=1, kind="stable")[:, :5]
        return np.take_along_axis(x, where, 1), where, np.partition(x, -5, 1)[:, -5:]

    plan = planned(top, X)
    assert set(reasons(plan)) == {None}
    values, where, last = plan(X)
    np.testing.assert_array_equal(values, -np.sort(-X, 1)[:, :5])
    np.testing.assert_array_equal(where, np.argsort(-X, 1, kind="stable")[:, :5])
    np.testing.assert_array_equal(np.sort(last, 1), np.sort(X, 1)[:, -5:])


CALLS: dict[str, tuple[Any, ...]] = {
    "solve": (lambda a: np.linalg.solve(a, a[:, :, :2]), A),
    "solve one": (lambda a: np.linalg.solve(a[0], a[1, 0]), A),
    "inv": (np.linalg.inv, A),
    "cholesky": (lambda a: np.linalg.cholesky(a @ a.transpose(0, 2, 1)), A),
    "det": (np.linalg.det, A),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1], A),
    "eigvalsh": (lambda a: np.linalg.eigvalsh(a, "u"), A),
    "svd": (lambda a: np.linalg.svd(a, compute_uv=False), A),
    "svdvals": (np.linalg.svdvals, A),
    "solve_triangular": (lambda a: scipy.linalg.solve_triangular(a[0], a[1], lower=True), A),
    "searchsorted": (lambda x: np.searchsorted(np.sort(x.ravel()), x[::2] * 2, "right"), X),
    "isin": (lambda n: np.isin(n, n[:, :1] * 3, invert=True), RNG.integers(0, 50, (40, 6))),
    "gcd": (lambda n: np.gcd(n, n[::-1]), RNG.integers(0, 50, (40, 6))),
    "gamma": (lambda x: scipy.special.gamma(x * x), X),
    "betaln": (lambda x: scipy.special.betaln(x * x, x[::-1] * x), X),
    "gaussian": (lambda x: scipy.ndimage.gaussian_filter(x, 1.5, mode="wrap"), X),
    "largest around": (lambda x: scipy.ndimage.maximum_filter(x, size=3), X),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_the_device_gives_the_interpreters_answer(name: str) -> None:
    function, given = CALLS[name]
    plan = planned(function, given)
    assert set(reasons(plan)) == {None}, reasons(plan)
    assert any(LIBRARY_NOTE in note for note in plan.document.notes)
    there = plan.target.driver.array(given)
    before = plan.target.driver.calls["copy"]
    found = plan(there)
    assert plan.target.driver.calls["copy"] == before  # nothing goes over the bus
    np.testing.assert_array_equal(found.get(), interpret(plan.graph, given)[0])


HOST: dict[str, tuple[Any, Any, str]] = {
    "signs": (lambda a: np.linalg.svd(a)[1], A, "up to their signs"),
    "vectors": (lambda a: np.linalg.eigh(a)[0], A, "up to their signs"),
    "two dtypes": (lambda x: np.searchsorted(np.sort(x.ravel()), x.astype(np.float64)), X, "of one dtype"),
    "a batch with one side": (lambda a: np.linalg.solve(a, a[0]), A, "as many matrices"),
    "another default": (np.linalg.pinv, A, "does not have it as"),
    "a parameter": (lambda a: np.linalg.cholesky(a @ a.transpose(0, 2, 1), upper=True), A, "without upper"),
    "another algorithm": (lambda x: np.convolve(x.ravel(), x.ravel()), X, "other rounding"),
    "steps": (stepped, RNG.integers(0, 9, 40), "one after another"),
}


@pytest.mark.parametrize("name", HOST)
def test_what_the_host_computes_says_why(name: str) -> None:
    function, given, why = HOST[name]
    plan = planned(function, given)
    assert any(why in (reason or "") for reason in reasons(plan)), reasons(plan)
    assert any(HOST_NOTE in note and why in note for note in plan.document.notes)
    assert why in plan.explain()
    np.testing.assert_array_equal(plan(given), interpret(plan.graph, given)[0])


def test_a_singular_matrix_is_the_error_that_numpy_makes_of_it() -> None:
    plan = planned(lambda a: np.linalg.inv(a) + 1, A)
    with pytest.raises(np.linalg.LinAlgError, match=r"numpy\.linalg\.inv"):
        plan(np.zeros_like(A))
    triangular = planned(lambda a: scipy.linalg.solve_triangular(a[0], a[1]), A)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        triangular(np.zeros_like(A))
    with pytest.raises(CallError, match="infs or NaNs"):
        triangular(np.full_like(A, np.nan))
    np.testing.assert_array_equal(plan(A), np.linalg.inv(A) + 1)


def test_other_results_than_declared_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(np.sort, X)
    monkeypatch.setattr(np, "sort", lambda x, **_: x[:1])
    with pytest.raises(CallError, match="must give"):
        plan.executable.run([X])


@pytest.mark.parametrize("seed", range(4))
def test_calls_stand_between_replayed_kernels_in_the_callers_stream(seed: int) -> None:
    """Kernels before and behind a call, in any order that streams allow, replayed, for other arrays."""

    def function(x: Any) -> Any:
        rows = np.sort(np.cumsum(np.exp(x), 1) - x, axis=1)
        return np.cumsum(np.cumsum(rows, 0), 1) + np.linalg.inv(rows[:, :12] + 50 * np.eye(12, dtype=np.float32))[0, 0]

    driver = SimulatedDriver(H200, seed)
    document = planned(function, X).document
    plan = SimulatedTarget(H200, driver, "simulated").executable(document)
    stream = driver.stream()
    for number in range(4):
        given = (X * (number + 1)).astype(np.float32)
        with stream:
            there = driver.array(given)
            (found,) = plan.run([there])
            stream.synchronize()
        np.testing.assert_allclose(found.get(), interpret(document.graph, given)[0], rtol=1e-5)
    assert driver.calls["library call"] == 8
    assert driver.calls["instantiate"] >= 2


@pytest.mark.parametrize("failing", ["launch", "kernel"])
def test_a_call_that_fails_leaves_the_device_usable(failing: Any) -> None:
    driver = SimulatedDriver(H200)
    document = planned(np.sort, X).document
    plan = SimulatedTarget(H200, driver, "simulated").executable(document)
    driver.fail(failing)
    with pytest.raises(BackendError, match="on demand"):
        plan.run([X])
    np.testing.assert_array_equal(plan.run([X])[0], np.sort(X))


def test_a_call_is_tuned_profiled_and_loaded(tmp_path: Any) -> None:
    def function(x: Any) -> Any:
        return np.sort(x * 2, axis=1).sum(0)

    plan = af.tune(function, X, backend="simulated", max_trials=3, progress=False)
    loaded = af.load(plan.save(tmp_path / "p.json"))
    np.testing.assert_array_equal(loaded(X), plan(X))
    sort = next(kernel for kernel in loaded.kernels if kernel.kind == "library")
    assert sort.measured_us is not None
    assert [us > 0 for _, us in loaded.profile(X)]


def test_every_view_and_leaf_has_a_form() -> None:
    ops = list(all_ops())
    assert {op.name for op in ops if op.role.is_view} == set(forms._VIEWS)
    assert {op.name for op in ops if op.role.is_leaf} == set(forms._LEAVES)


@pytest.mark.parametrize("axis", [0, 2])
def test_calls_read_and_give_views(axis: int) -> None:
    x = RNG.standard_normal((6, 5, 4)).astype(np.float32)

    def function(x: Any) -> Any:
        seen = np.broadcast_to(x.transpose(2, 0, 1)[::-1, ::2][:, :, None], (4, 3, 2, 5))
        return np.sort(seen.reshape(4, 6, 5), axis)[1:, ::-1]

    plan = planned(function, x)
    np.testing.assert_array_equal(plan(x), function(x))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    plan = planned(lambda x: (np.sort(x, -1), np.argsort(x, 0, kind="stable")), x)
    for found, right in zip(plan(x), (np.sort(x, -1), np.argsort(x, 0)), strict=True):
        np.testing.assert_array_equal(found, right)


def test_the_tables_name_listed_functions_and_parameters_that_they_have() -> None:
    for module, lines in CUPY.items():
        for line in lines.splitlines():
            if not line.split():
                continue
            function = line.split()[0]
            assert is_listed(module, function), function
            there = parameters_there(module, function)
            known = parameters(module, function)
            if known is not None and there is not None:
                assert there[0] <= {key for key, kind in known.items() if kind != "-"}, function
    assert all(parameters_there(*label.rsplit(".", 1)) is None for label in REASONS)
