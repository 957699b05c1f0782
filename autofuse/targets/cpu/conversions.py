"""Conversions between element types in registers, and between registers and memory.

Float to integer truncates, sends NaN to 0 and saturates at the ends of the range. Integer to integer wraps. Anything to
bool is `!= 0`. Narrowing floats round to nearest, ties to even, and give what NumPy and ml_dtypes give: float64 to
bfloat16 rounds twice, through float32.
"""

from __future__ import annotations

from autofuse.errors import BackendError
from autofuse.ir.dtypes import DType
from autofuse.targets.cpu.llvmtext import FunctionText, Vec
from autofuse.targets.cpu.vectormath.formats import at_least, at_most
from autofuse.targets.cpu.vectormath.lanes import Lanes

_EXACT_BITS = {"float": 24, "double": 53}
"""Integers of this many bits are all exact in the type."""


def round_to_bf16(x: Lanes) -> Lanes:
    """`float` lanes rounded to bfloat16's 8 significant bits by integer arithmetic; NaN stays NaN.

    LLVM's own `fptrunc ... to bfloat` can become a call to a missing library function.
    """
    bits = x.bits()
    even = bits.shift_right(16) & 1
    rounded = bits + (even + 0x7FFF)
    quiet = bits | 0x0040_0000
    return (x.is_nan().select(quiet, rounded) & 0xFFFF_0000).as_float()


def double_to_half(x: Lanes) -> Lanes:
    """`double` lanes to `half`, rounded once: through a `float` rounded to odd, which F16C can round again."""
    nearest = x.cast("fptrunc", "float")
    back = nearest.cast("fpext", "double")
    bits = nearest.bits()
    away = back.abs() > x.abs()
    toward_zero = bits - away.cast("zext", "i32")
    odd = back.differs(x) & ~x.is_nan()
    return odd.select(toward_zero | 1, bits).as_float().cast("fptrunc", "half")


def widen(x: Lanes) -> Lanes:
    """`half` lanes to `float`; others as they are. Arithmetic of f16 runs on the result."""
    return x.cast("fpext", "float") if x.element == "half" else x


def narrow(x: Lanes, dtype: DType) -> Lanes:
    """`float` lanes computed for an f16 or bf16 value, rounded to it; others as they are."""
    if dtype.name == "f16":
        return x.cast("fptrunc", "half")
    return round_to_bf16(x) if dtype.name == "bf16" else x


def convert(x: Lanes, source: DType, target: DType) -> Lanes:
    """StableHLO `convert` of a register value."""
    if source == target:
        return x
    x = widen(x)
    if target.kind == "bool":
        return x.differs(0)
    if source.is_float:
        return _float_to_float(x, target) if target.is_float else _float_to_integer(x, target)
    if target.is_float:
        wide = "double" if target.name == "f64" else "float"
        return narrow(x.cast("sitofp" if source.kind == "int" else "uitofp", wide), target)
    element = Vec(target, 1).element
    if source.kind == "bool" or target.bits > source.bits:
        return x.cast("sext" if source.kind == "int" else "zext", element)
    return x.cast("trunc", element) if target.bits < source.bits else x


def _float_to_float(x: Lanes, target: DType) -> Lanes:
    if target.name == "f64":
        return x.cast("fpext", "double") if x.element == "float" else x
    if x.element == "double":
        if target.name == "f16":
            return double_to_half(x)
        x = x.cast("fptrunc", "float")
    return narrow(x, target)


def _float_to_integer(x: Lanes, target: DType) -> Lanes:
    """Truncated and saturated, NaN to 0, by comparisons around the plain conversion (LLVM's own goes lane by lane)."""
    signed = target.kind == "int"
    element, opcode = Vec(target, 1).element, "fptosi" if signed else "fptoui"
    least, beyond = (-(2 ** (target.bits - 1)), 2 ** (target.bits - 1)) if signed else (0, 2**target.bits)
    raised = at_least(x, least)
    if target.bits <= _EXACT_BITS[x.element]:
        number = x.equals(x)
        return number.select(at_most(raised, beyond - 1), 0.0).cast(opcode, element)
    # the greatest integer is no float: what reaches beyond it is replaced behind the conversion
    inside = (x < beyond).select(raised, 0.0).cast(opcode, element)
    return (x >= beyond).select(inside.like(beyond - 1), inside)


def bitcast_convert(x: Lanes, source: DType, target: DType) -> Lanes:
    """StableHLO `bitcast_convert` between types of one width. Raises BackendError for different widths."""
    if source.bits != target.bits:
        raise BackendError(
            f"bitcast_convert from {source} ({source.bits} bits) to {target} ({target.bits} bits): lane-wise "
            "code needs equal widths; reshape around it instead"
        )
    stored = store_conversion(x, source)
    memory = Vec(target, 1).memory_element
    if stored.element != memory:
        stored = stored.cast("bitcast", memory)
    return load_conversion(stored, target)


def load_conversion(x: Lanes, dtype: DType) -> Lanes:
    """What was loaded from memory (`Vec.memory`), as its register form (`Vec.llvm`)."""
    if dtype.kind == "bool":
        return x.differs(0)
    if dtype.name == "bf16":
        return (x.cast("zext", "i32") << 16).as_float()
    return x


def store_conversion(x: Lanes, dtype: DType) -> Lanes:
    """A register value in the form that is stored (`Vec.memory`)."""
    if dtype.kind == "bool":
        return x.cast("zext", "i8")
    if dtype.name == "bf16":
        return x.bits().shift_right(16).cast("trunc", "i16")
    return x


def emit_load_conversion(fn: FunctionText, loaded: str, dtype: DType, lanes: int) -> str:
    """`load_conversion` by name: behind `load Vec(dtype, lanes).memory`."""
    return load_conversion(Lanes(fn, loaded, Vec(dtype, 1).memory_element, lanes), dtype).name


def emit_store_conversion(fn: FunctionText, value: str, dtype: DType, lanes: int) -> str:
    """`store_conversion` by name: before `store Vec(dtype, lanes).memory`."""
    return store_conversion(Lanes(fn, value, Vec(dtype, 1).element, lanes), dtype).name
