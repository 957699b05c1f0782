"""Ops without operands: `constant` and `iota`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir import types
from autofuse.ir.graph import Attrs, Graph
from autofuse.ir.oprecord import AttrSpec, OpDef, Region, Role
from autofuse.ir.ops import require
from autofuse.ir.ops.require import NUMBER
from autofuse.ir.types import TensorType

Array = NDArray[Any]


def _infer_constant(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    return (types.of_array(attrs["value"]),)


def _constant(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    return (attrs["value"],)


def _infer_iota(operands: Sequence[TensorType], attrs: Attrs, regions: Sequence[Graph]) -> tuple[TensorType, ...]:
    require.at_least("iota", "shape", attrs["shape"], 0)
    require.axis("iota", "iota_dimension", attrs["iota_dimension"], len(attrs["shape"]), "the result")
    result = TensorType(attrs["shape"], attrs["dtype"])
    require.kind("iota", "dtype", result, NUMBER)
    return (result,)


def _iota(operands: Sequence[Array], attrs: Attrs, regions: Sequence[Region]) -> tuple[Array, ...]:
    shape, axis = attrs["shape"], attrs["iota_dimension"]
    line = np.arange(shape[axis]).astype(attrs["dtype"].numpy)
    column = line.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return (np.broadcast_to(column, shape),)


OPS = (
    OpDef(
        name="constant",
        doc="An array known when the graph is built.",
        role=Role.CONSTANT,
        infer=_infer_constant,
        evaluate=_constant,
        code=0,
        attrs={"value": AttrSpec("array", "the array, read-only")},
        arity=0,
    ),
    OpDef(
        name="iota",
        doc="The position along one dimension: 0, 1, 2, ...; integers wrap, floats round.",
        role=Role.IOTA,
        infer=_infer_iota,
        evaluate=_iota,
        code=1,
        attrs={
            "shape": AttrSpec("ints", "the result's shape"),
            "dtype": AttrSpec("dtype", "the result's dtype, an integer or float"),
            "iota_dimension": AttrSpec("int", "the dimension that counts"),
        },
        arity=0,
    ),
)
