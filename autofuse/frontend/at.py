"""`ufunc.at`: a ufunc applied in place at indices, once for each time that an index stands there.

NumPy computes each step in the loop that the two dtypes give, an operand that Python made being strong, and casts what
comes out into the array without asking. Where steps commute with that cast a scatter does all of them at once; the
operand is then rounded to the array's dtype first. Else known indices are taken in rounds of distinct ones, and others,
and those that repeat often, are left to NumPy's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend import integerindexing, subscripts
from autofuse.frontend.dispatch import call, concrete, tracers_in
from autofuse.frontend.promotion import as_tracer, convert
from autofuse.frontend.rolling.ragged import Ragged, put, refused
from autofuse.frontend.selection import MaskedSelection
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.frontend.ufuncs import METHODS
from autofuse.ir.ops.calls import update_target

_SUMS = {"add": "add", "subtract": "add", "multiply": "multiply"}
_EXTREMA = {"maximum": "maximum", "minimum": "minimum"}
_OR: dict[str, str] = dict.fromkeys(("add", "bitwise_or", "logical_or", "maximum"), "maximum")
_AND: dict[str, str] = dict.fromkeys(("multiply", "bitwise_and", "logical_and", "minimum"), "minimum")
_ROUNDS = 8
"""As many rounds are taken over known indices; with more repetitions NumPy's own is the faster program."""


def at(ufunc: np.ufunc, a: Any, indices: Any, *operands: Any) -> None:
    """As `ufunc.at(a, indices, b)`; `b` is absent for ufuncs of one argument."""
    array = as_tracer(a)
    if array.is_scalar:
        raise TypeError("first operand must be array")
    if isinstance(indices, Ragged):
        _at_ragged(ufunc, array, indices, operands)
        return
    given = [as_tracer(operand) for operand in operands]
    # NumPy itself raises for wrong operands, over no index at all
    with np.errstate(all="ignore"):
        ufunc.at(np.ones(1, array.dtype), np.zeros(0, int), *(np.ones(0, operand.dtype) for operand in given))
    index = concrete(indices, lambda tracer: tracer.known()) if _is_known(indices) else indices
    selected = subscripts.getitem(array, index)
    combiner = _combiner(ufunc, array.dtype, [operand.dtype for operand in given])
    if isinstance(selected, MaskedSelection) or not subscripts.parse(array, index).arrays:
        subscripts.setitem(array, index, ufunc(selected, *given))
    elif combiner is not None:
        _scatter(ufunc, array, index, given[0], combiner)
    elif _is_known(index):
        _in_rounds(ufunc, array, np.arange(array.size).reshape(array.shape)[index], given)
    else:
        places = call(np.reshape, call(np.arange, array.size), array.shape)
        _numpys_own(ufunc, array, subscripts.getitem(places, index), given)


METHODS["at"] = at


def _at_ragged(ufunc: np.ufunc, array: TracerArray, index: Ragged, operands: Sequence[Any]) -> None:
    """At indices of which a loop decides how many there are."""
    kinds = [operand.dtype if isinstance(operand, Ragged) else as_tracer(operand).dtype for operand in operands]
    combiner = _combiner(ufunc, array.dtype, kinds)
    if combiner is None or len(operands) != 1:
        raise refused(f"np.{ufunc.__name__}.at")
    value = -operands[0] if ufunc is np.subtract else operands[0]
    put(array, index, value, combiner)


def _is_known(index: Any) -> bool:
    """Whether an index depends on no traced value."""
    return all(tracer.known is not None for tracer in tracers_in(index))


def _combiner(ufunc: np.ufunc, dtype: np.dtype[Any], operands: list[np.dtype[Any]]) -> str | None:
    """The scatter that computes the same; None where steps do not commute with the cast into the array."""
    if len(operands) != 1:
        return None
    name, kind, other = ufunc.__name__, dtype.kind, operands[0].kind
    if kind == "b":
        return _OR.get(name, _AND.get(name)) if other == "b" else None
    loop = ufunc.resolve_dtypes((dtype, operands[0], None), casting="unsafe")
    if name in _SUMS:
        modular = kind in "iu" and loop[0].kind in "iu"
        return _SUMS[name] if modular or kind not in "iu" else None
    return _EXTREMA.get(name) if loop[0] == dtype else None


def _scatter(ufunc: np.ufunc, array: TracerArray, index: Any, operand: TracerArray, combiner: str) -> None:
    value = convert(operand.value, array.dtype)
    if ufunc is np.subtract:
        value = Term(value).op("negate").value
    integerindexing.put_at(*subscripts.split(array, subscripts.parse(array, index)), fresh(value), combiner)


def _flattened(operands: list[TracerArray], shape: tuple[int, ...]) -> list[Any]:
    """The operands' elements in the order of the indices. Raises ValueError where they do not broadcast."""
    return [call(np.reshape, call(np.broadcast_to, operand, shape), (-1,)) for operand in operands]


def _in_rounds(ufunc: np.ufunc, array: TracerArray, places: NDArray[Any], operands: list[TracerArray]) -> None:
    """`places`: positions in the flattened array."""
    updates = _flattened(operands, places.shape)
    flat = places.ravel()
    repetition = _repetitions(flat)
    if flat.size and repetition.max() >= _ROUNDS:
        _numpys_own(ufunc, array, as_tracer(places), operands)
        return
    for number in range(repetition.max() + 1 if flat.size else 0):
        (chosen,) = np.nonzero(repetition == number)
        where = tuple(np.unravel_index(flat[chosen], array.shape))
        subscripts.setitem(array, where, ufunc(subscripts.getitem(array, where), *(u[chosen] for u in updates)))


def _repetitions(places: NDArray[Any]) -> NDArray[Any]:
    """How many times each place has come before."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.searchsorted(ordered, ordered, side="left")
    counts = np.empty(places.size, np.int64)
    counts[order] = np.arange(places.size) - first
    return counts


def _numpys_own(ufunc: np.ufunc, array: TracerArray, places: TracerArray, operands: list[TracerArray]) -> None:
    """As `_in_rounds`, by NumPy's `ufunc.at` itself."""
    elements = call(np.reshape, array, (-1,))
    given = (elements, call(np.reshape, places, (-1,)), *_flattened(operands, places.shape))
    result = current().emit(
        "custom_call",
        [as_tracer(value).value for value in given],
        call_target_name=update_target(ufunc),
        results=(elements.value.type,),
    )
    array[...] = call(np.reshape, fresh(result), array.shape)
