"""NEP 50 by machine: every ufunc and operator, every dtype, every kind of Python number, against NumPy itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from autofuse.frontend.ufunc_rules import RULES
from autofuse.ir.interpreter import interpret

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
NUMBERS = [True, 2, 3, -3, 0, 300, 70000, 2**40, 2**63, 2**70, 2.0, 2.5, 0.5, float("inf")]
STRONG = [np.bool_(True), np.int8(2), np.uint64(2), np.float16(2), np.float64(2)]
SHAPES = ["1-d", "empty", "0-d", "scalar"]
UFUNCS = sorted(name for name in RULES if isinstance(getattr(np, name, None), np.ufunc) and getattr(np, name).nin < 3)
OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "lshift",
    "rshift",
    "and_",
    "or_",
    "xor",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
]
IN_PLACE = [
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "ilshift",
    "irshift",
    "iand",
    "ior",
    "ixor",
]

Case = tuple[str, Callable[[Any], Any]]


def operand(dtype: str, shape: str) -> Any:
    kind = np.dtype(dtype).kind
    numbers = {"b": [True, False], "i": [3, -2, 7], "u": [3, 0, 7]}.get(kind, [0.5, -2, 3])
    x = np.array(numbers, dtype)
    return {"1-d": x, "empty": x[:0], "0-d": np.array(x[0]), "scalar": x[0]}[shape]


def ufunc_cases(name: str, numbers: list[Any]) -> Iterator[Case]:
    ufunc = getattr(np, name)
    if ufunc.nin == 1:
        yield f"np.{name}(x)", ufunc
        return
    for n in numbers:
        yield f"np.{name}(x, {n!r})", lambda x, n=n: ufunc(x, n)
        yield f"np.{name}({n!r}, x)", lambda x, n=n: ufunc(n, x)


def operator_cases(name: str, numbers: list[Any]) -> Iterator[Case]:
    op = getattr(operator, name)
    for n in numbers:
        yield f"{name}(x, {n!r})", lambda x, n=n: op(x, n)
        if name not in IN_PLACE:
            yield f"{name}({n!r}, x)", lambda x, n=n: op(n, x)


def out_cases(name: str, numbers: list[Any]) -> Iterator[Case]:
    ufunc = getattr(np, name)
    for dtype in DTYPES:
        for n in numbers:
            for options in ({}, {"casting": "unsafe"}):

                def call(x: Any, n: Any = n, dtype: str = dtype, options: Any = options) -> Any:
                    out = np.zeros(x.shape, dtype)
                    ufunc(*((x, n) if ufunc.nin == 2 else (x,)), out=out, **options)
                    return out

                yield f"np.{name}(x, {n!r}, out={dtype}, {options})", call
            yield (
                f"np.{name}(x, {n!r}, dtype={dtype})",
                lambda x, n=n, dtype=dtype: ufunc(*((x, n) if ufunc.nin == 2 else (x,)), dtype=dtype),
            )


def numpys(call: Callable[[Any], Any], x: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return call(x.copy())
    except (TypeError, ValueError, OverflowError) as error:
        return error


def ours(call: Callable[[Any], Any], x: Any) -> Any:
    """The result, or what the TraceError says NumPy would have raised."""
    try:
        traced = trace(call, x.copy())
    except TraceError as error:
        return error.__cause__
    return traced.unflatten(interpret(traced.graph, *traced.flatten((x.copy(),))))


def difference(got: Any, want: Any) -> str:
    """How a result differs from NumPy's; empty if it does not. Floats: 8 ulp, as composed functions may have."""
    if isinstance(want, Exception) or isinstance(got, Exception):
        same = isinstance(want, Exception) and isinstance(want, type(got))
        return "" if same else f"{got!r}, want {want!r}"
    if isinstance(want, tuple):
        return next(filter(None, map(difference, got, want)), "")
    if isinstance(got, np.generic) != isinstance(want, np.generic):
        return f"{type(got)}, want {type(want)}"
    got, want = np.asarray(got), np.asarray(want)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    ulps = 8 * float(np.finfo(want.dtype).eps) if want.dtype.kind == "f" else 0
    same = np.allclose(got.astype("f8"), want.astype("f8"), ulps, 0, equal_nan=True) if ulps else (got == want).all()
    return "" if same else f"{got}, want {want}"


def left_open(call: str, dtype: str, want: Any) -> bool:
    """Where the graph has an answer and NumPy an error or the processor's accident: docs/ops.md lists them."""
    negative_power = isinstance(want, ValueError) and "negative integer powers" in str(want)
    overflow = "unsafe" in call and "power" in call and dtype[0] == "f"  # infinity as an integer
    return negative_power or overflow


def assert_agrees(
    cases: Iterator[Case], dtypes: list[str], shapes: list[str], prepare: Callable[[Any], Any] = np.positive
) -> None:
    wrong: list[str] = []
    for label, call in cases:
        for dtype in dtypes:
            for shape in shapes:
                x = prepare(operand(dtype, shape)) if dtype != "?" else operand(dtype, shape)
                want = numpys(call, x)
                text = difference(ours(call, x), want)
                if text and not left_open(label, dtype, want):
                    wrong.append(f"{label} of {shape} {dtype}: {text}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs_of_a_few_dtypes(name: str) -> None:
    assert_agrees(ufunc_cases(name, [True, 3, 300, 2.5]), ["?", "u1", "i4", "f2", "f8"], ["1-d"])


@pytest.mark.parametrize("name", [*OPERATORS, *IN_PLACE])
def test_operators_of_a_few_dtypes(name: str) -> None:
    assert_agrees(operator_cases(name, [2, -3, 2**70, 0.5]), ["?", "i1", "u8", "f4"], ["1-d", "scalar"])


@pytest.mark.parametrize("name", ["add", "less", "rint"])
def test_out_and_dtype_of_a_few(name: str) -> None:
    assert_agrees(out_cases(name, [300, 2.5]), ["u1", "f4"], ["1-d"], np.abs)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs(name: str, shape: str) -> None:
    assert_agrees(ufunc_cases(name, [*NUMBERS, *STRONG]), DTYPES, [shape])


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*OPERATORS, *IN_PLACE])
def test_operators(name: str, shape: str) -> None:
    assert_agrees(operator_cases(name, [*NUMBERS, *STRONG]), DTYPES, [shape])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["add", "power", "floor_divide", "multiply", "less", "maximum", "divide", "copysign", "sqrt", "rint"]
)
def test_out_and_dtype(name: str) -> None:
    assert_agrees(out_cases(name, [2, 2.5, -3, 300, True, np.float32(2)]), DTYPES, ["1-d"], np.abs)


def test_the_square_of_bools_is_int8() -> None:
    for x in (np.array([True, False]), np.zeros(0, bool), np.array(True), np.ones((2, 3), bool)):
        assert ours(lambda x: x**2, x).dtype == (x**2).dtype == np.int8


def test_a_comparison_that_the_range_decides_is_written_to_out() -> None:
    def call(x: Any) -> Any:
        out = np.zeros(x.shape, bool)
        np.less(x, 300, out=out)
        return out

    x = np.array([0, 1, 255], np.uint8)
    assert ours(call, x).tolist() == call(x).tolist() == [True, True, True]
