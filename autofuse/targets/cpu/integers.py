"""Integer arithmetic that never traps: division by zero, INT_MIN / -1, and shifts by any amount are all defined.

- x / 0 is -1 (all ones when unsigned) and x % 0 is x; INT_MIN / -1 is INT_MIN and INT_MIN % -1 is 0.
- Division truncates toward zero; the remainder has the dividend's sign.
- A shift by the width or more (a negative amount counts as that) gives 0, or the sign for the arithmetic shift.
- `power` wraps; a negative exponent gives the truncated reciprocal: 0 unless the base is 1 or -1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autofuse.ir.ops import randombits
from autofuse.targets.cpu.vectormath.lanes import Lanes, width
from autofuse.targets.cpu.vectormath.library import outlined


def _safe_divisor(unsigned: bool, a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """The divisor with 1 in place of what would trap, and where it was zero."""
    zero = b.equals(0)
    if unsigned:
        return zero.select(b.like(1), b), zero
    overflow = a.equals(1 << (width(a.element) - 1)) & b.equals(-1)
    return (zero | overflow).select(b.like(1), b), zero


def _quotient(unsigned: bool, a: Lanes, b: Lanes) -> Lanes:
    """`a / b` for a divisor that cannot trap.

    Vectors of up to 32 bits divide as floats: machines have no vector integer division, and truncating the correctly
    rounded quotient is exact when the significand has at least as many bits as both operands together need (the
    quotient is at least 1/a below the next integer, relatively).
    """
    bits = width(a.element)
    if a.lanes == 1 or bits > 32 or not b.name.startswith("%"):
        return a.binary("udiv" if unsigned else "sdiv", b)
    wide = "double" if bits > 16 else "float"
    to_float, from_float = ("uitofp", "fptoui") if unsigned else ("sitofp", "fptosi")
    return (a.cast(to_float, wide) / b.cast(to_float, wide)).cast(from_float, a.element)


def divide(unsigned: bool, a: Lanes, b: Lanes) -> Lanes:
    """Quotient, truncated; -1 where b is 0."""
    safe, zero = _safe_divisor(unsigned, a, b)
    return zero.select(a.like(-1), _quotient(unsigned, a, safe))


def remainder(unsigned: bool, a: Lanes, b: Lanes) -> Lanes:
    """Remainder with the sign of a; a where b is 0."""
    safe, zero = _safe_divisor(unsigned, a, b)
    return zero.select(a, a - _quotient(unsigned, a, safe) * safe)


def power(unsigned: bool, base: Lanes, exponent: Lanes) -> Lanes:
    """`base ** exponent` modulo 2**bits, by squaring."""
    name = "upow" if unsigned else "spow"
    return outlined(name, lambda x, n: _power_body(unsigned, x, n), base, exponent)


def _power_body(unsigned: bool, base: Lanes, exponent: Lanes) -> Lanes:
    fn, type_ = base.fn, base.type
    count = exponent if unsigned else (exponent < 0).select(exponent.like(0), exponent)
    names = [fn.fresh() for _ in range(3)]
    entry, loop, body, done = fn.current, fn.label("square"), fn.label("multiply"), fn.label("done")
    fn.branch(loop)
    fn.block(loop)
    starts = [base.like(1).name, base.name, count.name]
    result, square, left = (
        Lanes(fn, fn.phi(type_, [(start, entry), (name, body)]), base.element, base.lanes)
        for start, name in zip(starts, names, strict=True)
    )
    fn.branch_if(left.differs(0).any(), body, done)
    fn.block(body)
    odd = (left & 1).differs(0)
    fn.emit(f"select {odd.type} {odd.name}, {type_} {(result * square).name}, {type_} {result.name}", name=names[0])
    fn.emit(f"mul {type_} {square.name}, {square.name}", name=names[1])
    fn.emit(f"lshr {type_} {left.name}, {left.like(1).name}", name=names[2])
    fn.branch(loop)
    fn.block(done)
    if unsigned:
        return result
    odd = (exponent & 1).differs(0)
    reciprocal = base.equals(1).select(base, base.equals(-1).select(odd.select(base, base.like(1)), 0))
    return (exponent < 0).select(reciprocal, result)


def _shift(opcode: str) -> Callable[[bool, Lanes, Lanes], Lanes]:
    def emit(unsigned: bool, x: Lanes, amount: Lanes) -> Lanes:  # noqa: ARG001 - the table's signature
        bits = width(x.element)
        shifted = x.binary(opcode, amount & (bits - 1))
        beyond = x.binary("ashr", bits - 1) if opcode == "ashr" else x.like(0)
        return amount.below(bits).select(shifted, beyond)

    return emit


def _sign(unsigned: bool, x: Lanes) -> Lanes:
    positive = x.differs(0) if unsigned else x > 0
    one = positive.cast("zext", x.element)
    return one if unsigned else one | x.binary("ashr", width(x.element) - 1)


def _clamp(unsigned: bool, low: Lanes, x: Lanes, high: Lanes) -> Lanes:
    kind = "u" if unsigned else "s"
    return x.intrinsic(kind + "max", low).intrinsic(kind + "min", high)


def _flagged(name: str) -> Callable[[bool, Lanes], Lanes]:
    """An intrinsic with a trailing `i1 false`: INT_MIN of `abs` and 0 of `ctlz` are defined, not poison."""

    def emit(unsigned: bool, x: Lanes) -> Lanes:
        if name == "abs" and unsigned:
            return x
        return x.intrinsic_with_flag(name)

    return emit


def _turned(word: Lanes, bits: int) -> Lanes:
    return word.intrinsic("fshl", word, bits)


def _random_bits(opcode: str) -> Callable[..., Lanes]:
    """A straight line of instructions in the caller's block: LLVM does once what several words share."""

    def emit(unsigned: bool, *words: Lanes) -> Lanes:  # noqa: ARG001 - the table's signature
        return randombits.result_of(opcode, randombits.threefry2x32(words, _turned))

    return emit


