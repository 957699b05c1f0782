"""Scatters as CUDA C: NumPy's answer to the bit in every way they are done, whatever indices repeat or lie outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.ir import dtypes
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.ir.ops import numerics
from autofuse.ir.types import of_array
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, Space
from autofuse.measurement.checks import poisoned
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import scatterplan
from autofuse.targets.cuda.codegen.scatterplan import scatter_plan
from autofuse.targets.cuda.codegen.scatters import generate_scatter
from autofuse.targets.cuda.gpus import H200
from autofuse.testing.fusions import LIMITS, whole_kernel
from autofuse.testing.simt.device import SimulatedDriver
from autofuse.testing.simt.runner import run_simt
from autofuse.testing.simt.target import SimulatedTarget
from autofuse.testing.sketches import Sketch

RNG = np.random.default_rng(7)
Array = NDArray[Any]
Order = Literal["forward", "reverse"]
ALONG_ROWS: Mapping[str, Any] = {
    "inserted_window_dims": (0,),
    "input_batching_dims": (),
    "scatter_indices_batching_dims": (),
    "scatter_dims_to_operand_dims": (0,),
}


def scatter(x: Array, indices: Array, updates: Array, combiner: str, **changes: Any) -> Graph:
    """A graph that is one scatter of arrays like these; by default to whole rows."""
    attrs = {**ALONG_ROWS, "update_window_dims": tuple(range(indices.ndim, updates.ndim)), **changes}
    attrs = {"index_vector_dim": indices.ndim, **attrs}
    sketch = Sketch("scatter")
    given = zip(("x", "indices", "updates"), (x, indices, updates), strict=True)
    values = [sketch.input(of_array(array), name) for name, array in given]
    return sketch.finish([sketch.op("scatter", *values, combiner=combiner, **attrs)])


def program_of(graph: Graph) -> OpaqueProgram:
    program = lower(whole_kernel(graph), Schedule(), "k", LIMITS)
    assert isinstance(program, OpaqueProgram)
    return program


def way_of(graph: Graph) -> str:
    plan = scatter_plan(program_of(graph))
    assert plan is not None
    return plan.way


def shim(graph: Graph, arrays: list[Array], order: Order) -> Array:
    """What the CUDA C gives, its output and workspaces poisoned."""
    program = program_of(graph)
    kernel = generate_scatter(program, "sm_90")
    reads = [buffer.name for buffer in program.buffers if buffer.space is Space.INPUT]
    out = next(buffer for buffer in program.buffers if buffer.space is Space.OUTPUT)
    held: dict[str, Array] = dict(zip(reads, arrays, strict=True))
    held[out.name] = poisoned(out.type.shape, out.type.dtype)
    run_simt(kernel, held, order=order)
    return held[out.name]


def assert_same_bits(found: Array, right: Array) -> None:
    assert found.dtype == right.dtype
    np.testing.assert_array_equal(numerics.unsigned_view(found), numerics.unsigned_view(right))


def numbers(shape: Any, dtype: dtypes.DType) -> Array:
    """Small ones, whose sums depend on the order they are added in where they are floats."""
    if dtype.kind == "bool":
        return RNG.integers(0, 2, shape).astype(np.bool_)
    return (RNG.standard_normal(shape) * (1.0 if dtype.is_float else 50.0)).astype(dtype.numpy)


def arrays_for(dtype: dtypes.DType, keys: int = 60, places: int = 9, row: int = 3) -> list[Array]:
    """Indices repeat, and some lie outside."""
    return [numbers((places, row), dtype), RNG.integers(-2, places + 2, keys), numbers((keys, row), dtype)]


COMBINERS = ("set", "add", "multiply", "minimum", "maximum")
WAYS = {
    ("set", dtypes.F32): ("ranked", "winners"),
    ("add", dtypes.F32): ("ranked", "sorted"),
    ("multiply", dtypes.I64): ("ranked", "sorted"),
    ("add", dtypes.I64): ("atomic", "atomic"),
    ("maximum", dtypes.U32): ("atomic", "atomic"),
    ("minimum", dtypes.F64): ("ranked", "sorted"),
}


@pytest.mark.parametrize(("combiner", "dtype"), WAYS)
def test_every_way_gives_numpys_bits(combiner: str, dtype: dtypes.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = arrays_for(dtype)
    graph = scatter(*arrays, combiner)
    (right,) = interpret(graph, *arrays)
    for most, way in zip((scatterplan.MOST_RANKED, 4), WAYS[combiner, dtype], strict=True):
        monkeypatch.setattr(scatterplan, "MOST_RANKED", most)
        assert way_of(graph) == way
        for order in ("forward", "reverse"):
            assert_same_bits(shim(graph, arrays, order), right)


@pytest.mark.slow
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("most", [4, 1000])
def test_every_dtype_in_every_way(
    combiner: str, dtype: dtypes.DType, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype.kind == "bool" and combiner in ("add", "multiply"):
        pytest.skip("no graph has it")
    monkeypatch.setattr(scatterplan, "MOST_RANKED", most)
    arrays = arrays_for(dtype)
    graph = scatter(*arrays, combiner)
    for order in ("forward", "reverse"):
        assert_same_bits(shim(graph, arrays, order), interpret(graph, *arrays)[0])


@pytest.mark.parametrize("dtype", [dtypes.F16, dtypes.BF16, dtypes.I8], ids=str)
def test_narrow_types_round_and_wrap_at_each_step(dtype: dtypes.DType) -> None:
    arrays = arrays_for(dtype)
    graph = scatter(*arrays, "add")
    assert_same_bits(shim(graph, arrays, "reverse"), interpret(graph, *arrays)[0])


def test_many_keys_are_sorted_over_several_tiles_and_digits() -> None:
    """More places than a digit has values, more keys than a tile holds."""
    arrays = [numbers(700, dtypes.F32), RNG.integers(0, 701, 9000), numbers(9000, dtypes.F32)]
    graph = scatter(*arrays, "add")
    plan = scatter_plan(program_of(graph))
    assert plan is not None
    assert (plan.way, plan.tiles, plan.passes) == ("sorted", 5, 3)
    for order in ("forward", "reverse"):
        assert_same_bits(shim(graph, arrays, order), interpret(graph, *arrays)[0])


LONG: list[tuple[str, dtypes.DType]] = [
    (combiner, dtype)
    for combiner in ("add", "multiply", "maximum")
    for dtype in (dtypes.F32, dtypes.F64, dtypes.BF16, dtypes.I8, dtypes.I64)
    if (combiner, dtype) not in (("add", dtypes.I64), ("maximum", dtypes.I64))
] + [("maximum", dtypes.BOOL)]


@pytest.mark.parametrize("most", [4, 1000])
@pytest.mark.parametrize(
    ("combiner", "dtype"),
    [pytest.param(*way, marks=() if way[1] in (dtypes.F32, dtypes.I8) else pytest.mark.slow) for way in LONG],
)
def test_many_updates_of_few_places_are_combined_in_order_by_warps(
    combiner: str, dtype: dtypes.DType, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One place gets most, and one gets none; runs end within a tile, and behind several."""
    monkeypatch.setattr(scatterplan, "MOST_RANKED", most)
    indices = np.where(RNG.integers(0, 3, 700) > 0, 2, RNG.integers(-1, 6, 700))
    indices[indices == 4] = 5
    arrays = [numbers((5, 3), dtype), indices, numbers((700, 3), dtype)]
    graph = scatter(*arrays, combiner)
    plan = scatter_plan(program_of(graph))
    assert plan is not None
    assert (plan.has_long_runs, plan.way) == (True, "sorted" if most == 4 else "ranked")
    for order in ("forward", "reverse"):
        assert_same_bits(shim(graph, arrays, order), interpret(graph, *arrays)[0])


