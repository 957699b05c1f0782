"""The operation of JAX that a plan is: its types, its derivatives, its batches, and how it is lowered.

Transformations make other callees of a callee, which are planned as wholes: a batch is a plan of the batched function,
and what `grad` asks for is a plan of the transpose of the function's linear part, which is given what was costly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.dtypes import float0
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from autofuse.jax.callee import Callee
from autofuse.jax.lowering import lowered, lowered_elsewhere
from autofuse.jax.residuals import linearised

call_p: Any = Primitive("autofuse_call")
call_p.multiple_results = True


def call(callee: Callee, operands: Sequence[Any]) -> list[Any]:
    """The outputs of a callee, computed by its plan where JAX compiles the call."""
    return call_p.bind(*operands, callee=callee)


@call_p.def_impl
def _op_by_op(*operands: Any, callee: Callee) -> Sequence[Any]:
    """Where JAX runs operation by operation (`jax.disable_jit`), this one is taken apart."""
    return callee.function(*operands)


@call_p.def_abstract_eval
def _types(*_operands: Any, callee: Callee) -> Sequence[ShapedArray]:
    return callee.outputs


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, callee: Callee) -> tuple[list[Any], list[Any]]:
    moving = [number for number, tangent in enumerate(tangents) if _moves(tangent)]
    floating = [
        number for number, output in enumerate(callee.outputs) if jax.numpy.issubdtype(output.dtype, np.inexact)
    ]
    changes = [ad.Zero(output.to_tangent_aval()) for output in callee.outputs]
    if not (moving and floating):
        return call(callee, primals), changes
    at_point = linearised(callee, moving, floating)
    if at_point.hands_on:
        plain = at_point.plain
        every = plain.outputs(primals, call(plain.callee(callee.planner), plain.operands(primals)))
        results, residuals = every[: len(changes)], every[len(changes) :]
    else:
        results, residuals = call(callee, primals), at_point.residuals(primals)
    found = call(at_point.pushed, [*residuals, *(tangents[number] for number in moving)])
    for number, change in zip(floating, found, strict=True):
        changes[number] = change
    return results, changes


def _moves(tangent: Any) -> bool:
    return not isinstance(tangent, ad.Zero) and tangent.dtype != float0


def _transpose(cotangents: Sequence[Any], *operands: Any, callee: Callee) -> list[Any]:
    unknown = [number for number, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
    assert callee.linear.issuperset(unknown), "JAX transposes what is linear"
    pulled = [number for number, cotangent in enumerate(cotangents) if not isinstance(cotangent, ad.Zero)]
    found: list[Any] = [None] * len(operands)
    if pulled:
        known = [operand for number, operand in enumerate(operands) if number not in unknown]
        given = [*known, *(cotangents[number] for number in pulled)]
        for number, value in zip(unknown, call(callee.transposed(unknown, pulled), given), strict=True):
            found[number] = value
    else:
        for number in unknown:
            found[number] = ad.Zero(operands[number].aval)
    return found


def _batch(operands: Sequence[Any], axes: Sequence[Any], *, callee: Callee) -> tuple[list[Any], list[int]]:
    size = next(operand.shape[axis] for operand, axis in zip(operands, axes, strict=True) if axis is not None)
    types = [
        ShapedArray(np.shape(operand), type_.dtype, weak_type=type_.weak_type)
        for operand, type_ in zip(operands, callee.inputs, strict=True)
    ]
    return call(callee.batched(types, axes, size), operands), [0] * len(callee.outputs)


ad.primitive_jvps[call_p] = _jvp
ad.primitive_transposes[call_p] = _transpose
batching.primitive_batchers[call_p] = _batch
mlir.register_lowering(call_p, lowered, platform="cpu")
mlir.register_lowering(call_p, lowered_elsewhere)