def _upper_half(word: Lanes, multiplier: int) -> Lanes:
    """One instruction of a scalar; vectors have products of 32 bits."""
    if word.lanes > 1:
        return randombits.upper_half(word, multiplier, Lanes.shift_right)
    wide = word.cast("zext", "i128")
    return (wide * multiplier).shift_right(64).cast("trunc", word.element)


def _philox(unsigned: bool, *operands: Lanes) -> Lanes:  # noqa: ARG001 - the table's signature
    first, second, third, fourth = randombits.philox4x64(operands, _upper_half)
    odd, upper = ((operands[6] & bit).differs(0) for bit in (1, 2))
    return upper.select(odd.select(fourth, third), odd.select(second, first))


OPERATIONS: Mapping[str, Callable[..., Lanes]] = {
    "add": lambda _, a, b: a + b,
    "subtract": lambda _, a, b: a - b,
    "multiply": lambda _, a, b: a * b,
    "divide": divide,
    "remainder": remainder,
    "power": power,
    "maximum": lambda unsigned, a, b: a.intrinsic("umax" if unsigned else "smax", b),
    "minimum": lambda unsigned, a, b: a.intrinsic("umin" if unsigned else "smin", b),
    "clamp": _clamp,
    "and": lambda _, a, b: a & b,
    "or": lambda _, a, b: a | b,
    "xor": lambda _, a, b: a ^ b,
    "not": lambda _, x: ~x,
    "negate": lambda _, x: -x,
    "abs": _flagged("abs"),
    "sign": _sign,
    "shift_left": _shift("shl"),
    "shift_right_logical": _shift("lshr"),
    "shift_right_arithmetic": _shift("ashr"),
    "popcnt": lambda _, x: x.intrinsic("ctpop"),
    "count_leading_zeros": _flagged("ctlz"),
    **{opcode: _random_bits(opcode) for opcode in randombits.OPCODES},
    randombits.PHILOX: _philox,
}
"""Opcode -> emitter(unsigned, *operands)."""
