"""Column and whole reductions: packs of columns, loops in parts, all types and sizes, in two orders of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import replace
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.split import parts_of
from autofuse.lower.splitting import BY_SIZE
from autofuse.lower.tile import RowGroup, Space, TileProgram
from autofuse.measurement.checks import check, poisoned
from autofuse.measurement.errorbounds import bounds_of
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.codegen.program import shapes
from autofuse.targets.cuda.decisions import CUDA_DECISIONS, cuda_schedule
from autofuse.targets.cuda.passes.prepare import CudaPasses
from autofuse.targets.cuda.passes.splits import SplitByDevice
from autofuse.testing.fusions import kernel_inputs
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.counters import count
from tests.fixtures.kernelchecks import fused

Array = NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(name) for name in ("f8", "f4", "f2", "i8", "i4", "i2", "u1", "?")] + [BF16]
ORDERS = ("forward", "reverse")
SMALL = Limits(
    scratch_bytes=227 << 10, decisions=CUDA_DECISIONS, passes=CudaPasses("sm_90"), splitting=SplitByDevice(2)
)
"""Of a device of two multiprocessors: eight blocks of parts keep it busy."""


def standardised(x: Array) -> Any:
    mean = x.mean(0)
    return (x - mean) / np.sqrt(x.var(0) + 1), mean, x.max(0)


COLUMNS: dict[str, tuple[Callable[..., Any], tuple[int, ...], Schedule]] = {
    "packs": (lambda x: x.sum(0), (40, 64), Schedule()),
    "odd_columns": (lambda x: x.max(0), (37, 131), Schedule()),
    "few_columns": (lambda x: x.sum(0), (300, 5), Schedule()),
    "one_column": (lambda x: x.min(0), (300, 1), Schedule()),
    "two_axes": (lambda x: x.max((0, 1)), (6, 9, 70), Schedule()),
    "middle_axis": (lambda x: x.sum(1), (3, 50, 66), Schedule()),
    "parts": (lambda x: x.sum(0), (60, 64), cuda_schedule(split=5)),
    "ragged_parts": (lambda x: x.min(0), (61, 67), cuda_schedule(split=7)),
    "by_the_device": (lambda x: x.max(0), (1030, 72), Schedule()),
    "small_blocks": (lambda x: x.sum(0), (90, 48), cuda_schedule(threads=64)),
    "other_blocks": (lambda x: x.sum(0), (200, 300), cuda_schedule(threads=160)),
    "three_slices": (lambda x: x.max(0), (200, 3000), cuda_schedule(threads=192)),
    "narrow_packs": (lambda x: x.sum(0), (90, 48), cuda_schedule(pack_bytes=4)),
    "strided_columns": (lambda x: x[:, ::2].max(0), (50, 90), Schedule()),
    "shifted_columns": (lambda x: x[1:, 1:].min(0), (50, 78), Schedule()),
    "backwards": (lambda x: x[::-1, ::-1].max(0), (50, 40), Schedule()),
    "padded": (lambda x: np.pad(x, ((2, 1), (3, 5)), constant_values=1).sum(0), (50, 40), Schedule()),
    "several": (lambda x: (x.sum(0), x.max(0), x.min(0)), (45, 68), Schedule()),
    "one_row": (lambda x: x.sum(0), (1, 64), Schedule()),
    "no_rows": (lambda x: x.sum(0), (0, 64), Schedule()),
    "no_columns": (lambda x: x.max(0), (64, 0), Schedule()),
}
WHOLE: dict[str, tuple[Callable[..., Any], tuple[int, ...], Schedule]] = {
    "by_the_device": (lambda x: x.sum(), (33_024,), Schedule()),
    "odd_length": (lambda x: x.max(), (33_003,), Schedule()),
    "parts": (lambda x: x.min(), (1001,), cuda_schedule(split=6)),
    "one_part_each": (lambda x: x.sum(), (5,), cuda_schedule(split=50)),
    "cut_out": (lambda x: x[1:, 3:].max(), (140, 250), Schedule()),
    "cut_out_lines": (lambda x: x[1:, 4:].sum(), (60, 1000), Schedule()),
    "rows": (lambda x: x.sum(1), (3, 33_000), Schedule()),
    "twice": (lambda x: (x.max(), x.min()), (33_001,), Schedule()),
    "empty": (lambda x: x.sum(), (0,), Schedule()),
}
FLOATS: dict[str, tuple[Callable[..., Any], tuple[int, ...], Schedule]] = {
    "standardised": (standardised, (1031, 20), Schedule()),
    "standardised_in_parts": (standardised, (100, 37), cuda_schedule(split=9)),
    "normalised": (lambda x: (x - x.mean()) / x.std(), (33_003,), Schedule()),
    "logarithms": (lambda x: np.log(np.abs(x) + 1).sum(0), (70, 64), Schedule()),
    "of_two": (lambda x: ((x * 2).sum(0), (x * x).sum(0), np.exp(x.sum(0))), (70, 44), Schedule()),
    "softmax_down": (lambda x: np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0), (300, 12), cuda_schedule(split=4)),
}
LOGIC: dict[str, tuple[Callable[..., Any], tuple[int, ...], Schedule]] = {
    "any_down": (lambda x: (x > 0).any(0), (50, 70), Schedule()),
    "all_of_all": (lambda x: (x < 99).all(), (33_000,), Schedule()),
    "products": (lambda x: x.prod(0), (9, 70), Schedule()),
    "arg_down": (lambda x: x.argmax(0), (70, 45), Schedule()),
    "arg_of_all": (lambda x: x.argmin(), (33_003,), Schedule()),
    "arg_in_parts": (lambda x: (x.argmax(), x.max()), (4096,), cuda_schedule(split=8)),
}


def values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Few distinct values, so that there are equals; floats with NaN and infinities in some columns."""
    x = np.random.default_rng(len(shape)).integers(-2, 3, shape)
    made = (x > 0) if dtype == np.bool_ else np.abs(x).astype(dtype) if dtype.kind == "u" else x.astype(dtype)
    if dtype.kind in "fV" and made.size > 60:
        made.flat[[7, 41, 58]] = (np.nan, np.inf, -0.0)
    return made


