"""How many elements functions of NumPy and SciPy make, from the shapes of arrays and the other parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autofuse.ir.ops.library_checks import listed

Shape = tuple[int, ...]
Bound = Mapping[str, Any]
"""Arguments by parameter, in the function's own order."""
Rule = Callable[[Sequence[Shape], Bound], int]
"""(shapes of the arguments in that order, () for what is no array; arguments) -> elements. May raise IndexError,
TypeError or ValueError for shapes and axes that the function itself refuses."""


def _integers(value: Any) -> list[int]:
    """An integer, or several, as a list; none for None."""
    items = listed(value)
    return ([] if value is None else [int(value)]) if items is None else [int(item) for item in items]


def transformed(shape: Shape, value: Any, bound: Bound) -> int:
    """Elements after `value` points along some axes, by default the last; 0 for none.

    NumPy takes one axis after the other, so an axis that shrinks may still be long when another grows.
    """
    points = _integers(value)
    if not points:
        return 0
    taken = _integers(bound.get("axes", bound.get("axis"))) or list(range(-len(points), 0))
    longest = list(shape)
    for axis, count in zip(taken, points, strict=False):
        if -len(longest) <= axis < len(longest):
            longest[axis] = max(longest[axis], count)
    return math.prod(longest)


def _unpacked(shapes: Sequence[Shape], bound: Bound) -> int:
    """Eight bits of each byte, or as many as `count` says."""
    count, axis = bound.get("count"), bound.get("axis")
    if count is None:
        return 0
    return int(count) if axis is None else transformed(shapes[0], count, bound)


def broadcast(shapes: Sequence[Shape], bound: Bound) -> int:
    """All arrays broadcast together."""
    rank = max(map(len, shapes), default=0)
    full = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return math.prod(max(extents) for extents in zip(*full, strict=True)) if full else 1


def _rows_squared(shapes: Sequence[Shape], bound: Bound) -> int:
    return math.prod(shapes[0][:-2]) * shapes[0][-2] ** 2


def _columns_squared(shapes: Sequence[Shape], bound: Bound) -> int:
    return math.prod(shapes[0][:-2]) * shapes[0][-1] ** 2


def _where(parameter: str, asks: Any, default: Any, rule: Rule) -> Rule:
    """`rule` where a parameter has that value, or another that means it."""
    return lambda shapes, bound: rule(shapes, bound) if bound.get(parameter, default) == asks else 0


def _both_squared(shapes: Sequence[Shape], bound: Bound) -> int:
    return max(_rows_squared(shapes, bound), _columns_squared(shapes, bound))


def _singular(shapes: Sequence[Shape], bound: Bound) -> int:
    """Both factors whole, if they are wanted."""
    whole = bound.get("full_matrices", True) and bound.get("compute_uv", True)
    return _both_squared(shapes, bound) if whole else 0


def _scipy_singular(shapes: Sequence[Shape], bound: Bound) -> int:
    return max(_singular(shapes, bound), _of_empty(shapes, bound))


def _of_empty(shapes: Sequence[Shape], bound: Bound) -> int:
    """SciPy makes both factors whole of a matrix without elements."""
    return _both_squared(shapes, bound) if 0 in shapes[0][-2:] else 0


def _polar(shapes: Sequence[Shape], bound: Bound) -> int:
    if 0 in shapes[0][-2:]:
        return _both_squared(shapes, bound)
    return (_rows_squared if bound.get("side") == "left" else _columns_squared)(shapes, bound)


def _outer(shapes: Sequence[Shape], bound: Bound) -> int:
    return math.prod(math.prod(shape) for shape in shapes[:2])


def _toeplitz(shapes: Sequence[Shape], bound: Bound) -> int:
    """Of more dimensions than one, some versions of SciPy make one matrix."""
    column = shapes[0]
    row = shapes[1] if len(shapes) > 1 and bound.get("r") is not None else column
    return math.prod(column) * math.prod(row)


def _matmul(shapes: Sequence[Shape], bound: Bound) -> int:
    left, right = shapes[:2]
    rows, columns = (left[-2:-1] or (1,))[0], right[-1] if len(right) > 1 else 1
    return broadcast([left[:-2], right[:-2]], {}) * rows * columns


def _solve(shapes: Sequence[Shape], bound: Bound) -> int:
    """One solution for each right-hand side of each matrix."""
    left, right = shapes[:2]
    return 0 if len(right) < 2 else broadcast([left[:-2], right[:-2]], {}) * right[-2] * right[-1]


