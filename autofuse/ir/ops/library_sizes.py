"""How many elements a call of a listed function asks for, from shapes and parameters, before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from autofuse.errors import GraphError
from autofuse.ir.ops.library_checks import LibraryCall, check_parameters, is_operand, listed
from autofuse.ir.ops.library_signatures import parameters
from autofuse.ir.types import TensorType

Shape = tuple[int, ...]
Bound = Mapping[str, Any]
_Rule = Callable[[Sequence[Shape], Bound], int]
_SLACK = 4
"""How many times as many elements as the largest array around it a call may make: a transform of reals makes half as
many complex numbers as it is asked for points, and some functions copy."""
_SMALL = 10_000


def check_sizes(call: LibraryCall, operands: Sequence[TensorType], results: Sequence[TensorType]) -> None:
    """Raise GraphError unless the call names operands that there are, and asks for no more than its results hold.

    What the results hold is in the graph, where it counts among the memory that a plan needs.
    """
    bound = check_parameters(call)
    shapes = {name: _shape(call, value, operands) for name, value in bound.items()}
    most = max((type_.size for type_ in (*results, *operands)), default=0)
    for name, asked in _asked(call, bound, list(shapes.values())).items():
        if asked > max(_SLACK * most, _SMALL):
            raise GraphError(
                f"{call.label}: {name} asks for {asked} elements; the largest operand or result that the graph "
                f"declares has {most}"
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


def _asked(call: LibraryCall, bound: Bound, shapes: Sequence[Shape]) -> dict[str, int]:
    """Elements that the call asks for, by the parameter that is to blame."""
    known = parameters(call.module, call.function) or {}
    found: dict[str, int] = {}
    for name, value in bound.items():
        if known.get(name) == "length" and value is not None:
            found[name] = _transformed(shapes[0], value, bound)
        elif known.get(name) == "bins":
            found[name] = _bins(value, call.function)
    if call.module != "scipy.ndimage" and bound:
        made = _MAKES.get(call.label) or _MAKES.get(call.function, _broadcast)
        with suppress(IndexError, TypeError, ValueError):  # shapes that the function itself refuses
            found.setdefault(next(iter(bound)), made(shapes, bound))
    return found


def _integers(value: Any) -> list[int]:
    return [int(item) for item in (listed(value) or ([] if value is None else [value]))]


def _transformed(shape: Shape, value: Any, bound: Bound) -> int:
    """Elements after `value` points along some axes, by default the last."""
    points = _integers(value)
    taken = _integers(bound.get("axes", bound.get("axis"))) or [-k - 1 for k in range(len(points))]
    rest = list(shape)
    for axis in taken:
        if -len(rest) <= axis < len(rest):
            rest[axis] = 1
    return math.prod(rest) * math.prod(points)


def _bins(value: Any, function: str) -> int:
    """Bins, of which two axes have a square."""
    items = [value] if listed(value) is None else (listed(value) or [])
    counts = [item for item in items if isinstance(item, int)]
    if function != "histogram2d":
        return counts[0] if listed(value) is None and counts else 0
    return counts[0] ** 2 if listed(value) is None and counts else math.prod(counts)


# ---- what functions make of shapes -------------------------------------------------------------------------------


def _broadcast(shapes: Sequence[Shape], bound: Bound) -> int:
    """All arrays broadcast together."""
    rank = max(map(len, shapes), default=0)
    full = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return math.prod(max(extents) for extents in zip(*full, strict=True)) if full else 1


def _square(parameter: str, asks: Any, default: Any) -> _Rule:
    """A square of the longer side for each matrix, where a parameter asks for that."""

    def made(shapes: Sequence[Shape], bound: Bound) -> int:
        if bound.get(parameter, default) != asks:
            return 0
        return math.prod(shapes[0][:-2]) * max(shapes[0][-2:]) ** 2

    return made


def _outer(shapes: Sequence[Shape], bound: Bound) -> int:
    return math.prod(math.prod(shape) for shape in shapes[:2])


def _matmul(shapes: Sequence[Shape], bound: Bound) -> int:
    left, right = shapes[:2]
    rows, columns = (left[-2:-1] or (1,))[0], right[-1] if len(right) > 1 else 1
    return _broadcast([left[:-2], right[:-2]], {}) * rows * columns


def _solve(shapes: Sequence[Shape], bound: Bound) -> int:
    left, right = shapes[:2]
    return 0 if len(right) < 2 else _broadcast([left[:-2], right[:-2]], {}) * right[-2] * right[-1]


def _tensordot(shapes: Sequence[Shape], bound: Bound) -> int:
    pair = listed(bound.get("axes", 2))
    if pair is None:
        count = max(int(bound.get("axes", 2)), 0)
        return math.prod(shapes[0][: len(shapes[0]) - count]) * math.prod(shapes[1][count:])
    made = 1
    for shape, side in zip(shapes, pair, strict=False):
        summed = {axis % max(len(shape), 1) for axis in _integers(side)}
        made *= math.prod(extent for axis, extent in enumerate(shape) if axis not in summed)
    return made


def _covariance(shapes: Sequence[Shape], bound: Bound) -> int:
    column = 0 if bound.get("rowvar", True) else -1
    return sum(shape[column] for shape in shapes[:2] if len(shape) > 1) ** 2


def _quantiles(shapes: Sequence[Shape], bound: Bound) -> int:
    """As many quantiles as wanted of each line along the axes."""
    data, wanted, axes = shapes[0], math.prod(shapes[1]), bound.get("axis")
    if axes is None:
        return wanted
    taken = {axis % max(len(data), 1) for axis in _integers(axes)}
    return wanted * math.prod(extent for axis, extent in enumerate(data) if axis not in taken)


def _toeplitz(shapes: Sequence[Shape], bound: Bound) -> int:
    columns = shapes[1] if len(shapes) > 1 and shapes[1] else shapes[0]
    return math.prod(shapes[0]) * columns[-1]


def _no_more(shapes: Sequence[Shape], bound: Bound) -> int:
    return 0


_MAKES: Mapping[str, _Rule] = {
    "outer": _outer,
    "tensordot": _tensordot,
    "matmul": _matmul,
    "solve": _solve,
    "svd": _square("full_matrices", True, True),
    "lu": _square("permute_l", False, False),
    "numpy.linalg.qr": _square("mode", "complete", "reduced"),
    "scipy.linalg.qr": _square("mode", "full", "full"),
    "circulant": _toeplitz,
    "toeplitz": _toeplitz,
    **dict.fromkeys(("corrcoef", "cov"), _covariance),
    **dict.fromkeys(("nanpercentile", "nanquantile", "percentile", "quantile"), _quantiles),
    **dict.fromkeys(("lexsort", "lstsq", "multi_dot", "polyadd", "polyfit", "polymul", "tensorsolve"), _no_more),
    "numpy.convolve": _no_more,
}
"""Elements that a function makes, by its name or its whole name; of others, what all arrays broadcast together have."""
