"""How many elements a call of a listed function asks for, from shapes and parameters, before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from autofuse.errors import GraphError
from autofuse.ir.ops.library_checks import LibraryCall, check_parameters, is_operand, listed
from autofuse.ir.ops.library_shapes import MAKES, Bound, Shape, broadcast, transformed
from autofuse.ir.ops.library_signatures import parameters
from autofuse.ir.types import TensorType

_SLACK = 4
"""How many times as many elements as the largest array around it a call may make: a transform of reals makes half as
many complex numbers as it is asked for points, and some functions copy."""
_SMALL = 10_000
_MOST_OFFSETS = 1 << 24
"""Of a window with several axes: `scipy.ndimage` keeps those of all its elements for each place near an edge."""
_DEFAULT_BINS = 10


def check_sizes(call: LibraryCall, operands: Sequence[TensorType], results: Sequence[TensorType]) -> None:
    """Raise GraphError unless the call names operands that there are, and asks for no more than its results hold.

    What the results hold is in the graph, where it counts among the memory that a plan needs.
    """
    bound = check_parameters(call)
    shapes = [_shape(call, value, operands) for value in bound.values()]
    most = max((type_.size for type_ in (*results, *operands)), default=0)
    allowed = max(_SLACK * most, _SMALL, _MOST_OFFSETS if call.module == "scipy.ndimage" else 0)
    for name, asked in _asked(call, bound, shapes, operands).items():
        if asked > allowed:
            raise GraphError(
                f"{call.label}: {name} asks for {asked} elements; the largest operand or result that the graph "
                f"declares has {most}, so at most {allowed} are accepted"
            )


def _shape(call: LibraryCall, value: Any, operands: Sequence[TensorType]) -> Shape:
    """The shape of an array argument; () for anything else. Raises GraphError for an operand that there is not."""
    if is_operand(value):
        number = value["operand"]
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(operands):
            raise GraphError(f"{call.label}: there is no operand {number!r:.40}; the call has {len(operands)}")
        return operands[number].shape
    items = listed(value)
    if items is None:
        return ()
    inner = [_shape(call, item, operands) for item in items]
    return (len(items), *(inner[0] if inner else ()))


def _asked(call: LibraryCall, bound: Bound, shapes: Sequence[Shape], operands: Sequence[TensorType]) -> dict[str, int]:
    """Elements that the call asks for, by the parameter that is to blame."""
    known = parameters(call.module, call.function) or {}
    found: dict[str, int] = {}
    for name, value in bound.items():
        if known.get(name) == "length" and call.function not in MAKES:
            found[name] = transformed(shapes[0], value, bound)
        elif known.get(name) == "bins":
            found[name] = _bins(call, value, operands)
    made = MAKES.get(call.label) or MAKES.get(call.function) or (None if known else broadcast)
    if made is not None and bound:
        with suppress(IndexError, TypeError, ValueError):  # shapes that the function itself refuses
            found.setdefault(next(iter(bound)), made(shapes, bound))
    return found


# ---- bins --------------------------------------------------------------------------------------------------------


def _bins(call: LibraryCall, value: Any, operands: Sequence[TensorType]) -> int:
    """Bins, of which two axes have a product. Raises GraphError where data would say how many there are."""
    if call.function != "histogram2d":
        return _bins_of_axis(call, value, operands)
    pair = listed(value)
    if pair is not None and len(pair) == 2:
        return math.prod(_bins_of_axis(call, item, operands) for item in pair)
    if is_operand(value) and _shape(call, value, operands) == (2,):
        raise GraphError(
            f"{call.label}: bins that are an operand must be edges, more than two; give two edges as numbers"
        )
    return _bins_of_axis(call, value, operands) ** 2


def _bins_of_axis(call: LibraryCall, value: Any, operands: Sequence[TensorType]) -> int:
    if value is None:
        return _DEFAULT_BINS
    if isinstance(value, int):
        return value
    shape = _shape(call, value, operands)
    if is_operand(value) and len(shape) != 1:
        raise GraphError(f"{call.label}: bins that are an operand must be edges, of one dimension, got {len(shape)}")
    return max(shape, default=1)