def _factored(shapes: Sequence[Shape], bound: Bound) -> int:
    """As `_solve`, of a matrix that stands in a pair."""
    return _solve([shapes[0][1:], *shapes[1:]], bound)


def _column(shapes: Sequence[Shape], bound: Bound) -> int:
    """As `_solve`, of matrices that are given by their columns."""
    return _solve([(*shapes[0], 1), *shapes[1:]], bound)


def _least_squares(shapes: Sequence[Shape], bound: Bound) -> int:
    return shapes[0][-1] * (shapes[1][-1] if len(shapes[1]) > 1 else 1)


def _tensordot(shapes: Sequence[Shape], bound: Bound) -> int:
    pair = listed(bound.get("axes", 2))
    if pair is None:
        count = max(int(bound.get("axes", 2)), 0)
        return math.prod(shapes[0][: max(len(shapes[0]) - count, 0)]) * math.prod(shapes[1][count:])
    made = 1
    for shape, side in zip(shapes, pair, strict=False):
        made *= _without(shape, side)
    return made


def _without(shape: Shape, axes: Any) -> int:
    """Elements along the other axes."""
    gone = {axis % max(len(shape), 1) for axis in _integers(axes)}
    return math.prod(extent for axis, extent in enumerate(shape) if axis not in gone)


def _covariance(shapes: Sequence[Shape], bound: Bound) -> int:
    column = 0 if bound.get("rowvar", True) else -1
    return sum(shape[column] if len(shape) > 1 else 1 for shape in shapes[:2]) ** 2


def _quantiles(shapes: Sequence[Shape], bound: Bound) -> int:
    """As many quantiles as wanted of each line along the axes."""
    wanted, axes = math.prod(shapes[1]), bound.get("axis")
    return wanted if axes is None else wanted * _without(shapes[0], axes)


def _polynomials(shapes: Sequence[Shape], bound: Bound) -> int:
    """Coefficients; of arrays that are none, columns are broadcast against rows."""
    return sum(math.prod(shape) for shape in shapes[:2]) ** 2 if max(map(len, shapes[:2])) > 1 else 0


def _evaluated(shapes: Sequence[Shape], bound: Bound) -> int:
    """A polynomial at each point; coefficients that are arrays are broadcast against the points."""
    return broadcast((shapes[0][1:], shapes[1]), bound)


def _window(shapes: Sequence[Shape], bound: Bound) -> int:
    """Offsets of all elements of a window, for each place where another part of it lies outside."""
    data = shapes[0]
    window = shapes[1] if bound.get("size") is None else (math.ceil(bound["size"]),) * len(data)
    places = math.prod(map(min, zip(data, window, strict=False)))
    return math.prod(window) * max(places, 1)


MAKES: Mapping[str, Rule] = {
    "outer": _outer,
    "tensordot": _tensordot,
    "matmul": _matmul,
    "unpackbits": _unpacked,
    **dict.fromkeys(("cross", "vecdot", "eigh", "eigvalsh"), broadcast),
    **dict.fromkeys(("solve", "solve_triangular"), _solve),
    "gesdd": _where("mode", "A", "A", _both_squared),
    "cho_solve": _factored,
    "solve_toeplitz": _column,
    "lstsq": _least_squares,
    "numpy.linalg.svd": _singular,
    "scipy.linalg.svd": _scipy_singular,
    **dict.fromkeys(("scipy.linalg.svdvals", "scipy.linalg.pinv"), _of_empty),
    "polar": _polar,
    "lu": _where("permute_l", False, False, _rows_squared),
    "numpy.linalg.qr": _where("mode", "complete", "reduced", _rows_squared),
    "scipy.linalg.qr": _where("mode", "full", "full", _rows_squared),
    **dict.fromkeys(("circulant", "toeplitz"), _toeplitz),
    **dict.fromkeys(("corrcoef", "cov"), _covariance),
    **dict.fromkeys(("nanpercentile", "nanquantile", "percentile", "quantile"), _quantiles),
    **dict.fromkeys(("polyadd", "polyder", "polyint"), _polynomials),
    "polyval": _evaluated,
    **dict.fromkeys(("comb", "diric", "perm", "polygamma", "zeta"), broadcast),
    **dict.fromkeys(("h1vp", "h2vp", "ivp", "jvp", "kvp", "yvp"), broadcast),
    **dict.fromkeys(("scipy.ndimage.convolve", "scipy.ndimage.correlate", "median_filter"), _window),
}
"""Elements that a function makes, by its name or its whole name; of others no more than its operands and results have.
Ufuncs make what all arrays broadcast together have."""
