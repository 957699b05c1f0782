"""AVX-512's instructions on exponents and significands, for vectors they fit; elsewhere the callers do without.

Both ways give the same bits: the instructions round as IEEE products do. Only exact operations are used here, no
approximate reciprocals, whose bits differ between makers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.targets.cpu.llvmtext import vector_of
from autofuse.targets.cpu.vectormath.lanes import Lanes, width

_NEAREST_ROUNDING = "4"
_THREE_QUARTERS_AND_NAN = "15"
"""vgetmant's immediate: significands in [3/4, 3/2), 1 for zeros, NaN for negative numbers."""


def fits(x: Lanes) -> bool:
    """Whether the target has AVX-512 and `x` fills whole 128-, 256- or 512-bit registers."""
    bits = x.lanes * width(x.element)
    return x.fn.module.has("avx512vl") and x.element in ("float", "double") and bits >= 128 and bits & (bits - 1) == 0


def scaled(x: Lanes, exponent: Lanes) -> Lanes:
    """`x * 2**exponent` for an integral float `exponent`, rounded once."""
    return _in_registers(lambda part, by: _masked("scalef", [part, by]), x, exponent)


def significand(x: Lanes) -> Lanes:
    """The m in [3/4, 3/2) of x = 2**e * m; 1 for zeros and infinity, NaN for negative numbers and NaN."""
    return _in_registers(lambda part: _masked("getmant", [part], f"i32 {_THREE_QUARTERS_AND_NAN}"), x)


def exponent(x: Lanes) -> Lanes:
    """floor(log2(|x|)) as a float, right for subnormals; -inf for zeros, inf for infinities, NaN for NaN."""
    return _in_registers(lambda part: _masked("getexp", [part]), x)


def _masked(name: str, operands: Sequence[Lanes], immediate: str = "") -> Lanes:
    """The intrinsic with a full mask; LLVM folds a select behind it into the mask."""
    x = operands[0]
    bits = x.lanes * width(x.element)
    mask = f"i{max(x.lanes, 8)}"
    arguments = [(operand.type, operand.name) for operand in operands]
    arguments += [(immediate.split()[0], immediate.split()[1])] if immediate else []
    arguments += [(x.type, "zeroinitializer"), (mask, "-1")]
    arguments += [("i32", _NEAREST_ROUNDING)] if bits == 512 else []
    suffix = f"p{'s' if x.element == 'float' else 'd'}.{bits}"
    return Lanes(x.fn, x.fn.intrinsic(f"llvm.x86.avx512.mask.{name}.{suffix}", x.type, arguments), x.element, x.lanes)


def _in_registers(function: Callable[..., Lanes], *operands: Lanes) -> Lanes:
    """`function` on vectors of at most 512 bits, the results put together again."""
    x = operands[0]
    if x.lanes * width(x.element) <= 512:
        return function(*operands)
    low, high = (_in_registers(function, *(_half(operand, index) for operand in operands)) for index in (0, 1))
    order = ", ".join(f"i32 {lane}" for lane in range(x.lanes))
    name = x.fn.emit(f"shufflevector {low.type} {low.name}, {high.type} {high.name}, <{x.lanes} x i32> <{order}>")
    return Lanes(x.fn, name, x.element, x.lanes)


def _half(x: Lanes, index: int) -> Lanes:
    half = x.lanes // 2
    order = ", ".join(f"i32 {lane}" for lane in range(index * half, (index + 1) * half))
    name = x.fn.emit(f"shufflevector {x.type} {x.name}, {x.type} poison, {vector_of('i32', half)} <{order}>")
    return Lanes(x.fn, name, x.element, half)