@pytest.mark.parametrize("keys", [64, 95, 96, 127, 128, 129, 257])
def test_every_update_of_a_run_counts_once(keys: int) -> None:
    arrays = [numbers(2, dtypes.F32), np.ones(keys, np.int64), numbers(keys, dtypes.F32)]
    graph = scatter(*arrays, "add")
    assert_same_bits(shim(graph, arrays, "reverse"), interpret(graph, *arrays)[0])


@pytest.mark.parametrize("dtype", [dtypes.I32, dtypes.U32])
def test_whole_numbers_to_few_places_are_added_up_by_blocks(dtype: dtypes.DType) -> None:
    """Sums wrap."""
    arrays = [
        numbers((7, 2), dtype),
        RNG.integers(-2, 9, 20_000),
        numbers((20_000, 2), dtype) * dtype.numpy.type(2**26),
    ]
    graph = scatter(*arrays, "add")
    program = program_of(graph)
    plan = scatter_plan(program)
    assert plan is not None
    assert plan.is_private
    assert generate_scatter(program, "sm_90").launches[-1].grid[0] > 1
    for order in ("forward", "reverse"):
        assert_same_bits(shim(graph, arrays, order), interpret(graph, *arrays)[0])


@pytest.mark.parametrize("dtype", [dtypes.I64, dtypes.U64, dtypes.I32])
@pytest.mark.parametrize("number", [1, -3])
def test_a_histogram_counts_in_shared_memory(dtype: dtypes.DType, number: int) -> None:
    x, indices = numbers((11,), dtype), RNG.integers(-2, 13, 9000)
    sketch = Sketch("histogram")
    operand, places = sketch.input(of_array(x), "x"), sketch.input(of_array(indices), "indices")
    one = sketch.constant(np.array(number).astype(dtype.numpy))
    updates = sketch.emit("broadcast_in_dim", [one], shape=(9000,), broadcast_dimensions=())
    attrs = {**ALONG_ROWS, "update_window_dims": (), "index_vector_dim": 1}
    graph = sketch.finish([sketch.op("scatter", operand, places, updates, combiner="add", **attrs)])
    plan = scatter_plan(program_of(graph))
    assert plan is not None
    assert plan.is_private
    for order in ("forward", "reverse"):
        assert_same_bits(shim(graph, [x, indices], order), interpret(graph, x, indices)[0])


