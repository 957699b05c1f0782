"""Opcodes that may be approximated (`numerics="fast"`), as calls of device functions around single instructions.

All are of f32, which 16-bit floats are computed in. Subnormal operands count as zeros, and subnormal results become
zeros of the same sign; everything else keeps subnormals. Errors are those of the instructions (PTX ISA, "Floating Point
Instructions"; CUDA C++ Programming Guide, "Intrinsic Functions"), u being 2**-23 of the result:

| opcode | computed as | within |
|---|---|---|
| divide | `div.approx` | 2 u for divisors of 2**-126 to 2**126; 0 beyond, infinity or NaN below |
| sqrt, rsqrt | `sqrt.approx`, `rsqrt.approx` | 1 u, 1.1 u |
| exp2 | `ex2.approx` | 2 u |
| exp | exp2 of x / ln 2 | (2 + 1.173 abs(x)) u |
| log2, log | `lg2.approx`, times ln 2 | 2**-22, 2**-21.41 from 0.5 to 2; 2 u and 3 u elsewhere |
| logistic | 1 / (1 + exp(-x)) | (4 + 1.2 abs(x)) u for negative x, 4 u else |
| tanh of f32 | 1 - 2 / (1 + exp(2 x)) | 2**-20.5 |
| tanh of 16 bits | `tanh.approx` | 2**-11 of the result |
| sin, cos | `sin.approx`, `cos.approx` of what is left of whole turns | 2**-20 up to 2**22; no digits beyond |

What may be off by how much, edges included, `autofuse.measurement.errorbounds.approximations` says to those who check.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir.dtypes import DType
from autofuse.targets.cuda.prelude import Prelude

FAST_FORMS = frozenset(
    ("divide", "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "logistic", "tanh", "sin", "cos"),
)
"""Opcodes that have one."""
_ONE = "1.0f"


def has_fast_form(opcode: str, dtype: DType) -> bool:
    """Whether an opcode of operands of `dtype` can be approximated."""
    return opcode in FAST_FORMS and dtype.is_float and dtype.bits <= 32


def fast_form(prelude: Prelude, opcode: str, operands: Sequence[str], dtype: DType) -> str:
    """The value of an opcode that `has_fast_form`, in float."""
    if opcode == "divide" and operands[0] == _ONE:
        return f"{prelude.use('approximate_reciprocal')}({operands[1]})"
    if opcode == "tanh" and dtype.bits < 32:
        return f"{prelude.use('approximate_tanh')}({operands[0]})"
    name = f"approximate_{opcode}" if opcode in ("divide", "sqrt", "rsqrt", "exp2", "log2") else f"fast_{opcode}"
    return f"{prelude.use(name)}({', '.join(operands)})"
