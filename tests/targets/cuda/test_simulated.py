"""Plans on the simulated device: all workloads, arrays of the device, and what a driver would not forgive."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.errors import ArgumentError, BackendError, NotEnoughMemoryError
from autofuse.ir.dtypes import F32
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import TensorType
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, Workload, arrays, discover
from autofuse.targets.base import find_target
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.simt.array import SimulatedArray
from autofuse.testing.simt.device import SimulatedDriver
from tests.fixtures import handbuilt


def softmax(x: Any) -> Any:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def scaled(x: Any, y: Any) -> Any:
    """Writes into `x`, and returns something else."""
    x[...] = x * 2 + y
    return y.sum()


X = np.random.default_rng(0).standard_normal((9, 40)).astype(np.float32)


@pytest.fixture
def driver() -> SimulatedDriver:
    return SimulatedDriver(H200)


def on(plan: af.Plan, array: NDArray[Any]) -> SimulatedArray:
    """A copy of an array on the device that runs a plan."""
    found: Any = plan.target
    return found.driver.array(array)


def assert_right(workload: Workload, **options: Any) -> None:
    """Raise WrongAnswerError unless a plan's answer on the simulated device is the interpreter's, within its bounds."""
    arguments = workload.inputs("small", 0)
    assert_answer(workload, af.compile(workload.function, *arguments, backend="simulated", deadline=None, **options))


def assert_answer(workload: Workload, plan: af.Plan) -> None:
    """The same of a plan that is there."""
    given = workload.inputs("small", 0)
    used = copy.deepcopy(given)
    results = plan(*used)
    leaves = arrays(given)
    expected, bounds = interpret(plan.graph, *leaves), bounds_of(plan.graph, leaves)
    found = [*arrays(results), *(arrays(used)[number] for number in plan.document.writebacks)]
    for value, actual, right, bound in zip(plan.graph.outputs, found, expected, bounds, strict=True):
        check(value.name, np.asarray(actual), right, bound)


FORMS = (
    *("adam", "attention", "bert_layer", "cartpole_step", "column_standardise", "conv_bn_relu", "cross_entropy"),
    *(
        "cumulative",
        "gelu_mlp",
        "graph_laplacian",
        "hdiff",
        "layer_norm_backward",
        "lstm_sequence",
        "nbody_acceleration",
    ),
    *("small_heads", "softmax", "top1_accuracy"),
)
"""Workloads that have every form of kernel between them."""


@pytest.mark.parametrize(
    "workload",
    [pytest.param(one, marks=() if one.name in FORMS else pytest.mark.slow) for one in discover()],
    ids=lambda workload: workload.name,
)
def test_a_workload_gives_the_interpreters_answer(workload: Workload) -> None:
    assert_right(workload)


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(one, marks=() if one.name == "durbin" else pytest.mark.slow)
        for one in discover(WORKLOADS_DIRECTORY / "loops")
    ],
    ids=lambda workload: workload.name,
)
def test_a_loop_of_pythons_gives_the_interpreters_answer(workload: Workload) -> None:
    assert_right(workload)


QUICK = ("black_scholes", "softmax", "gelu_mlp", "attention", "layer_norm_residual", "gaussian_mixture")
"""Workloads with much that can be approximated."""


@pytest.mark.parametrize(
    "workload",
    [pytest.param(one, marks=() if one.name in QUICK else pytest.mark.slow) for one in discover()],
    ids=lambda workload: workload.name,
)
def test_a_workload_is_within_its_bounds_under_fast_numerics(workload: Workload) -> None:
    assert_right(workload, numerics="fast")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::autofuse.errors.SlowerThanNumpyWarning")
@pytest.mark.parametrize("workload", discover(), ids=lambda workload: workload.name)
def test_a_workload_is_tuned_by_the_times_of_the_model(workload: Workload) -> None:
    plan = af.tune(workload.function, *workload.inputs("small", 0), backend="simulated", max_trials=1, progress=False)
    assert plan.certificate.measured
    assert_answer(workload, plan)


def test_results_lie_where_the_arguments_do():
    plan = af.compile(softmax, X, backend="simulated")
    there = plan(on(plan, X))
    assert isinstance(there, SimulatedArray)
    np.testing.assert_array_equal(there.get(), plan(X))


def test_arguments_may_lie_in_both_places():
    plan = af.compile(lambda x, y: x * y, X, X, backend="simulated")
    there = plan(on(plan, X), X)
    assert isinstance(there, SimulatedArray)
    np.testing.assert_array_equal(there.get(), X * X)


@pytest.mark.parametrize("first", ["device", "host"])
@pytest.mark.parametrize("second", ["device", "host"])
def test_what_is_written_is_in_the_argument(first: str, second: str) -> None:
    plan = af.compile(scaled, X.copy(), X, backend="simulated")
    x: Any = X.copy() if first == "host" else on(plan, X)
    y: Any = X if second == "host" else on(plan, X)
    plan(x, y)
    np.testing.assert_array_equal(x if first == "host" else x.get(), X * 2 + X)


class Foreign:
    """An array of another library, which lies on the device."""

    def __init__(self, array: SimulatedArray) -> None:
        self.own, self.shape, self.dtype = array, array.shape, array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.own.__cuda_array_interface__


def both_written(x: Any, y: Any) -> None:
    """The new value of each needs the old one of the other: one of them at least is copied back in the end."""
    x[...], y[...] = y * 2 + x, x.max(0) + y


@pytest.mark.parametrize("function", [scaled, both_written])
def test_what_is_written_is_in_arrays_of_other_libraries(function: Any) -> None:
    plan = af.compile(function, X.copy(), X.copy(), backend="simulated")
    x, y = X.copy(), X.copy()
    function(x, y)
    there = Foreign(on(plan, X)), Foreign(on(plan, X))
    plan(*there)
    np.testing.assert_allclose(there[0].own.get(), x, rtol=1e-5)
    np.testing.assert_allclose(there[1].own.get(), y, rtol=1e-5)


def test_arguments_that_are_written_and_overlap_are_refused():
    plan = af.compile(scaled, X.copy(), X, backend="simulated")
    x = X.copy()
    with pytest.raises(ArgumentError, match="overlap"):
        plan(x, x)
    np.testing.assert_array_equal(x, X)
    there = on(plan, X)
    with pytest.raises(ArgumentError, match="x and y overlap, and the function writes into the first"):
        plan(there, there)
    np.testing.assert_array_equal(there.get(), X)


def test_results_are_arrays_of_their_own():
    """An argument that is returned, and a value that is returned twice, are copied."""

    def both(x: Any) -> Any:
        y = x + 1
        return x, y, y

    plan = af.compile(both, X, backend="simulated")
    given = on(plan, X)
    found = plan(given)
    assert len({array.data.ptr for array in (given, *found)}) == 4
    for array, right in zip(found, both(X), strict=True):
        np.testing.assert_array_equal(array.get(), right)


@pytest.mark.filterwarnings("ignore::autofuse.errors.LeftToNumpyWarning")
def test_what_no_kernel_computes_runs_on_the_host_and_the_plan_says_so():
    plan = af.compile(lambda x: np.linalg.qr(x * 2)[1], X, backend="simulated")
    np.testing.assert_array_equal(plan(X), np.linalg.qr(X * 2)[1])
    assert any("runs on the host" in note for note in plan.document.notes)
    assert "runs on the host" in plan.explain()


@pytest.mark.filterwarnings("ignore::autofuse.errors.SlowerThanNumpyWarning")
def test_a_plan_is_tuned_saved_loaded_and_run(tmp_path):
    plan = af.tune(softmax, X, backend="simulated", max_trials=3, progress=False)
    loaded = af.load(plan.save(tmp_path / "p.json"))
    np.testing.assert_array_equal(loaded(X), plan(X))
    assert [kernel.measured_us for kernel in loaded.kernels] == [kernel.measured_us for kernel in plan.kernels]


@pytest.mark.filterwarnings("ignore::autofuse.errors.SlowerThanNumpyWarning")
@pytest.mark.parametrize("make", ["compile", "jit", "tune"])
def test_functions_are_traced_for_arrays_of_the_device(make: str) -> None:
    target: Any = find_target("simulated")
    there = target.driver.array(X)
    if make == "jit":
        found = af.jit(softmax, backend="simulated")(there)
    elif make == "tune":
        found = af.tune(softmax, there, backend="simulated", max_trials=1, progress=False)(there)
    else:
        found = af.compile(softmax, there, backend="simulated")(there)
    np.testing.assert_allclose(found.get(), softmax(X), rtol=1e-5)


def test_the_cpu_reads_no_array_of_a_device():
    target: Any = find_target("simulated")
    with pytest.raises(ArgumentError, match=r"pass np\.asarray"):
        af.compile(softmax, X)(target.driver.array(X))
    with pytest.raises(ArgumentError, match="pass NumPy arrays"):
        af.tune(softmax, target.driver.array(X), budget=2, progress=False)


def test_a_profile_has_the_time_of_each_kernel():
    plan = af.compile(softmax, X, backend="simulated", policy="unfused")
    profile = plan.profile(X)
    assert [name for name, _ in profile] == [kernel.name for kernel in plan.kernels]
    assert all(us > 0 for _, us in profile)


def test_jit_takes_the_backend():
    np.testing.assert_array_equal(
        af.jit(softmax, backend="simulated")(X), af.compile(softmax, X, backend="simulated")(X)
    )


# ---- the device itself -----------------------------------------------------------------------------------------------


def added(driver: SimulatedDriver, size: int = 8) -> Any:
    """`z = x + y` for `size` elements, loaded."""
    program = handbuilt.binary("add", "add", size)
    return driver.load([CudaCode(program, generate(program, "sm_90"))])[0]


def test_memory_that_was_given_back_is_an_illegal_access(driver: SimulatedDriver) -> None:
    function = added(driver)
    x, y = (driver.array(np.ones(8, np.float32)) for _ in range(2))
    gone = driver.pointer(driver.empty(TensorType((8,), F32)))
    function([driver.pointer(x), driver.pointer(y), gone])
    with pytest.raises(BackendError, match="illegal memory access"):
        driver.wait()


def test_a_buffer_that_is_too_short_is_an_illegal_access(driver: SimulatedDriver) -> None:
    function = added(driver)
    arrays = [driver.array(np.ones(size, np.float32)) for size in (8, 8, 4)]
    function([driver.pointer(array) for array in arrays])
    with pytest.raises(BackendError, match="illegal memory access"):
        driver.wait()


def test_a_buffer_that_is_not_aligned_is_refused(driver: SimulatedDriver) -> None:
    function = added(driver)
    arrays = [driver.array(np.ones(size, np.float32)) for size in (8, 8, 9)]
    pointers = [driver.pointer(array) for array in arrays]
    with pytest.raises(BackendError, match="not aligned"):
        function([*pointers[:2], pointers[2] + 4])


def test_a_kernel_that_writes_into_its_input_is_caught(driver: SimulatedDriver) -> None:
    program = handbuilt.binary("add", "add", 8)
    kernel = generate(program, "sm_90")
    wrong = kernel.source.replace("const float* __restrict__ x", "float* __restrict__ x").replace(
        "store_pack(z", "store_pack(x"
    )
    assert wrong != kernel.source
    from dataclasses import replace

    (function,) = driver.load([CudaCode(program, replace(kernel, source=wrong))])
    arrays = [driver.array(np.ones(8, np.float32)) for _ in range(3)]
    function([driver.pointer(array) for array in arrays])
    with pytest.raises(BackendError, match="writes to its input"):
        driver.wait()


def test_memory_ends(driver: SimulatedDriver) -> None:
    with pytest.raises(NotEnoughMemoryError, match="H200"):
        driver.empty(TensorType((1 << 40,), F32))


def test_the_clock_is_the_models():
    target: Any = find_target("simulated")
    function = added(target.driver)
    arrays = [target.driver.array(np.ones(8, np.float32)) for _ in range(3)]
    pointers = [target.driver.pointer(array) for array in arrays]
    times = []
    for _ in range(2):
        start = target.clock()
        function(pointers)
        times.append(target.clock() - start)
    assert times[0] == times[1] > 0