def test_wide_sums_that_differ_are_added_where_they_belong() -> None:
    arrays = arrays_for(dtypes.I64, keys=900)
    plan = scatter_plan(program_of(scatter(*arrays, "add")))
    assert plan is not None
    assert not plan.is_private


def test_nan_infinities_and_zeros_of_both_signs() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    x, updates = RNG.choice(special, 20), RNG.choice(special, 90)
    indices = RNG.integers(0, 20, 90)
    for combiner in ("add", "maximum", "minimum"):
        graph = scatter(x, indices, updates, combiner)
        np.testing.assert_array_equal(
            shim(graph, [x, indices, updates], "forward"), interpret(graph, x, indices, updates)[0]
        )


WINDOWS: dict[str, tuple[tuple[int, ...], Array, tuple[int, ...], dict[str, Any]]] = {
    "windows that hang over the edge": (
        (6, 7),
        RNG.integers(-3, 7, (20, 2)),
        (20, 2, 3),
        {
            "update_window_dims": (1, 2),
            "inserted_window_dims": (),
            "scatter_dims_to_operand_dims": (1, 0),
            "index_vector_dim": 1,
        },
    ),
    "windows before the index": (
        (4, 5, 3),
        RNG.integers(-1, 6, 15),
        (2, 15, 3),
        {"update_window_dims": (0, 2), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,)},
    ),
    "a batch": (
        (3, 8),
        RNG.integers(-1, 9, (3, 10, 1)),
        (3, 10),
        {
            "update_window_dims": (),
            "inserted_window_dims": (1,),
            "input_batching_dims": (0,),
            "scatter_indices_batching_dims": (0,),
            "scatter_dims_to_operand_dims": (1,),
            "index_vector_dim": 2,
        },
    ),
    "one element": (
        (),
        np.zeros((5, 0), np.int32),
        (5,),
        {
            "update_window_dims": (),
            "inserted_window_dims": (),
            "scatter_dims_to_operand_dims": (),
            "index_vector_dim": 1,
        },
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("combiner", ["set", "add"])
@pytest.mark.parametrize("most", [2, pytest.param(1000, marks=pytest.mark.slow)])
def test_windows_batches_and_index_vectors(
    name: str, combiner: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatterplan, "MOST_RANKED", most)
    shape, indices, updates, changes = WINDOWS[name]
    arrays = [numbers(shape, dtypes.F32), indices, numbers(updates, dtypes.F32)]
    graph = scatter(*arrays, combiner, **changes)
    assert_same_bits(shim(graph, arrays, "forward"), interpret(graph, *arrays)[0])


@pytest.mark.parametrize("shapes", [((0, 3), 4, (4, 3)), ((5, 0), 4, (4, 0)), ((5, 3), 0, (0, 3))])
def test_empty_arrays(shapes: Any) -> None:
    shape, count, updates = shapes
    arrays = [numbers(shape, dtypes.F32), np.zeros(count, np.int64), numbers(updates, dtypes.F32)]
    graph = scatter(*arrays, "add")
    assert_same_bits(shim(graph, arrays, "forward"), arrays[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64])
def test_indices_of_every_width(dtype: Any) -> None:
    indices = RNG.integers(0, 12, 30).astype(dtype)
    if dtype is np.uint64:
        indices[::7] = np.uint64(2**64 - 3)
    arrays = [numbers(9, dtypes.F32), indices, numbers(30, dtypes.F32)]
    graph = scatter(*arrays, "add")
    assert_same_bits(shim(graph, arrays, "forward"), interpret(graph, *arrays)[0])


def test_what_is_too_large_for_32_bits_is_left_to_the_host() -> None:
    sketch = Sketch("large")
    x, indices, updates = sketch.arg("u8[2147483648]"), sketch.arg("i64[5]"), sketch.arg("u8[5]")
    attrs = {**ALONG_ROWS, "update_window_dims": (), "index_vector_dim": 1}
    graph = sketch.finish([sketch.op("scatter", x, indices, updates, combiner="add", **attrs)])
    with pytest.raises(LegalityError, match="32 bits"):
        scatter_plan(program_of(graph))


# ---- in plans --------------------------------------------------------------------------------------------------------

N = 400
FUNCTIONS: dict[str, Any] = {
    "bincount": lambda n, v: np.bincount(np.clip(n, 0, 49), minlength=50),
    "weighted bincount": lambda n, v: np.bincount(np.clip(n, 0, 49), v, minlength=50),
    "indexed write": lambda n, v: written(np.zeros(50, np.float32), n, v),
    "add.at of a temporary": lambda n, v: added(v[:50] * 2, n, v),
    "rows": lambda n, v: added(np.ones((50, 4), np.float32), n, v[:, None] * np.arange(4, dtype=np.float32)),
}


def written(x: Any, n: Any, v: Any) -> Any:
    x[n] = v
    return x * 2


def added(x: Any, n: Any, v: Any) -> Any:
    np.add.at(x, n, v)
    return x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scatters_of_programs_are_kernels_of_generated_code(name: str) -> None:
    n, v = RNG.integers(0, 50, N), RNG.standard_normal(N).astype(np.float32)
    plan = af.compile(FUNCTIONS[name], n, v, backend="simulated")
    driver = SimulatedDriver(H200)
    executable = SimulatedTarget(H200, driver, "simulated").executable(plan.document)
    assert all(start.code is not None for start in executable.starts)
    given = [driver.array(n), driver.array(v)]
    executable.run(given)  # constants are copied
    copies = driver.calls["copy"]
    for _ in range(2):
        (found,) = executable.run(given)
        np.testing.assert_array_equal(found.get(), interpret(plan.graph, n, v)[0])
    assert driver.calls["copy"] == copies
    assert driver.calls["graph launch"] == 2  # calls are replayed: nothing of the host stands between
    assert "launch" in plan.explain()


def test_a_scatter_into_an_argument_writes_where_it_lies() -> None:
    def update(x: Any, n: Any, v: Any) -> None:
        x[n] += v

    x, n = RNG.standard_normal((40, 3)).astype(np.float32), RNG.permutation(40)[:30]
    v = RNG.standard_normal((30, 3)).astype(np.float32)
    plan = af.compile(update, x.copy(), n, v, backend="simulated")
    driver: Any = plan.target.driver
    there = driver.array(x)
    plan(there, driver.array(n), driver.array(v))
    right = x.copy()
    update(right, n, v)
    np.testing.assert_array_equal(there.get(), right)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::autofuse.errors.SlowerThanNumpyWarning")
def test_a_scatter_is_tuned() -> None:
    n, v = RNG.integers(0, 50, N), RNG.standard_normal(N).astype(np.float32)
    plan = af.tune(
        lambda n, v: np.bincount(np.clip(n, 0, 49), v, 50) * 2, n, v, backend="simulated", max_trials=8, progress=False
    )
    scatter_kernel = next(kernel for kernel in plan.kernels if kernel.kind == "library")
    assert scatter_kernel.measured_us is not None


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
@pytest.mark.parametrize("dtype", [dtypes.F16, dtypes.BF16, dtypes.I32, dtypes.I64, dtypes.BOOL], ids=str)
@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90"])
def test_nvrtc_takes_all_ways(dtype: dtypes.DType, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not nvrtc.can_compile("#include <cuda_fp16.h>\n", arch):
        pytest.skip("needs the CUDA headers")
    for most, keys in ((4, 60), (1000, 60), (1000, 600)):
        monkeypatch.setattr(scatterplan, "MOST_RANKED", most)
        for combiner in ("set", "maximum", *(("add",) if dtype.kind != "bool" else ())):
            kernel = generate_scatter(program_of(scatter(*arrays_for(dtype, keys), combiner)), arch)
            compiled = nvrtc.compile_source(kernel.source, arch, "k.cu")
            assert {launch.function for launch in kernel.launches} <= compiled.resources.keys()
