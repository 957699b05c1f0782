"""Generated CUDA C, run on the SIMT shim, against the reference executor: same program, same inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autofuse.errors import LegalityError
from autofuse.ir import dtypes, index
from autofuse.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, DType
from autofuse.ir.index import Symbol
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import Buffer, Dot, RowGroup, Space, Step, TileProgram
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.testing.simt import SimtModule
from tests.fixtures import handbuilt

EXACT = 0.0
SUM = 4e-6  # f32, up to 5000 terms of size 1 in another order: sqrt(5000) * 2**-24 of the largest partial sum
MATH = 2e-6  # f32 exp and division: a few ulp between the host's libm and NumPy
HALF = 2e-3  # f16 results: one unit in the last place, 2**-10
BFLOAT = 1.6e-2  # bf16: two units in the last place, 2**-7


@dataclass(frozen=True)
class Case:
    program: TileProgram
    tolerance: float = EXACT
    """Relative to the largest magnitude in the output; 0 = bit for bit."""


CASES = [
    Case(handbuilt.binary("add_0", "add", 0)),
    Case(handbuilt.binary("add_1", "add", 1)),
    Case(handbuilt.binary("add_odd", "add", 1003)),
    Case(handbuilt.binary("add_vectors", "add", 1 << 17)),
    Case(handbuilt.binary("add_chunks", "add", 70_001, schedule=cuda_schedule(packs=3, threads=96))),
    Case(handbuilt.binary("add_bytes", "add", 1 << 19, U8, cuda_schedule())),
    Case(handbuilt.binary("add_halves", "add", 1 << 18, F16, cuda_schedule(pack_bytes=8))),
    Case(handbuilt.binary("multiply_f64", "multiply", 999, F64)),
    Case(handbuilt.binary("subtract_bf16", "subtract", 1000, BF16)),
    Case(handbuilt.binary("less_i32", "lt", 1000, I32)),
    Case(handbuilt.binary("and_bool", "and", 100, BOOL)),
    Case(handbuilt.row_reduce("sum_short", "add", 37, 20), SUM),
    Case(handbuilt.row_reduce("sum_tiny", "add", 300, 3), SUM),
    Case(handbuilt.row_reduce("sum_of_nothing", "add", 4, 0)),
    Case(handbuilt.row_reduce("sum_warp", "add", 5, 100), SUM),
    Case(handbuilt.row_reduce("sum_block", "add", 3, 4096), SUM),
    Case(handbuilt.row_reduce("sum_odd", "add", 2, 4999), SUM),
    Case(handbuilt.row_reduce("sum_narrow_block", "add", 2, 2048, schedule=cuda_schedule(threads=96)), SUM),
    Case(handbuilt.row_reduce("sum_f16", "add", 4, 1000, F16, F32), SUM),
    Case(handbuilt.row_reduce("sum_f64", "add", 4, 1000, F64), 1e-14),
    Case(handbuilt.row_reduce("sum_i8", "add", 3, 700, I8)),
    Case(handbuilt.row_reduce("max_i64", "maximum", 3, 700, I64)),
    Case(handbuilt.row_reduce("min_f32", "minimum", 3, 700)),
    Case(handbuilt.row_reduce("all_bool", "and", 40, 64, BOOL)),
    Case(handbuilt.row_reduce("or_u32", "or", 4, 600, U32)),
    Case(handbuilt.column_sum("column_sum", 100, 65), SUM),
    Case(handbuilt.column_sum("column_sum_few", 300, 5), SUM),
    Case(handbuilt.column_sum("column_sum_short", 3, 64), SUM),
    Case(handbuilt.column_arg("argmax_columns", "argmax", 90, 40)),
    Case(handbuilt.column_sum("column_sum_wide", 3, 1 << 16), SUM),
    Case(handbuilt.softmax("softmax_short", 7, 33), MATH),
    Case(handbuilt.softmax("softmax_block", 3, 4096), MATH),
    Case(handbuilt.softmax("softmax_shared", 2, 12_000), MATH),
    Case(handbuilt.softmax("softmax_f16", 5, 200, F16), HALF),
    Case(handbuilt.softmax("softmax_bf16", 5, 200, BF16), BFLOAT),
    Case(handbuilt.layer_norm("layer_norm_short", 9, 48), SUM),
    Case(handbuilt.layer_norm("layer_norm_block", 3, 1000), SUM),
    Case(handbuilt.mirrored("mirrored_short", 9, 70)),
    Case(handbuilt.mirrored("mirrored_block", 3, 1500)),
    Case(handbuilt.mirrored("mirrored_columns", 70, 45, down=True)),
    Case(handbuilt.mirrored("mirrored_few_columns", 50, 3, down=True)),
    Case(handbuilt.padded("padded", 13, 29)),
    Case(handbuilt.gathered("gathered", 11, 24, 40)),
    Case(handbuilt.row_arg("argmax_rows", "argmax", 5, 900)),
    Case(handbuilt.row_arg("argmin_rows", "argmin", 70, 10)),
    Case(handbuilt.row_arg("argmax_i32", "argmax", 5, 300, I32)),
    Case(handbuilt.running("cumsum_columns", "add", 50, 40, I32, along_rows=False)),
    Case(handbuilt.running("cumsum_rows", "add", 5, 60, F64, along_rows=True), 1e-14),
    Case(handbuilt.running("cummax_back", "maximum", 50, 40, F32, along_rows=False, reverse=True)),
    Case(handbuilt.split_sum("split_sum", 32_768, 16), SUM),
    Case(handbuilt.matmul("matmul", 70, 33, 130), SUM),
    Case(handbuilt.matmul("matmul_transposed", 130, 40, 10, transposed=True), SUM),
    Case(handbuilt.matmul("matmul_f16", 65, 64, 64, F16), HALF),
    Case(handbuilt.matmul("matmul_i32", 20, 30, 40, I32)),
    Case(handbuilt.dense("dense", 150, 24, 192), SUM),
    Case(handbuilt.dense("dense_uneven", 70, 20, 100), SUM),
    Case(handbuilt.dense("dense_sixty", 10, 20, 120), SUM),
    Case(handbuilt.mlp_softmax("mlp_softmax", 150, 24, 200), SUM),
    Case(handbuilt.mlp_softmax("mlp_softmax_wide", 40, 24, 2000), SUM),
]


def inputs_of(program: TileProgram) -> dict[str, NDArray[Any]]:
    """Seeded random inputs."""
    rng = np.random.default_rng(len(program.name))
    return {b.name: _random(rng, b) for b in program.parameters() if b.space is Space.INPUT}


def _random(rng: np.random.Generator, buffer: Buffer) -> NDArray[Any]:
    dtype = buffer.type.dtype
    if dtype.is_float:
        return rng.standard_normal(buffer.type.shape).astype(dtype.numpy)
    if dtype.kind == "bool":
        return rng.random(buffer.type.shape) < 0.8
    return rng.integers(0 if dtype.kind == "uint" else -100, 100, buffer.type.shape).astype(dtype.numpy)


def poisoned(program: TileProgram) -> dict[str, NDArray[Any]]:
    """Outputs full of bytes that are NaN in every float."""
    outputs = (b.type for b in program.parameters() if b.space is Space.OUTPUT)
    names = (b.name for b in program.parameters() if b.space is Space.OUTPUT)
    arrays = (np.frombuffer(b"\xff" * t.nbytes, t.dtype.numpy).reshape(t.shape).copy() for t in outputs)
    return dict(zip(names, arrays, strict=True))


def assert_close(actual: NDArray[Any], expected: NDArray[Any], tolerance: float) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if tolerance == EXACT:
        np.testing.assert_array_equal(actual, expected)
        return
    scale = np.abs(expected.astype(np.float64)).max()
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance * scale)


def test_places_beyond_32_bits_are_computed_in_64() -> None:
    rows, columns = 3, 40
    y = handbuilt.buffer("y", Space.OUTPUT, I64, rows)
    i, k, body = Symbol("i0", rows), Symbol("k0", columns), handbuilt.Body()
    far = index.of(i) * (1 << 40) + index.of(k) * (1 << 33) + 7
    last = body.reduce("maximum", body.position(I64, far))
    stages = [body.stage(k, vectorised=k)]
    body.store(y, index.of(i), last)
    program = handbuilt.one_phase("far", (y,), (i,), (*stages, body.stage()))
    outputs, kernel = poisoned(program), generate(program, "sm_90")
    SimtModule([kernel]).run(kernel, outputs)
    np.testing.assert_array_equal(outputs["y"], np.arange(3) * (1 << 40) + 39 * (1 << 33) + 7)


def test_arrays_beyond_32_bits_take_64_bit_offsets() -> None:
    source = generate(handbuilt.binary("add", "add", 3_000_000_000), "sm_90").source
    assert "const long long i0 = (block * 256" in source
    assert "const long long block = blockIdx.x;" in source


@pytest.fixture(scope="module")
def kernels() -> dict[str, CudaKernel]:
    return {case.program.name: generate(case.program, "sm_90") for case in CASES}


@pytest.fixture(scope="module")
def module(kernels: dict[str, CudaKernel]) -> SimtModule:
    return SimtModule(list(kernels.values()))


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.program.name)
def test_shim_agrees_with_the_reference(
    case: Case, order: Any, kernels: dict[str, CudaKernel], module: SimtModule
) -> None:
    program = case.program
    inputs, outputs = inputs_of(program), poisoned(program)
    module.run(kernels[program.name], {**inputs, **outputs}, order=order)
    for name, expected in evaluate_program(program, inputs).items():
        assert_close(outputs[name], expected, case.tolerance)


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed (pip install 'autofuse[cuda]')")
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90", marks=pytest.mark.slow)])
def test_nvrtc_takes_every_kernel_without_spills(arch: str) -> None:
    for case in CASES if arch == "sm_90" else CASES[::4]:
        kernel = generate(case.program, arch)
        compiled = nvrtc.compile_source(kernel.source, arch, f"{kernel.name}.cu")
        for launch in kernel.launches:
            resources = compiled.resources[launch.function]
            assert resources.spill_bytes == 0, (kernel.name, resources)
            assert resources.registers * launch.block[0] <= 65536, (kernel.name, resources)


def test_generation_is_deterministic() -> None:
    program = handbuilt.layer_norm("layer_norm", 9, 1000)
    assert generate(program, "sm_90") == generate(program, "sm_90")


def test_what_does_not_fit_says_which_capacity() -> None:
    with pytest.raises(LegalityError, match=r"a row keeps 400\d\d\d bytes .* in each of 1 blocks; .* sm_90 has 232448"):
        generate(handbuilt.mirrored("too_long", 4, 100_000), "sm_90")
    with pytest.raises(LegalityError, match=r"one row of a row block needs \d+ bytes .* sm_80 has 166912"):
        generate(handbuilt.mlp_softmax("too_wide", 64, 8, 30_000), "sm_80")


def test_what_fits_one_architecture_need_not_fit_the_other() -> None:
    program = handbuilt.softmax("long_rows", 4, 50_000)
    assert generate(program, "sm_90").launches[0].cluster == 2
    with pytest.raises(LegalityError, match="sm_80"):
        generate(program, "sm_80")


def test_an_elementwise_epilogue_is_cut_into_columns() -> None:
    cut = generate(handbuilt.dense("dense", 4096, 512, 4096), "sm_90").launches[0]
    assert cut.grid == (32 * 64, 1, 1)
    assert cut.shared_bytes < 48 * 1024
    whole = generate(handbuilt.dense("dense", 4096, 512, 1002), "sm_90").launches[0]  # no divisor suits vectors
    assert whole.shared_bytes > 100 * 1024


def test_wide_loads_where_rows_are_aligned() -> None:
    def uses_packs(columns: int, dtype: DType = dtypes.F32) -> bool:
        return "load_pack<" in generate(handbuilt.row_reduce("sum", "add", 8, columns, dtype, F32), "sm_90").source

    assert uses_packs(4096)
    assert not uses_packs(4095)  # rows start at any element
    assert "load_pack<2>" in generate(handbuilt.row_reduce("sum", "add", 8, 4094), "sm_90").source


def test_names_that_mean_something_in_c_are_changed() -> None:
    plain = handbuilt.binary("exp", "maximum", 64)
    program = _with_buffers(plain, {"x": "float", "y": "maximum", "z": "v0"})
    kernel = generate(program, "sm_90")
    assert kernel.launches[0].function == "exp_kernel"
    inputs, outputs = inputs_of(program), poisoned(program)
    SimtModule([kernel]).run(kernel, {**inputs, **outputs})
    np.testing.assert_array_equal(outputs["v0"], np.maximum(inputs["float"], inputs["maximum"]))


def test_a_launch_with_several_phases_gives_each_its_blocks() -> None:
    first = handbuilt.softmax("a", 5, 100)
    second = _with_buffers(handbuilt.column_sum("b", 30, 70), {"x": "x2", "y": "y2"})
    third = _with_buffers(handbuilt.matmul("c", 30, 20, 70), {"a": "a3", "b": "b3", "y": "y3"})
    parts = (first, second, third)
    buffers = tuple(buffer for part in parts for buffer in part.buffers)
    both = TileProgram("three", buffers, (tuple(part.launches[0][0] for part in parts),), Schedule())
    inputs, outputs = inputs_of(both), poisoned(both)
    kernel = generate(both, "sm_90")
    SimtModule([kernel]).run(kernel, {**inputs, **outputs})
    for name, expected in evaluate_program(both, inputs).items():
        assert_close(outputs[name], expected, SUM)


def _with_buffers(program: TileProgram, names: dict[str, str]) -> TileProgram:
    """The same program over buffers of other names (one launch, one phase)."""
    (phase,) = program.launches[0]
    steps = tuple(_renamed(step, names) for step in phase.steps)
    buffers = tuple(replace(b, name=names.get(b.name, b.name)) for b in program.buffers)
    return replace(program, buffers=buffers, launches=((replace(phase, steps=steps),),))


def _renamed(step: Step, names: dict[str, str]) -> Step:
    if isinstance(step, Dot):
        sides = {side: getattr(step, side) for side in ("out", "lhs", "rhs")}
        return replace(step, **{side: replace(m, buffer=names[m.buffer]) for side, m in sides.items()})
    stages = []
    for stage in step.stages:
        body = [replace(s, buffer=names[s.buffer]) if isinstance(s, Load | Store) else s for s in stage.body]
        stages.append(replace(stage, body=tuple(body)))
    return RowGroup(tuple(stages))
