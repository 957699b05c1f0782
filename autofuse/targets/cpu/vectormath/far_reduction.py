"""Argument reduction by pi/2 for any finite number, one lane at a time, in 256-bit integers.

|x| = m * 2**e with a 53-bit integer m, so x*2/pi modulo 4 is m * (2**e * 2/pi mod 4) modulo 4. The factor is a window
of 256 bits into the binary expansion of 2/pi, starting two bits above the unit; one wide multiplication then leaves the
quadrant in the top two bits and the fraction below, correct to 2**-190, while no double comes closer to a multiple of
pi/2 than about 2**-62. (The method is Payne and Hanek's, "Radian reduction for trigonometric functions", 1983.)
"""

from __future__ import annotations

from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText, mangled, vector_of
from autofuse.targets.cpu.vectormath.formats import DOUBLE, format_of
from autofuse.targets.cpu.vectormath.lanes import Lanes

_BITS = 1232
# floor(2/pi * 2**1232), computed with mpmath at 1500 bits
_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73e"
    "e88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b7"
    "4f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cf",
    16,
)
_TABLE_BYTES = 168
_LEAST, _GREATEST = -40, 971
"""Exponents e served: 2**12 and above; smaller arguments give a meaningless result that nobody selects."""
_RESULT = "{ double, i64 }"


def reduce_far(x: Lanes) -> tuple[Lanes, Lanes]:
    """(x - n*pi/2, n modulo 4) of every lane; meaningless for |x| < 2**13 and non-finite x.

    A call of one cold function per vector type, which calls the scalar reduction lane by lane.
    """
    fn, integer = x.fn, format_of(x).integer
    symbol = f"af_reduce_half_pi_far_{mangled(x.element, x.lanes)}"
    returns = f"{{ {x.type}, {vector_of(integer, x.lanes)} }}"
    if not fn.module.defines(symbol):
        far = fn.module.function(symbol, returns, [(x.type, "x")], linkage="internal", attributes="noinline cold")
        r, quadrant = _reduce_lanes(Lanes(far, "%x", x.element, x.lanes))
        partial = far.emit(f"insertvalue {returns} poison, {r.type} {r.name}, 0")
        far.ret(returns, far.emit(f"insertvalue {returns} {partial}, {quadrant.type} {quadrant.name}, 1"))
    pair = fn.call(returns, f"@{symbol}", [(x.type, x.name)])
    r, quadrant = (fn.emit(f"extractvalue {returns} {pair}, {index}") for index in (0, 1))
    return Lanes(fn, r, x.element, x.lanes), Lanes(fn, quadrant, integer, x.lanes)


def _reduce_lanes(x: Lanes) -> tuple[Lanes, Lanes]:
    fn = x.fn
    symbol = _scalar_reduction(fn.module)
    wide = x.cast("fpext", "double") if x.element == "float" else x
    r, quadrant = "poison", "poison"
    r_type, q_type = vector_of("double", x.lanes), vector_of("i64", x.lanes)
    for lane in range(x.lanes):
        value = wide.name
        if x.lanes > 1:
            value = fn.emit(f"extractelement {wide.type} {wide.name}, i32 {lane}")
        pair = fn.call(_RESULT, f"@{symbol}", [("double", value)])
        parts = [fn.emit(f"extractvalue {_RESULT} {pair}, {index}") for index in (0, 1)]
        if x.lanes == 1:
            r, quadrant = parts
        else:
            r = fn.emit(f"insertelement {r_type} {r}, double {parts[0]}, i32 {lane}")
            quadrant = fn.emit(f"insertelement {q_type} {quadrant}, i64 {parts[1]}, i32 {lane}")
    reduced, count = Lanes(fn, r, "double", x.lanes), Lanes(fn, quadrant, "i64", x.lanes)
    if x.element == "float":
        return reduced.cast("fptrunc", "float"), count.cast("trunc", "i32")
    return reduced, count


def _scalar_reduction(module: ModuleText) -> str:
    symbol = "af_reduce_half_pi_far_lane"
    if not module.defines(symbol):
        data = _TWO_OVER_PI.to_bytes(_TABLE_BYTES, "little")
        module.table("af_two_over_pi", "i8", [str(byte) for byte in data])
        fn = module.function(symbol, _RESULT, [("double", "x")], linkage="internal", attributes="noinline cold")
        _write_reduction(fn)
    return symbol


def _write_reduction(fn: FunctionText) -> None:
    x = Lanes(fn, "%x", "double", 1)
    bits = x.bits()
    biased = bits.shift_right(52) & 0x7FF
    exponent = (biased - (DOUBLE.bias + 52)).intrinsic("smax", _LEAST).intrinsic("smin", _GREATEST)
    significand = (bits & ((1 << 52) - 1)) | (1 << 52)

    # the window holds bits [start, start + 256) of the expansion; the few below its first whole byte count as zero
    start = (_BITS - 254) - exponent
    byte = (start + 7).shift_right(3)
    missing = ((byte << 3) - start).cast("zext", "i256")
    address = fn.emit(f"getelementptr i8, ptr @af_two_over_pi, i64 {byte.name}")
    window = Lanes(fn, fn.emit(f"load i256, ptr {address}, align 1"), "i256", 1) << missing
    product = window * significand.cast("zext", "i256")

    # to the nearest quadrant, the rest as a fraction in [-1/2, 1/2)
    nearest = (product + (1 << 253)).shift_right(254).cast("trunc", "i64")
    signed = product << 2
    negative = signed < 0
    magnitude = signed.intrinsic_with_flag("abs")
    zeros = magnitude.intrinsic_with_flag("ctlz")
    top = (magnitude << zeros).shift_right(192).cast("trunc", "i64")
    weight = ((DOUBLE.bias - 64) - zeros.cast("trunc", "i64")) << 52
    high = (top & ~0x7FF).cast("uitofp", "double") * weight.as_float()
    low = (top & 0x7FF).cast("uitofp", "double") * weight.as_float()

    first, second, _ = DOUBLE.half_pi
    r = high.fma(first, high.fma(second, low * first))
    flip = negative ^ (bits < 0)
    r = flip.select(-r, r)
    quadrant = (bits < 0).select(-nearest, nearest)
    partial = fn.emit(f"insertvalue {_RESULT} poison, double {r.name}, 0")
    fn.ret(_RESULT, fn.emit(f"insertvalue {_RESULT} {partial}, i64 {quadrant.name}, 1"))
