"""Every scalar opcode on every dtype it has, edges included: the CUDA C, run on the host, against the op table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autofuse.errors import BackendError, GraphError
from autofuse.ir import dtypes, index, optable
from autofuse.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U64, DType
from autofuse.ir.index import Symbol
from autofuse.ir.oprecord import ElementwiseOp, Role
from autofuse.ir.types import TensorType
from autofuse.lower.evaluate import apply_opcode
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda import nvrtc, scalars
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.ctypes_text import literal
from autofuse.targets.cuda.prelude import Prelude
from autofuse.testing.simt import SimtModule
from tests.fixtures.handbuilt import Body, buffer, one_phase

# the inputs hold NaNs and overflows on purpose
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SIZE = 20 * 20
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LIBRARY = {op.name for op in optable.all_ops() if isinstance(op, ElementwiseOp) and op.work.ulps > 0.5} - {
    "rsqrt",
    "fma",
}
"""Ops where two good libraries differ by a few units in the last place; all others agree bit for bit."""
ULPS = 8


def values_of(dtype: DType) -> NDArray[Any]:
    """Twenty values: zeros, ones, extremes, halves, NaN."""
    if dtype.kind == "bool":
        return np.arange(20) % 2 == 0
    if dtype.is_float:
        special = [0.0, -0.0, 1, -1, 0.5, 1.5, -2.5, 3, -7.25, np.inf, -np.inf, np.nan, 300.7, -1e-3, 1e-7, 60000]
        return np.array([*special, 3e9, -1e30, 2.0, 0.1]).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    low = [-1, -2, -3, -7] if dtype.kind == "int" else [11, 13, 17, 19]
    ends = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2]
    return np.array([*ends, *low, 0, 1, 2, 3, 4, 5, 6, 7, 8, 31, 100], dtype.numpy)


def pair_of(dtype: DType) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = np.meshgrid(values_of(dtype), values_of(dtype))
    return np.ascontiguousarray(x.ravel()), np.ascontiguousarray(y.ravel())


def opcodes_of(dtype: DType) -> Iterator[tuple[str, int, DType]]:
    """(opcode, operands, result dtype) of what the op table lets `dtype` have."""
    yield from ((name, 2, BOOL) for name in COMPARISONS)
    for entry in optable.all_ops():
        if entry.role is not Role.ELEMENTWISE or entry.name in ("compare", "select", "convert", "bitcast_convert"):
            continue
        try:
            (result,) = entry.infer([TensorType((SIZE,), dtype)] * (entry.arity or 1), {}, ())
        except GraphError:
            continue
        assert isinstance(entry, ElementwiseOp)
        yield from ((opcode, entry.arity or 1, result.dtype) for opcode in entry.opcodes)


def every_opcode(dtype: DType) -> TileProgram:
    """One kernel that applies every opcode of `dtype` to x, y and converts x to every dtype."""
    x, y = (buffer(n, Space.INPUT, dtype, SIZE) for n in "xy")
    i, body = Symbol("i0", SIZE), Body()
    at = index.of(i)
    operands = (body.load(x, at), body.load(y, at))
    outputs = []
    for name, arity, result in opcodes_of(dtype):
        numbers = (operands * 4)[:arity]
        outputs.append(buffer(f"{name}_result", Space.OUTPUT, result, SIZE))
        body.store(outputs[-1], at, body.map(name, *numbers, dtype=result))
    for target in dtypes.ALL:
        names = ["convert"]
        if target.bits == dtype.bits and BOOL not in (dtype, target):
            names.append("bitcast_convert")
        for name in names:
            outputs.append(buffer(f"{name}_{target}", Space.OUTPUT, target, SIZE))
            body.store(outputs[-1], at, body.map(name, operands[0], dtype=target))
    return one_phase(f"opcodes_{dtype}", (x, y, *outputs), (i,), (body.stage(),), vectorised=i)


@pytest.fixture(scope="module")
def kernels() -> dict[DType, CudaKernel]:
    return {dtype: generate(every_opcode(dtype), "sm_90") for dtype in dtypes.ALL}


@pytest.fixture(scope="module")
def module(kernels: dict[DType, CudaKernel]) -> SimtModule:
    return SimtModule(list(kernels.values()))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_opcode(dtype: DType, kernels: dict[DType, CudaKernel], module: SimtModule) -> None:
    x, y = pair_of(dtype)
    outputs = {b.name: np.zeros(SIZE, b.type.dtype.numpy) for b in kernels[dtype].parameters[2:]}
    module.run(kernels[dtype], {"x": x, "y": y, **outputs})
    for name, arity, result in opcodes_of(dtype):
        expected = apply_opcode(name, result, *((x, y) * 4)[:arity])
        ulps = ULPS if name in LIBRARY else int(name == "fma")  # NumPy rounds that one twice
        assert_same(f"{name} of {dtype}", outputs[f"{name}_result"], expected, ulps)
    for name, actual in outputs.items():
        op, _, target = name.partition("_" if name.startswith("convert") else "convert_")
        if name.endswith("_result"):
            continue
        opcode = "convert" if op == "convert" else "bitcast_convert"
        expected = apply_opcode(opcode, dtypes.by_name(target), x)
        assert_same(f"{name} of {dtype}", actual, expected, 0)


def assert_same(what: str, actual: NDArray[Any], expected: NDArray[Any], ulps: int) -> None:
    """Equal values and NaNs in the same places; `ulps` of the result's own dtype apart at most."""
    assert actual.dtype == expected.dtype, what
    dtype = dtypes.from_numpy(actual.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    step = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}[dtype.name]
    least = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 5e-324}[dtype.name]
    np.testing.assert_allclose(a, e, rtol=step * ulps, atol=least * ulps, err_msg=what)


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed (pip install 'autofuse[cuda]')")
def test_nvrtc_takes_every_opcode(kernels: dict[DType, CudaKernel]) -> None:
    for kernel in (kernels[dtype] for dtype in (BOOL, BF16, F32, I8, U64)):
        resources = nvrtc.compile_source(kernel.source, "sm_90", f"{kernel.name}.cu").resources[kernel.name]
        assert resources.spill_bytes == 0, kernel.name


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, F32, "0.1f"),
        (1e30, F32, "1e+30f"),
        (-2.5, F64, "(-2.5)"),
        (1e30, F16, "__int_as_float(0x7f800000)"),
        (0.1, BF16, "0.100097656f"),
        (float("nan"), F64, "__longlong_as_double(0x7ff8000000000000LL)"),
        (True, BOOL, "true"),
        (-3, I8, "((signed char)(-3))"),
        (200, U8, "((unsigned char)200)"),
        (-(1 << 31), I32, "(-2147483647 - 1)"),
        (-(1 << 63), I64, "(-9223372036854775807LL - 1)"),
        ((1 << 64) - 1, U64, "18446744073709551615ULL"),
    ],
)
def test_literals(value: Any, dtype: DType, text: str) -> None:
    assert literal(value, dtype) == text


def test_what_a_dtype_does_not_have_is_refused() -> None:
    with pytest.raises(BackendError, match="'exp' is not defined on i32"):
        scalars.map_expression(Prelude(), "exp", ("a",), (I32,), I32)
    with pytest.raises(BackendError, match="equal widths"):
        scalars.bitcast(Prelude(), "a", F32, F64)
    with pytest.raises(BackendError, match="needs a bool or integer dtype, got f32"):
        scalars.identity("and", F32)


def test_select_and_clamp_order() -> None:
    prelude = Prelude()
    assert scalars.map_expression(prelude, "select", ("p", "a", "b"), (BOOL, F32, F32), F32) == "(p ? a : b)"
    text = scalars.map_expression(prelude, "clamp", ("low", "x", "high"), (F32,) * 3, F32)
    assert text == "minimum(maximum(x, low), high)"
