"""What the generic math bodies need to know about float and double, and the polynomial evaluation they share."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.vectormath import avx512
from autofuse.targets.cpu.vectormath.lanes import Lanes


@dataclass(frozen=True, slots=True)
class Format:
    """One binary floating-point format and constants split to its precision."""

    element: str
    """LLVM type."""
    integer: str
    """LLVM type of the bit pattern."""
    fraction: int
    """Stored significand bits."""
    bias: int
    """Exponent bias."""
    ln2: tuple[float, float]
    """ln 2 rounded down and the rest."""
    log2e: tuple[float, float]
    """1 / ln 2 likewise."""
    half_pi: tuple[float, float, float]
    """pi/2 in three parts, each rounded to the format."""
    smallest_normal: float
    three_quarters_bits: int
    """Bit pattern of 3/4."""
    reciprocal_root_bits: int
    """Minus half the bit pattern of a number, this is about the pattern of one over its square root."""

    @property
    def magic(self) -> float:
        """1.5 * 2**fraction: added to a small number, it leaves the nearest integer in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction

    @property
    def least(self) -> int:
        """2**-least is the smallest subnormal number, of which the bits of all others count how many they are."""
        return self.bias + self.fraction - 1

    @property
    def unit(self) -> float:
        """2**fraction: added to a smaller number that is not negative, it leaves the nearest integer in the bits."""
        return 2.0**self.fraction

    @property
    def unit_bits(self) -> int:
        """The bit pattern of `unit`."""
        return (self.bias + self.fraction) << self.fraction

    @property
    def magic_bits(self) -> int:
        """The bit pattern of `magic`."""
        return ((self.bias + self.fraction) << self.fraction) | (1 << (self.fraction - 1))


FLOAT = Format(
    element="float",
    integer="i32",
    fraction=23,
    bias=127,
    ln2=(0.6931471228599548, 5.769998878690785e-08),
    log2e=(1.4426950216293335, 1.925963033500011e-08),
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    smallest_normal=2.0**-126,
    three_quarters_bits=0x3F40_0000,
    reciprocal_root_bits=0x5F37_59DF,
)
DOUBLE = Format(
    element="double",
    integer="i64",
    fraction=52,
    bias=1023,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    log2e=(1.4426950408889634, 2.0355273740931033e-17),
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591815e-33),
    smallest_normal=2.0**-1022,
    three_quarters_bits=0x3FE8_0000_0000_0000,
    reciprocal_root_bits=0x5FE6_EB50_C7B5_37A9,
)


def format_of(x: Lanes) -> Format:
    """The format of float or double lanes."""
    return FLOAT if x.element == "float" else DOUBLE


_LONG = 8
"""Polynomials of so many coefficients are split."""


def polynomial(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    """`sum c[k] * x**k`, one fma per step.

    Short ones by Horner's rule, whose latency loops hide; long ones as even(x**2) + x * odd(x**2), which costs one
    operation more and waits half as long: a processor looks only some hundred operations ahead.
    """
    if len(coefficients) < _LONG:
        return _horner(x, coefficients)
    square = x * x
    return _horner(square, coefficients[1::2]).fma(x, _horner(square, coefficients[::2]))


def _horner(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    total = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total.fma(x, coefficient)
    return total


def at_most(x: Lanes, bound: float) -> Lanes:
    """`min(x, bound)` that keeps NaN."""
    return (x > bound).select(x.like(bound), x)


def at_least(x: Lanes, bound: float) -> Lanes:
    """`max(x, bound)` that keeps NaN."""
    return (x < bound).select(x.like(bound), x)


def power_of_two(exponent: Lanes) -> Lanes:
    """`2**exponent` as float or double, for integer lanes within the normal exponents."""
    fmt = FLOAT if exponent.element == "i32" else DOUBLE
    return ((exponent + fmt.bias) << fmt.fraction).as_float()


def nearest_integer(x: Lanes, factor: float) -> tuple[Lanes, Lanes]:
    """The integer next to `x * factor`, in floating point and as integer lanes; `|x * factor| < 2**(fraction - 2)`."""
    fmt = format_of(x)
    shifted = x.fma(factor, fmt.magic)
    return shifted - fmt.magic, shifted.bits() - fmt.magic_bits


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """2**(n + shift) for the integer n next to a number."""

    n: Lanes
    """n as a float."""
    offset: Lanes
    """Integer lanes whose low bits hold n + bias + shift."""
    shift: int

    def value(self) -> Lanes:
        """The power, for normal exponents."""
        return (self.offset << format_of(self.n).fraction).as_float()

    def times(self, x: Lanes) -> Lanes:
        """`x * 2**n`, rounded once, for |x| near 1 and n within twice the normal exponents; `shift` must be the bias.

        Without an instruction for it, two factors of half the exponent, so that the first product is exact: `offset`,
        n + 2*bias, is halved to n//2 + bias and the rest, also with the bias, and shifts drop the bits above.
        """
        if avx512.fits(x):
            return avx512.scaled(x, self.n)
        fmt = format_of(x)
        half = self.offset.shift_right(1)
        return x * (half << fmt.fraction).as_float() * ((self.offset - half) << fmt.fraction).as_float()


def nearest_power(x: Lanes, factor: float, shift: int = 0) -> tuple[Lanes, PowerOfTwo]:
    """The integer n next to `x * factor` as a float, and 2**(n + shift); `|x * factor| < 2**(fraction - 2)`.

    The exponent's bias goes into the number that is added for rounding, so that one shift makes the power.
    """
    fmt = format_of(x)
    magic = fmt.magic + fmt.bias + shift
    shifted = x.fma(factor, magic)
    n = shifted - magic
    return n, PowerOfTwo(n, shifted.bits(), shift)