def lowered(
    function: Callable[..., Any], shape: tuple[int, ...], dtype: str = "f4", processors: int = 132
) -> TileProgram:
    """For a device of so many multiprocessors."""
    limits = replace(SMALL, splitting=SplitByDevice(processors))
    program = lower(fused(function, np.zeros(shape, dtype)), Schedule(), "k", limits)
    assert isinstance(program, TileProgram)
    return program


class Made:
    """Kernels of one type, compiled together."""

    def __init__(self, cases: dict[str, Any], dtype: np.dtype[Any]) -> None:
        self.inputs: dict[str, Array] = {}
        self.programs: dict[str, TileProgram] = {}
        for name, (function, shape, schedule) in cases.items():
            x = values(shape, dtype)
            program = lower(fused(function, x), schedule, f"{name}_k", SMALL)
            assert isinstance(program, TileProgram)
            self.inputs[name], self.programs[name] = x, program
        self.kernels = {name: generate(program, "sm_90") for name, program in self.programs.items()}
        self.module = SimtModule(list(self.kernels.values()), races=True)

    def check(self, name: str, function: Callable[..., Any]) -> None:
        """In both orders of threads, with poison in outputs and races as errors; the same bits again."""
        x = self.inputs[name]
        kernel = fused(function, x)
        graph = kernel.graph
        given = kernel_inputs(kernel, [x])
        with np.errstate(all="ignore"):
            expected, bounds = interpret(graph, x), bounds_of(graph, [x])
        results = [self.run(self.kernels[name], given, order) for order in (*ORDERS, "forward")]
        for found in results[:2]:
            for value, actual, right, bound in zip(graph.outputs, found, expected, bounds, strict=True):
                check(f"{name}: %{value.name}", actual, right, bound)
        assert [a.tobytes() for a in results[0]] == [a.tobytes() for a in results[2]]

    def run(self, kernel: CudaKernel, given: list[Array], order: Any) -> list[Array]:
        inputs = [buffer.name for buffer in kernel.parameters if buffer.space is Space.INPUT]
        outputs = [buffer for buffer in kernel.parameters if buffer.space is Space.OUTPUT]
        made = {buffer.name: poisoned(buffer.type.shape, buffer.type.dtype) for buffer in outputs}
        self.module.run(kernel, {**dict(zip(inputs, given, strict=True)), **made}, order=order)
        return list(made.values())


def all_of(cases: dict[str, Any], dtype: np.dtype[Any]) -> None:
    made = Made(cases, dtype)
    for name, (function, _, _) in cases.items():
        made.check(name, function)


QUICK = [np.dtype("f4"), np.dtype("f2")]


def some(dtypes: list[np.dtype[Any]]) -> list[Any]:
    return [pytest.param(d, id=d.name, marks=() if d in QUICK else pytest.mark.slow) for d in dtypes]


