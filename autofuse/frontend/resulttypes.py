"""What a library call returns, learned from small arrays in place of its operands: nothing large is run while tracing.

A call is run twice, on operands whose extents are small stand-ins for theirs, other ones each time. An extent of the
result that is the stand-in of one of theirs both times is that extent; one that is the same both times is a constant;
any other is not known, nor is what differs in dtype or structure. Calls that small operands do not fit (the thousandth
of ten elements) are run once on operands of their own shapes, and transforms on one line of them. Data are harmless:
multiples of the identity, plus a little where they are floats, so that systems have solutions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import CallError, GraphError
from autofuse.ir import types
from autofuse.ir.ops import library_calls
from autofuse.ir.ops.library_checks import LibraryCall, check_parameters, listed
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

_FIRST, _SECOND = (3, 4, 5, 6, 7, 8), (10, 12, 14, 16, 18, 20)
"""Stand-ins of extents, in their order. All differences between the two are different ones, so that an extent plus a
constant, or a sum of two, is taken for no other."""
_MOST_ELEMENTS = 1 << 24
"""Of operands in their own shapes."""
_TRANSFORMS = ("numpy.fft", "scipy.fft")
"""Modules whose functions work on each line of an array."""
_VARYING = frozenset(
    [
        "numpy.histogram_bin_edges",
        "numpy.poly",
        "numpy.polymul",
        "numpy.linalg.eig",
        "numpy.linalg.eigvals",
        "numpy.linalg.lstsq",
        "scipy.linalg.sqrtm",
    ]
)
"""Functions whose results have other types for other values of the same types."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """What a call returns."""

    types: tuple[TensorType, ...]
    pack: Callable[[Sequence[Any]], Any]
    """One value per type as the function returns them: alone, or in its tuple, list or namedtuple."""


def returned_by(target: str, operands: Sequence[TensorType]) -> Returned | None:
    """What a call of a listed function returns for operands of these types; None if that depends on their values.

    Raises ComplexDtypeError for results of longer complex numbers.
    """
    call = library_calls.read(target)
    by_words = call.function.startswith("histogram") and '"bins":"' in target
    if call.label in _VARYING or by_words or any(0 in type_.shape for type_ in operands):
        return None
    if call.module in _TRANSFORMS:
        return _transformed(target, call, operands)
    extents = sorted({extent for type_ in operands for extent in type_.shape if extent > 1})
    found = None
    if len(extents) <= len(_FIRST):
        found = _twice(target, operands, extents)
    if found is None and sum(type_.size for type_ in operands) <= _MOST_ELEMENTS and not _runs(target, operands):
        found = _once(target, operands)
    return found


def _transformed(target: str, call: LibraryCall, operands: Sequence[TensorType]) -> Returned | None:
    """Of a transform: an array of one line along its axes tells how long lines become; other extents stay."""
    shape = operands[0].shape
    taken = {axis % len(shape) for axis in _axes_of(call, len(shape)) if -len(shape) <= axis < len(shape)}
    small = TensorType(tuple(extent if d in taken else 1 for d, extent in enumerate(shape)), operands[0].dtype)
    found = _once(target, [small, *operands[1:]]) if small.size <= _MOST_ELEMENTS else None
    if found is None or len(found.types) != 1 or found.types[0].rank != len(shape):
        return None
    lines = enumerate(zip(found.types[0].shape, shape, strict=True))
    made = tuple(one if d in taken else extent for d, (one, extent) in lines)
    return Returned((TensorType(made, found.types[0].dtype),), found.pack)


def _axes_of(call: LibraryCall, rank: int) -> Sequence[int]:
    """The axes along which a function of `numpy.fft` or `scipy.fft` works."""
    bound = check_parameters(call)
    given = bound.get("axes", bound.get("axis"))
    lengths = listed(bound.get("s"))
    if given is not None:
        return listed(given) or [given]
    if call.function.endswith("2"):
        return (-2, -1)
    if not call.function.endswith(("n", "shift")):
        return (-1,)
    return range(rank) if lengths is None else range(-len(lengths), 0)


def packing(returned: Any) -> Callable[[Sequence[Any]], Any]:
    """How to put values together as in what a function returned."""
    if hasattr(returned, "_fields"):
        return lambda values: type(returned)(*values)
    if isinstance(returned, tuple | list):
        return tuple if isinstance(returned, tuple) else list
    return lambda values: values[0]


def arrays_of(returned: Any) -> list[Array]:
    """All arrays in what a function returned."""
    items = cast("Sequence[Any]", returned) if isinstance(returned, tuple | list) else [returned]
    return [np.asarray(item) for item in items]


def _twice(target: str, operands: Sequence[TensorType], extents: Sequence[int]) -> Returned | None:
    """From stand-ins; None where they do not tell, or do not fit."""
    runs: list[tuple[Any, list[TensorType]]] = []
    for stand_ins in (_FIRST, _SECOND):
        small = dict(zip(extents, stand_ins, strict=False))
        returned = _run(target, operands, small)
        if returned is None:
            return None
        runs.append((returned, [types.of_array(array) for array in arrays_of(returned)]))
    (returned, first), (_, second) = runs
    if [t.dtype for t in first] != [t.dtype for t in second] or [t.rank for t in first] != [t.rank for t in second]:
        return None
    meant = {(a, b): extent for extent, a, b in zip(extents, _FIRST, _SECOND, strict=False)}
    found: list[TensorType] = []
    for one, other in zip(first, second, strict=True):
        pairs = zip(one.shape, other.shape, strict=True)
        shape = [meant.get(pair, pair[0] if pair[0] == pair[1] else -1) for pair in pairs]
        if -1 in shape:
            return None
        found.append(TensorType(tuple(shape), one.dtype))
    return Returned(tuple(found), packing(returned))


def _runs(target: str, operands: Sequence[TensorType]) -> bool:
    """Whether small operands fit the call: it was then their results that did not tell."""
    extents = sorted({extent for type_ in operands for extent in type_.shape if extent > 1})
    return len(extents) <= len(_FIRST) and _run(target, operands, dict(zip(extents, _FIRST, strict=False))) is not None


def _once(target: str, operands: Sequence[TensorType]) -> Returned | None:
    returned = _run(target, operands, {})
    if returned is None:
        return None
    return Returned(tuple(types.of_array(array) for array in arrays_of(returned)), packing(returned))


def _run(target: str, operands: Sequence[TensorType], extents: Mapping[int, int]) -> Any:
    """The call's results, extents replaced; None if it refuses."""
    given = [_data([extents.get(extent, extent) for extent in t.shape], t.dtype.numpy) for t in operands]
    try:
        with np.errstate(all="ignore"):
            return library_calls.resolve(target)(*given)
    except (CallError, GraphError):
        return None


def _data(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    exact = dtype.kind in "iub"  # indices too, so none is large
    if len(shape) < 2:
        return (np.zeros if exact else np.ones)(shape, dtype)
    identity = np.eye(shape[-2], shape[-1])
    return np.broadcast_to(identity if exact else 2 * identity + 0.1, shape).astype(dtype)
