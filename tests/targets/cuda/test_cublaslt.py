"""Products by cuBLASLt: its descriptions, through a stand-in for its bindings that computes by NumPy."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.errors import AutofuseError, BackendError, LibraryRefusedWarning
from autofuse.ir.dtypes import F32 as F32_TYPE
from autofuse.ir.graph import Graph
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower
from autofuse.lower.plainproducts import PlainProduct, Side, plain_product
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.passes.pipeline import clean
from autofuse.plan.file import load, save
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.cuda import cublaslt
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cublaslt import CublasLt
from autofuse.targets.cuda.decisions import LIBRARY, cuda_schedule
from autofuse.targets.cuda.gpus import A100, H200, L4
from autofuse.targets.cuda.productcalls import LibraryCode, product_function, with_library_workspace
from autofuse.testing.simt.cublaslt import PROPOSED, FakeCublasLt
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.target import SimulatedTarget

F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16


def random(*shape: int, dtype: Any = F32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def layer(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w + b, 0)


CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "plain": (lambda a, b: a @ b, (random(70, 64), random(64, 100)), "strict"),
    "tf32": (lambda a, b: a @ b, (random(70, 64), random(64, 100)), "fast"),
    "right": (lambda a, b: a @ b.T, (random(33, 40), random(65, 40)), "strict"),
    "left": (lambda a, b: a.T @ b, (random(40, 33), random(40, 65)), "strict"),
    "both": (lambda a, b: a.T @ b.T, (random(40, 33), random(65, 40)), "strict"),
    "batched": (lambda a, b: a @ b.swapaxes(-1, -2), (random(2, 3, 20, 16), random(2, 3, 30, 16)), "strict"),
    "bias": (lambda x, w, b: x @ w + b, (random(70, 64), random(64, 128), random(128)), "strict"),
    "layer": (layer, (random(70, 64), random(64, 128), random(128)), "fast"),
    "clipped": (lambda x, w: np.maximum(x @ w, 0), (random(70, 64), random(64, 128)), "fast"),
    "slices": (lambda a, b: a[2:, 8:72] @ b[:, 3:], (random(42, 100), random(64, 131)), "strict"),
    "bf16": (lambda a, b: a @ b, (random(40, 64, dtype=BF16), random(64, 72, dtype=BF16)), "strict"),
    "half": (lambda a, b: a @ b.T, (random(40, 64, dtype=F16), random(72, 64, dtype=F16)), "strict"),
    "rounded": (
        lambda a, b: (a @ b).astype(BF16),
        (random(40, 64, dtype=BF16), random(64, 72, dtype=BF16)),
        "strict",
    ),
    "double": (lambda a, b: a @ b, (random(20, 30, dtype=np.float64), random(30, 40, dtype=np.float64)), "strict"),
    "one row": (lambda a, b: a @ b, (random(1, 64), random(64, 100)), "strict"),
    "one of each": (lambda a, b: a @ b, (random(9, 1), random(1, 7)), "strict"),
}


def device(**options: Any) -> SimulatedTarget:
    return SimulatedTarget(H200, SimulatedDriver(H200, cublaslt=True, **options), "simulated")


def graph_of(name: str) -> tuple[Graph, tuple[Any, ...]]:
    fn, args, numerics = CASES[name]
    return clean(af.trace(fn, *args), numerics), args


def kernel_of(graph: Graph) -> Any:
    return candidate_of(graph, [node.name for node in graph.nodes], [value.name for value in graph.outputs])


def run(target: SimulatedTarget, name: str, schedule: Schedule) -> list[Any]:
    """What a kernel alone gives."""
    graph, args = graph_of(name)
    (runner,) = target.runners(kernel_of(graph), [schedule])
    if isinstance(runner, AutofuseError):
        raise runner
    outs = [np.full(value.type.shape, 99, value.type.dtype.numpy) for value in graph.outputs]
    given = dict(zip(graph.inputs, args, strict=True))
    assert runner.run_into([np.ascontiguousarray(given[value]) for value in runner.kernel.inputs], outs)
    return outs


@pytest.mark.parametrize("name", CASES)
def test_products_are_right(name: str) -> None:
    target, (graph, args) = device(), graph_of(name)
    (found,), rights, bounds = run(target, name, cuda_schedule(library=1)), af.interpret(graph, *args), None
    bounds = bounds_of(graph, args)
    check(name, found, rights[0], bounds[0])
    assert target.driver.cublaslt is not None
    assert target.driver.cublaslt.algorithms == [1]


def test_what_is_described_is_taken_back() -> None:
    target = device()
    run(target, "layer", cuda_schedule(library=2))
    fake = target.driver.cublaslt
    assert fake is not None
    assert fake.algorithms == [2]
    assert len(fake.made) == 1  # the handle


def test_the_last_algorithm_stands_for_those_that_are_not_proposed() -> None:
    target = device()
    run(target, "plain", cuda_schedule(library=PROPOSED + 1))
    assert target.driver.cublaslt is not None
    assert target.driver.cublaslt.algorithms == [PROPOSED]


def test_a_product_without_an_algorithm_is_refused() -> None:
    with pytest.raises(BackendError, match="no algorithm for a product of 70 x 64 x 100 f32"):
        run(refusing(), "plain", cuda_schedule(library=1))


def refusing() -> SimulatedTarget:
    """A device whose cuBLASLt proposes nothing."""
    target = device()
    assert target.driver.cublaslt is not None
    target.driver.cublaslt.proposed = 0
    return target


def test_without_bindings_a_kernel_alone_is_refused() -> None:
    target = SimulatedTarget(H200, SimulatedDriver(H200), "simulated")
    with pytest.raises(
        BackendError, match=r"no bindings of it here; install it with: pip install 'autofuse\[cublaslt\]'"
    ):
        run(target, "plain", cuda_schedule(library=1))


def test_what_fails_in_the_bindings_is_one_error() -> None:
    fake = FakeCublasLt(lambda address, size: np.zeros(size, np.uint8))
    side = Side("x", F32_TYPE, 0, 8, 1, 0)
    product = PlainProduct(side, replace(side, dtype=af.ir.dtypes.F64), side, 8, 8, 8, 1, False, None, False)
    with pytest.raises(BackendError, match=r"matmul_algo_get_heuristic failed: .*NOT_SUPPORTED"):
        CublasLt(fake).prepared(product, 1, 0)
    assert len(fake.made) == 1


PLANNED = lambda x, w, b, v: np.tanh(layer(x, w, b) @ v)  # noqa: E731  # two products, one of them plain


def planned(target: SimulatedTarget, algorithm: int) -> tuple[Any, tuple[Any, ...]]:
    """A document of a plan with a kernel by cuBLASLt, and its arguments."""
    args = random(70, 64), random(64, 128), random(128), random(128, 40)
    plan = af.compile(PLANNED, *args, backend="simulated", numerics="fast", policy="unfused")
    kernels = list(plan.document.kernels)
    lowered = target.executable(plan.document).kernels
    for kernel in lowered:
        if isinstance(kernel.program, TileProgram) and plain_product(kernel.program) is not None:
            number = kernels.index(kernel.planned)
            kernels[number] = replace(kernel.planned, schedule=cuda_schedule(library=algorithm))
    return replace(plan.document, kernels=tuple(kernels), identity=target.identity), args


@pytest.mark.parametrize("graphs", [True, False])
def test_a_plan_calls_it_among_other_kernels_and_in_replays(graphs: bool) -> None:
    target = device(graphs=graphs)
    document, args = planned(target, 1)
    executable = target.executable(document)
    (right,), (bound,) = af.interpret(document.graph, *args), bounds_of(document.graph, args)
    for _ in range(3):
        (found,) = executable.run(args)
        check("answer", found, right, bound)
    assert target.driver.cublaslt is not None
    assert target.driver.cublaslt.algorithms == [1] * 6
    assert (target.driver.calls["graph launch"] > 0) == graphs


def test_a_plan_says_who_computes_what_and_survives_a_file(tmp_path: Path) -> None:
    target = device()
    document, _ = planned(target, 2)
    again = load(save(document, tmp_path / "plan.json"))
    assert [kernel.schedule for kernel in again.kernels] == [kernel.schedule for kernel in document.kernels]
    remarks = target.remarks(target.executable(again).kernels)
    assert sum("one call of cuBLASLt, by its algorithm 2" in lines for lines in remarks.values()) == 2
    assert target.identity.cublas == "13.1.0"


@pytest.mark.parametrize("reason", ["no algorithm for a product", "no bindings of it here"])
def test_a_plan_runs_generated_code_where_there_is_no_library_or_it_refuses(reason: str) -> None:
    document, args = planned(device(), 1)
    target = refusing() if "algorithm" in reason else SimulatedTarget(H200, SimulatedDriver(H200), "simulated")
    with pytest.warns(LibraryRefusedWarning, match=rf"{reason}.*; generated code computes it"):
        (found,) = target.executable(document).run(args)
    (right,), (bound,) = af.interpret(document.graph, *args), bounds_of(document.graph, args)
    check("answer", found, right, bound)


def test_only_plain_products_leave_it_open() -> None:
    target = device()
    graph, _ = graph_of("plain")
    program = lower(kernel_of(graph), Schedule(), "k", target.limits)
    assert target.limits.decisions.choices(program)[LIBRARY] == (0, 1, 2, 3, 4)
    other = clean(af.trace(lambda a, b: np.exp(a @ b), random(70, 64), random(64, 100)))
    program = lower(kernel_of(other), Schedule(), "k", target.limits)
    assert LIBRARY not in target.limits.decisions.choices(program)
    assert "library" in target.limits.decisions.idle(program)


def test_nothing_is_tried_where_there_is_no_library_and_schedules_may_still_say_so() -> None:
    decisions = SimulatedTarget(H200, SimulatedDriver(H200), "simulated").limits.decisions
    program = lower(kernel_of(graph_of("plain")[0]), Schedule(), "k", device().limits)
    assert LIBRARY not in decisions.choices(program)
    assert decisions.refusal(cuda_schedule(library=2), program) is None


def test_it_is_measured_like_any_other_schedule() -> None:
    target, (graph, _) = refusing(), graph_of("plain")
    runners = target.runners(kernel_of(graph), [Schedule(), cuda_schedule(library=1), cuda_schedule(tile="64x64")])
    assert [isinstance(runner, AutofuseError) for runner in runners] == [False, True, False]


@pytest.mark.parametrize("gpu", [H200, A100, L4], ids=lambda gpu: gpu.name)
def test_a_large_product_costs_its_flops_and_a_small_one_its_start(gpu: Any) -> None:
    def us(n: int, algorithm: int, numerics: Any) -> float:
        matrix = np.zeros((n, n), F32)
        graph = clean(af.trace(lambda a, b: a @ b, matrix, matrix), numerics)
        limits = SimulatedTarget(gpu, SimulatedDriver(gpu), "simulated").limits
        program = lower(kernel_of(graph), cuda_schedule(library=algorithm), "k", limits)
        return float(GpuModel(gpu).price([KernelFacts(program)]).us[0])

    assert us(8192, 1, "strict") == pytest.approx(2e6 * 8192**3 / (0.8 * gpu.f32_flops), rel=0.1)
    assert us(8192, 1, "fast") < us(8192, 1, "strict")
    assert us(8192, 1, "strict") < us(8192, 0, "strict")
    assert us(64, 1, "strict") > 2


def test_compile_measures_nothing_and_so_never_asks_for_it() -> None:
    matrix = random(256, 256)
    plan = af.compile(lambda a, b: a @ b, matrix, matrix, backend="simulated")
    assert all(kernel.schedule[LIBRARY] == 0 for kernel in plan.document.kernels)


def test_a_function_in_a_stream_passes_it_on() -> None:
    seen: list[int] = []

    class Watched(FakeCublasLt):
        def matmul(self, *told: int) -> None:
            seen.append(told[-1])

    library = CublasLt(Watched(lambda address, size: np.zeros(size, np.uint8)))
    target, (graph, _) = device(), graph_of("plain")
    program = lower(kernel_of(graph), cuda_schedule(library=1), "k", target.limits)
    assert isinstance(program, TileProgram)
    program = with_library_workspace(program, "sm_90")
    product = plain_product(program)
    assert product is not None
    function = product_function(library, LibraryCode(product, 1), program.parameters(), lambda: 5)
    pointers = [256 * (n + 1) for n in range(len(program.parameters()))]
    function(pointers)
    function.start(pointers, 6)
    assert seen == [5, 6]


def test_bindings_that_find_no_library_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise RuntimeError("libcublasLt.so.13 was not found")

    for found in (ImportError("no module"), SimpleNamespace(get_version=fails)):

        def imported(name: str, found: Any = found) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(cublaslt, "import_module", imported)
        assert cublaslt.bindings.__wrapped__() is None


def test_a_library_that_cannot_be_started_is_none() -> None:
    class Failing(FakeCublasLt):
        def create(self) -> int:
            raise RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED")

    assert cublaslt.opened(None) is None
    assert cublaslt.opened(Failing(lambda address, size: np.zeros(size, np.uint8))) is None
    assert cublaslt.opened(FakeCublasLt(lambda address, size: np.zeros(size, np.uint8))) is not None


def test_nothing_warns_where_all_is_well() -> None:
    target = device()
    document, args = planned(target, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        target.executable(document).run(args)


def test_its_calls_are_not_joined_with_other_launches() -> None:
    target, args = device(), (random(20, 16), random(16, 24), random(16, 40))
    plan = af.compile(lambda x, v, w: (x @ v, x @ w), *args, backend="simulated", policy="unfused")
    beside = [replace(launch, group_place=number) for number, launch in enumerate(plan.document.order)]
    for algorithm, launches in ((0, 1), (1, 2)):
        kernels = tuple(replace(kernel, schedule=cuda_schedule(library=algorithm)) for kernel in plan.document.kernels)
        document = replace(plan.document, kernels=kernels, order=tuple(beside), identity=target.identity)
        executable = target.executable(document)
        assert len(executable.starts) == launches
        for found, right in zip(executable.run(args), af.interpret(document.graph, *args), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("failure", [ImportError, AttributeError, RuntimeError])
def test_bindings_that_cannot_be_imported_are_none(monkeypatch: pytest.MonkeyPatch, failure: type[Exception]) -> None:
    def broken(_name: str) -> None:
        raise failure

    monkeypatch.setattr(cublaslt, "import_module", broken)
    cublaslt.bindings.cache_clear()
    try:
        assert cublaslt.bindings() is None
    finally:
        cublaslt.bindings.cache_clear()