@pytest.mark.parametrize("dtype", some(DTYPES))
def test_columns(dtype: np.dtype[Any]) -> None:

    all_of(COLUMNS, dtype)


@pytest.mark.parametrize("dtype", some(DTYPES))
def test_whole_arrays(dtype: np.dtype[Any]) -> None:
    all_of(WHOLE, dtype)


@pytest.mark.parametrize("dtype", some([np.dtype("f4"), np.dtype("f8"), np.dtype("f2")]))
def test_several_passes(dtype: np.dtype[Any]) -> None:
    all_of(FLOATS, dtype)


@pytest.mark.parametrize("dtype", some([np.dtype("f4"), np.dtype("i4"), BF16]))
def test_logic_products_and_positions(dtype: np.dtype[Any]) -> None:
    all_of(LOGIC, dtype)


@pytest.mark.parametrize(("rows", "columns", "expected"), [(4096, 4096, 16), (100_000, 64, 500), (1 << 24, 1, 528)])
def test_columns_are_cut_for_all_multiprocessors(rows: int, columns: int, expected: int) -> None:
    """Four blocks of 256 threads on each: 16 parts of 32 blocks side by side, or one block side by side."""
    program = lowered(lambda x: x.sum(0), (rows, columns))
    assert abs(parts_of(program.launches[0]) - expected) <= expected // 20


@pytest.mark.parametrize("shape", [(300, 4096), (4, 1 << 18), (64, 64), (4096, 1 << 17)])
def test_what_fills_the_device_or_is_short_is_not_cut(shape: tuple[int, ...]) -> None:
    assert len(lowered(lambda x: x.max(0), shape).launches) == 1


def test_rows_that_may_stay_on_chip_are_not_cut() -> None:
    assert len(lowered(lambda x: np.exp(x - x.max(1)[:, None]).sum(1), (16, 40_000)).launches) == 1
    assert len(lowered(lambda x: x.sum(1), (16, 40_000)).launches) == 2


def test_parts_are_alike_where_a_loop_can_be_cut_so() -> None:
    launch = lowered(lambda x: x.sum(), (1 << 24,)).launches[0]
    assert [phase.grid[0].extent for phase in launch] == [512]


def test_partial_results_are_combined_once() -> None:
    """By one launch for all blocks that need the mean; each of them reads one value."""
    program = lowered(lambda x: ((x - x.mean()) ** 2).sum(), (1 << 22,))
    totals = [buffer for buffer in program.buffers if buffer.name.startswith("total")]
    assert [buffer.type.shape for buffer in totals] == [(1, 1)]
    assert len(program.launches) == 4
    (group,) = program.launches[2][0].steps
    assert isinstance(group, RowGroup)
    assert group.stages[0].symbols == ()


@pytest.mark.parametrize("name", ["f4", "f2", "f8"])
def test_columns_go_by_16_bytes_and_nothing_is_asked_for_twice(name: str) -> None:
    program = lowered(lambda x: x.sum(0), (2048, 1024), name)
    for found in count(generate(program, "sm_90"), most_blocks=4):
        assert found.wide > 0.95
        assert found.repeated == 1.0
        assert found.conflicted == 1.0


def test_what_is_left_over_adds_no_more_blocks_than_a_part() -> None:
    """1,025 packs side by side are 33 blocks, of each of twelve parts together and of the rest."""
    program = lowered(lambda x: x.sum(0), (4099, 4097), processors=108)
    ((parts, _), (rest, _)) = shapes(program, "sm_80")[0]
    assert (parts, rest) == (385, 33)


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC: pip install 'autofuse[cuda]'")
@pytest.mark.parametrize("name", ["u1", "f2", "f4", "i8"])
def test_totals_of_all_columns_of_a_pack_are_in_registers(name: str) -> None:
    kernel = generate(lowered(lambda x: x.max(0), (4096, 4096), name), "sm_90")
    for used in nvrtc.compile_source(kernel.source, "sm_90", "k").resources.values():
        assert used.spill_bytes == used.stack_bytes == 0
        assert used.registers <= 128


def test_other_devices_are_cut_otherwise_and_the_cpu_as_before() -> None:
    few, many = (lowered(lambda x: x.sum(), (1 << 24,), processors=count) for count in (20, 132))
    assert parts_of(few.launches[0]) < 100 < parts_of(many.launches[0])
    kernel = fused(lambda x: x.sum(), np.ones(1 << 20, np.float32))
    program = lower(kernel, Schedule(), "k", replace(SMALL, splitting=BY_SIZE))
    assert isinstance(program, TileProgram)
    assert parts_of(program.launches[0]) == 64
