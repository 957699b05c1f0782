"""How far from exact each function is: every f32, sampled f64 and pairs, every 16-bit float; agreement of widths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from functions import BINARY, UNARY, Function
from kernels import Kernel, Width, host_widths
from numpy.typing import NDArray
from precision import Tally, same_bits, ulp_errors

from autofuse.ir.dtypes import BF16, F16, F32, F64, DType

Array = NDArray[Any]
BLOCK = 1 << 16
"""Arguments at a time: their results stay in the cache."""
_WIDE = {F16: np.dtype(np.float64), BF16: np.dtype(np.float64), F32: np.dtype(np.float64), F64: np.dtype(np.longdouble)}


def every_pattern(name: str, kernel: Kernel, start: int, stop: int) -> Tally:
    """All arguments whose bit patterns are in [start, stop)."""
    dtype = kernel.operands[0]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    tally = Tally()
    for first in range(start, stop, BLOCK):
        x = np.arange(first, min(first + BLOCK, stop), dtype=np.uint64).astype(unsigned).view(dtype.numpy)
        _add(tally, kernel, UNARY[name].exact, (x,))
    return tally


def sampled(name: str, kernel: Kernel, seed: int, count: int) -> Tally:
    """`count` arguments: random bit patterns, ordinary magnitudes, and neighbours of hard places."""
    tally, dtype = Tally(), kernel.operands[0]
    rng = np.random.default_rng([seed, *name.encode()])
    if name in BINARY:
        exact = BINARY[name][0]
        for block in _blocks(count):
            _add(tally, kernel, exact, pairs(rng, block, dtype))
        return tally
    for block in _blocks(count):
        _add(tally, kernel, UNARY[name].exact, (arguments(rng, UNARY[name], block, dtype),))
    return tally


def _blocks(count: int) -> Iterator[int]:
    for first in range(0, count, BLOCK):
        yield min(BLOCK, count - first)


def _add(tally: Tally, kernel: Kernel, exact: Callable[..., Array], inputs: tuple[Array, ...]) -> None:
    with np.errstate(all="ignore"):
        wide = [x.astype(_WIDE[kernel.operands[0]]) for x in inputs]
        tally.add(inputs, kernel(*inputs), exact(*wide))


def patterns(rng: np.random.Generator, count: int, dtype: DType) -> Array:
    """Random bit patterns: every exponent is equally likely."""
    return rng.integers(0, 2**dtype.bits, count, dtype=np.uint64).astype(f"u{dtype.itemsize}").view(dtype.numpy)


def arguments(rng: np.random.Generator, function: Function, count: int, dtype: DType) -> Array:
    """A third each: random patterns; a normal distribution times powers of ten; the hard places."""
    third = count // 3
    ordinary = rng.normal(size=third) * function.scale * 10.0 ** rng.uniform(-4, 1, third)
    rest = count - 2 * third
    offset = rng.normal(size=rest) * 2.0 ** rng.uniform(-dtype.bits * 0.8, 1, rest)
    near = function.centre + offset
    if function.edges:
        edge = rng.choice(np.array(function.edges), rest)
        multiple = np.where(rng.random(rest) < 0.3, 1.0, rng.integers(1, 2 ** rng.integers(1, 20, rest)))
        near = np.where(rng.random(rest) < 0.3, near, edge * multiple * (1 + offset * 2.0**-8))
        near *= rng.choice([1.0, 1.0, -1.0], rest)
    with np.errstate(over="ignore"):
        return np.concatenate([patterns(rng, third, dtype), ordinary.astype(dtype.numpy), near.astype(dtype.numpy)])


def pairs(rng: np.random.Generator, count: int, dtype: DType) -> tuple[Array, Array]:
    """A quarter each: random patterns; moderate numbers; powers that are finite; bases near one. And special values."""
    quarter = count // 4
    info = np.finfo(dtype.numpy)
    largest = float(np.log(float(info.max)))
    base = 10.0 ** rng.uniform(-30, 30, quarter)
    fitting = rng.uniform(-1.05, 1.05, quarter) * largest / np.log(base)
    near = 1 + rng.normal(size=quarter) * 2.0 ** rng.uniform(-dtype.bits * 0.7, -2, quarter)
    steep = rng.uniform(-1.05, 1.05, quarter) * largest / np.where(near == 1, 1.0, np.log(np.abs(near)))
    x = [patterns(rng, quarter, dtype), rng.normal(size=quarter) * 5, base, near]
    y = [patterns(rng, quarter, dtype), np.rint(rng.normal(size=quarter) * 5), fitting, steep]
    with np.errstate(over="ignore"):
        left, right = (np.concatenate([part.astype(dtype.numpy) for part in parts]) for parts in (x, y))
    values = special_values(dtype)
    for array in (left, right):
        array[rng.integers(0, len(array), len(array) // 8)] = rng.choice(values, len(array) // 8)
    return left, right


def special_values(dtype: DType) -> Array:
    """Zeros, subnormals, ones, integers, the ends of the range, infinities, NaN; both signs."""
    info = np.finfo(dtype.numpy)
    values = [
        0.0,
        info.smallest_subnormal,
        info.tiny,
        0.5,
        1.0,
        1.0 + info.eps,
        1.0 - info.eps / 2,
        1.5,
        2.0,
        3.0,
        10.0,
    ]
    values += [2.0**info.nmant, 2.0 ** (info.nmant + 1) + 2, info.max, np.inf, np.nan]
    return np.concatenate([np.array(values), -np.array(values)]).astype(dtype.numpy)


def wrong_specials(name: str, kernel: Kernel) -> list[str]:
    """Which of the function's special values are not met exactly."""
    dtype = kernel.operands[0].numpy
    with np.errstate(over="ignore"):
        x = np.array([value for value, _ in UNARY[name].specials] + [np.nan, -np.nan]).astype(dtype)
        expected = np.array([value for _, value in UNARY[name].specials] + [np.nan] * 2).astype(dtype)
    got = kernel(x)
    same = same_bits(got, expected)
    rows = zip(x.tolist(), got.tolist(), expected.tolist(), same.tolist(), strict=True)
    return [f"{name}({argument}) = {result}, not {right}" for argument, result, right, ok in rows if not ok]


