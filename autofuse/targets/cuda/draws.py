"""Device functions that random numbers are made with: threefry2x32, philox4x64, the inverse of the error function."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.ops import randombits
from autofuse.ir.ops.error_function_inverse import DOUBLE, SINGLE
from autofuse.targets.cuda.ctypes_text import literal

_WORDS = "unsigned int key_0, unsigned int key_1, unsigned int counter_0, unsigned int counter_1"


def _rounds() -> Iterator[str]:
    for group in range(randombits.GROUPS):
        for bits in randombits.ROTATIONS[group % 2]:
            yield f"    first += second; second = (second << {bits} | second >> {32 - bits}) ^ first;\n"
        yield f"    first += key_{(group + 1) % 3}; second += key_{(group + 2) % 3} + {group + 1}u;\n"


def _word(opcode: str) -> str:
    first, second = "words.first", "words.second"
    result = {randombits.FIRST: first, randombits.SECOND: second}.get(opcode, f"{first} ^ {second}")
    return (
        f"__device__ __forceinline__ unsigned int {opcode}({_WORDS}) {{\n"
        "    const RandomWords words = threefry2x32(key_0, key_1, counter_0, counter_1);\n"
        f"    return {result};\n"
        "}\n"
    )


def _philox() -> str:
    """A loop that compilers unroll: the key changes from round to round, the rest repeats."""
    long = "unsigned long long"
    parameters = ", ".join(f"{long} {name}" for name in randombits.PHILOX_NAMES)
    even, odd = randombits.PHILOX_MULTIPLIERS
    first, second = randombits.PHILOX_INCREMENTS
    return (
        f"__device__ __forceinline__ {long} {randombits.PHILOX}({parameters}) {{\n"
        "#pragma unroll\n"
        f"    for (int round = 0; round < {randombits.PHILOX_ROUNDS}; ++round) {{\n"
        f"        const {long} upper = __umul64hi(counter_0, {even:#x}ull), lower = counter_0 * {even:#x}ull;\n"
        f"        counter_0 = __umul64hi(counter_2, {odd:#x}ull) ^ counter_1 ^ key_0;\n"
        f"        counter_1 = counter_2 * {odd:#x}ull;\n"
        "        counter_2 = upper ^ counter_3 ^ key_1;\n"
        "        counter_3 = lower;\n"
        f"        key_0 += {first:#x}ull; key_1 += {second:#x}ull;\n"
        "    }\n"
        "    return word & 2 ? (word & 1 ? counter_3 : counter_2) : (word & 1 ? counter_1 : counter_0);\n"
        "}\n"
    )


def _chosen(conditions: list[str], values: list[str]) -> str:
    """The value of the first condition that holds, else the last one."""
    return " : ".join([*(f"{one} ? {value}" for one, value in zip(conditions, values, strict=False)), values[-1]])


def _erf_inv(dtype: DType) -> str:
    """The polynomial of the range that a number falls into, by Horner's rule."""
    single = dtype == dtypes.F32
    type_, f, pieces = ("float", "f", SINGLE) if single else ("double", "", DOUBLE)
    below = [f"w < {literal(piece.below, dtype)}" for piece in pieces[:-1]]
    arguments = [f"{'root' if piece.root else 'w'} - {literal(piece.shift, dtype)}" for piece in pieces]
    steps: list[str] = []
    for power in reversed(range(max(len(piece.coefficients) for piece in pieces))):
        at = [piece.coefficients[power] if power < len(piece.coefficients) else 0.0 for piece in pieces]
        chosen = _chosen(below, [literal(coefficient, dtype) for coefficient in at])
        steps.append(f"    result = fma{f}(result, t, {chosen});\n" if steps else f"    {type_} result = {chosen};\n")
    infinity = literal(np.inf, dtype)
    return (
        f"__device__ __forceinline__ {type_} erf_inv{f}({type_} x) {{\n"
        f"    const {type_} w = -log1p{f}(-(x * x)), root = sqrt{f}(w), t = {_chosen(below, arguments)};\n"
        + "".join(steps)
        + f"    return fabs{f}(x) == {literal(1.0, dtype)} ? x * {infinity} : result * x;\n}}\n"
    )


FUNCTIONS: dict[str, str] = {
    "threefry2x32": "struct RandomWords {\n    unsigned int first, second;\n};\n"
    f"__device__ __forceinline__ RandomWords threefry2x32({_WORDS}) {{\n"
    f"    const unsigned int key_2 = key_0 ^ key_1 ^ {randombits.PARITY:#x}u;\n"
    "    unsigned int first = counter_0 + key_0, second = counter_1 + key_1;\n"
    + "".join(_rounds())
    + "    return {first, second};\n}\n",
    **{opcode: _word(opcode) for opcode in randombits.OPCODES},
    randombits.PHILOX: _philox(),
    "erf_invf": _erf_inv(dtypes.F32),
    "erf_inv": _erf_inv(dtypes.F64),
}
NEEDS = dict.fromkeys(randombits.OPCODES, ("threefry2x32",))
"""Functions that others call."""
