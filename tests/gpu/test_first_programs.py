"""The hand-built programs on a real GPU, against the reference executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.ir.dtypes import BF16, F16, F32, I32, I64
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.launch import LoadedKernel, cupy_with_gpu, current_arch, gpu_problem
from tests.fixtures import handbuilt

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_problem() is not None, reason=f"needs a GPU: {gpu_problem()}"),
]

EXACT = 0.0
SUM = 1e-5  # f32 sums of up to 20,000 terms in another order
MATH = 4e-6  # CUDA's exp and NumPy's differ by up to 2 ulp each
HALF = 2e-3  # one unit in the last place of f16
BFLOAT = 1.6e-2  # two of bf16

CASES: list[tuple[TileProgram, float]] = [
    (handbuilt.binary("add", "add", (1 << 20) + 3), EXACT),
    (handbuilt.binary("add_vectors", "add", 1 << 20), EXACT),
    (handbuilt.binary("multiply_f16", "multiply", 100_000, F16), EXACT),
    (handbuilt.row_reduce("row_sum", "add", 500, 4096), SUM),
    (handbuilt.row_reduce("row_sum_short", "add", 5000, 20), SUM),
    (handbuilt.row_reduce("row_max_i64", "maximum", 50, 777, I64), EXACT),
    (handbuilt.softmax("softmax", 300, 4096), MATH),
    (handbuilt.softmax("softmax_short", 1000, 33), MATH),
    (handbuilt.softmax("softmax_shared", 20, 12_000), MATH),
    (handbuilt.softmax("softmax_large_shared", 4, 50_000), MATH),
    (handbuilt.softmax("softmax_f16", 50, 1000, F16), HALF),
    (handbuilt.softmax("softmax_bf16", 50, 1000, BF16), BFLOAT),
    (handbuilt.layer_norm("layer_norm", 100, 1024), SUM),
    (handbuilt.mirrored("mirrored", 100, 1500), EXACT),
    (handbuilt.column_sum("column_sum", 1000, 777), SUM),
    (handbuilt.padded("padded", 100, 300), EXACT),
    (handbuilt.gathered("gathered", 100, 64, 333), EXACT),
    (handbuilt.row_arg("argmax", "argmax", 200, 900), EXACT),
    (handbuilt.running("cumsum", "add", 100, 300, I32, along_rows=False), EXACT),
    (handbuilt.split_sum("split_sum", 1 << 20, 64), SUM),
    (handbuilt.matmul("matmul", 300, 200, 500), SUM),
    (handbuilt.mlp_softmax("mlp_softmax", 150, 24, 200), SUM),
]


@pytest.mark.parametrize(("program", "tolerance"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_device_agrees_with_the_reference(program: TileProgram, tolerance: float) -> None:
    cupy = cupy_with_gpu()
    rng = np.random.default_rng(0)
    host: dict[str, Any] = {}
    for buffer in program.parameters():
        dtype = buffer.type.dtype
        if buffer.space is Space.INPUT:
            values = rng.standard_normal(buffer.type.shape) * (100 if not dtype.is_float else 1)
            host[buffer.name] = values.astype(dtype.numpy)
    arrays: dict[str, Any] = {name: to_device(cupy, array) for name, array in host.items()}
    for buffer in program.parameters():
        if buffer.space is Space.OUTPUT:
            poison = np.frombuffer(b"\xff" * buffer.type.nbytes, buffer.type.dtype.numpy).reshape(buffer.type.shape)
            arrays[buffer.name] = to_device(cupy, poison)
    LoadedKernel(generate(program, current_arch()))(arrays)
    for name, expected in evaluate_program(program, host).items():
        actual = arrays[name].get().view(expected.dtype).reshape(expected.shape).astype(np.float64)
        scale = np.abs(expected.astype(np.float64)).max() if tolerance else 0.0
        np.testing.assert_allclose(actual, expected.astype(np.float64), rtol=0, atol=tolerance * scale)


def to_device(cupy: Any, array: Any) -> Any:
    """A device copy; bfloat16, which CuPy does not know, as its bits."""
    return cupy.asarray(array.view(np.uint16) if array.dtype == BF16.numpy else array)


def test_the_current_stream_is_used() -> None:
    cupy = cupy_with_gpu()
    program = handbuilt.binary("add", "add", 1 << 20)
    kernel = LoadedKernel(generate(program, current_arch()))
    x = cupy.ones(1 << 20, F32.numpy)
    z = cupy.empty_like(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        x *= 3
        kernel({"x": x, "y": x, "z": z})
        total = z.sum()
    stream.synchronize()
    assert float(total) == 6.0 * (1 << 20)