def widths_agree(name: str, dtype: DType, seed: int, count: int) -> dict[str, int]:
    """Number of results that differ from the native vectors' by width, and for vectors starting at other elements.

    `count` is made odd, so that every width has a masked tail; shifting the arguments by one moves each result from one
    lane to the next, and tail lanes into bodies.
    """
    rng = np.random.default_rng([seed, *name.encode(), 1])
    count |= 1
    inputs = pairs(rng, count - 1, dtype) if name in BINARY else (arguments(rng, UNARY[name], count, dtype),)
    inputs = tuple(np.ascontiguousarray(x[:count]) for x in inputs)
    *others, native = host_widths()
    expected = _kernel(name, dtype, native)(*inputs)
    differing = {}
    for width in others:
        differing[width.name] = int(np.count_nonzero(~same_bits(_kernel(name, dtype, width)(*inputs), expected)))
    shifted = _kernel(name, dtype, native)(*(np.ascontiguousarray(x[1:]) for x in inputs))
    differing["shifted by one"] = int(np.count_nonzero(~same_bits(shifted, expected[1:])))
    return differing


def _kernel(name: str, dtype: DType, width: Width) -> Kernel:
    return Kernel(name, (dtype,) * (2 if name in BINARY else 1), dtype, width)


def reference_error(name: str, seed: int, count: int = 1 << 18) -> float:
    """The largest error of the f64 reference on f32 arguments, in f32 ulp, measured against long doubles."""
    rng = np.random.default_rng([seed, *name.encode(), 2])
    with np.errstate(all="ignore"):
        x = arguments(rng, UNARY[name], count, F32).astype(np.float64)
        exact = UNARY[name].exact(x.astype(np.longdouble))
        inside = (np.abs(exact) < np.finfo(np.float32).max) & (np.abs(exact) >= np.finfo(np.float32).tiny)
        return float(np.max(ulp_errors(UNARY[name].exact(x)[inside], exact[inside]))) * 2.0**-29
