"""Ops between complex numbers and their parts: `complex`, `real` and `imag`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir import dtypes
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import OpDef, Region, Role
from autofuse.ir.ops import require
from autofuse.ir.types import TensorType

Array = NDArray[Any]


def _infer_complex(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.same_type("complex", ("real", "imag"), operands)
    return (TensorType(operands[0].shape, dtypes.complex_of(operands[0].dtype)),)


def _complex(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    real, imag = operands
    made = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    made.real, made.imag = real, imag
    return (made,)


def _part(name: str, which: str, take: Callable[[Array], Array]) -> OpDef:
    def infer(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
        require.kind(name, "x", operands[0], require.COMPLEX)
        return (TensorType(operands[0].shape, operands[0].dtype.part),)

    def evaluate(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
        return (take(operands[0]).copy(),)

    return OpDef(
        name=name,
        doc=f"The {which} part of complex numbers.",
        role=Role.COMPLEX,
        infer=infer,
        evaluate=evaluate,
        code=1,
        arity=1,
    )


OPS = (
    OpDef(
        name="complex",
        doc="Complex numbers of two floats each: the real and the imaginary part.",
        role=Role.COMPLEX,
        infer=_infer_complex,
        evaluate=_complex,
        code=1,
        arity=2,
    ),
    _part("real", "real", np.real),
    _part("imag", "imaginary", np.imag),
)
