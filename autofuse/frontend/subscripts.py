"""Indexing: `x[...]` read, written, and updated in place.

Integers, slices, None and Ellipsis make views. Integer arrays gather and scatter, negative indices counted from the
end. A traced boolean mask has a data-dependent count: it can be assigned through, and read into arithmetic that ends in
such an assignment (`x[m] += 1`), but not turned into an array.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from autofuse.frontend import integerindexing
from autofuse.frontend.basicindex import basic_steps, moves
from autofuse.frontend.cells import same_place
from autofuse.frontend.dispatch import FUNCTIONS, tracers_in
from autofuse.frontend.layouts import taken
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, broadcast, convert, value_of
from autofuse.frontend.rolling.numbers import Number, is_integer_of_the_run, whole_number
from autofuse.frontend.rolling.positions import run_of
from autofuse.frontend.rolling.ragged import Ragged, looked_up, put
from autofuse.frontend.rolling.ragged import taken as taken_at
from autofuse.frontend.rolling.windows import Span, Spread, held
from autofuse.frontend.selection import MaskedSelection
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import innermost_fork
from autofuse.frontend.tracer import TracerArray, element, fresh, view, write
from autofuse.lazydataclass import dataclass

_NO_ARRAYS = slice | Spread | bool | int | np.generic | MaskedSelection
"""Items of an index that are no arrays."""


@dataclass(frozen=True)
class Parsed:
    """An index, one entry per dimension of the operand or new axis."""

    entries: tuple[Any, ...]
    """`slice`, `int`, None (new axis), a 0-d traced integer, or an integer array (traced, or NumPy where known)."""
    keeps_array: bool
    """Whether an Ellipsis was written: the result of rank 0 is then an array, not a scalar."""
    copies: bool
    """Whether an integer is an array of rank 0: NumPy then copies, as for any array."""

    @property
    def is_element(self) -> bool:
        """Whether it is an integer for each dimension, which NumPy sets to a scalar, never to an array of one."""
        whole = not (self.keeps_array or self.arrays)
        return whole and not any(entry is None or isinstance(entry, slice) for entry in self.entries)

    @property
    def arrays(self) -> tuple[Any, ...]:
        return tuple(entry for entry in self.entries if _is_array(entry))


def getitem(x: TracerArray, index: Any) -> Any:
    """`x[index]`."""
    mask = _whole_mask(x, index)
    if mask is not None:
        return MaskedSelection(x, mask)
    if isinstance(index, Ragged):
        return looked_up(x, index)
    parsed = parse(x, index)
    if parsed.arrays:
        target, dims, arrays, place = split(x, parsed)
        result = integerindexing.take_at(target, dims, arrays, place)
        items = dict(zip(dims, map(_layout, arrays), strict=True))
        index = [items.get(d, slice(None)) for d in range(target.ndim)]
        result.cell.layout = taken(target.cell.layout, index, result.shape)
        return result
    spans = _spans(x.shape, parsed)
    if spans:
        return _ragged(x, parsed, spans)
    result = view(x, *basic_steps(x.shape, parsed.entries))
    if not result.ndim and not parsed.keeps_array:
        return element(result.cell)
    return result.copy() if parsed.copies else result


def setitem(x: TracerArray, index: Any, value: Any) -> None:
    """`x[index] = value`."""
    if x.is_scalar:
        raise TypeError(f"a NumPy scalar ({x.dtype}) does not support item assignment")
    mask = _whole_mask(x, index)
    if mask is not None:
        _assign_masked(x, mask, value)
        return
    if isinstance(index, Ragged):
        put(x, index, value)
        return
    if isinstance(value, MaskedSelection):
        raise value.unsupported("assigning it to other elements than it was taken from")
    parsed = parse(x, index)
    if parsed.arrays:
        integerindexing.put_at(*split(x, parsed), value, "set")
        return
    spans = _spans(x.shape, parsed)
    if spans:
        ragged = _ragged(x, parsed, spans)
        if not (isinstance(value, Ragged) and same_place(value.array.cell, ragged.array.cell)):
            ragged.assign(value)
        return
    target = view(x, *basic_steps(x.shape, parsed.entries))
    if parsed.is_element and np.ndim(value):
        raise ValueError("setting an array element with a sequence.")
    assign(target, value)


FUNCTIONS["getitem"] = getitem
FUNCTIONS["setitem"] = setitem


def assign(target: TracerArray, value: Any) -> None:
    """Set all elements of `target`, converting and broadcasting as an assignment does."""
    if isinstance(value, TracerArray) and same_place(value.cell, target.cell):
        return
    new = value_of(value, target.dtype)
    while new.type.rank > target.ndim and new.type.shape[0] == 1:
        new = fresh(new).reshape(new.type.shape[1:]).value
    write(TracerArray(target.cell), broadcast(new, target.shape), "assignment to an index")


def parse(x: TracerArray, index: Any) -> Parsed:
    """Bring an index to one entry per dimension. Raises IndexError as NumPy does."""
    given = cast("tuple[Any, ...]", index) if isinstance(index, tuple) else (index,)
    _check_masks(x.shape, given)
    entries: list[Any] = []
    for item in given:
        entries.extend(_entries(item))
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    ellipses = sum(entry is Ellipsis for entry in entries)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > x.ndim:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {used} were indexed")
    fill = [slice(None)] * (x.ndim - used)
    if ellipses:
        at = next(position for position, entry in enumerate(entries) if entry is Ellipsis)
        entries[at : at + 1] = fill
    else:
        entries.extend(fill)
    return Parsed(tuple(entries), bool(ellipses), any(map(_is_array_of_rank_0, given)))


def _check_masks(shape: tuple[int, ...], items: Sequence[Any]) -> None:
    """Raise IndexError, as NumPy does, for a mask whose shape is not that of the dimensions it stands for."""
    masks = [_mask_shape(item) for item in items]
    used = [
        0 if item is None or item is Ellipsis else 1 if mask is None else len(mask)
        for item, mask in zip(items, masks, strict=True)
    ]
    dimension = 0
    for item, mask, count in zip(items, masks, used, strict=True):
        if mask is not None and mask != (0,) and mask != shape[dimension : dimension + count]:
            raise IndexError(
                f"boolean index did not match indexed array: it has shape {mask}, the array"
                f" {shape[dimension : dimension + count]} there"
            )
        dimension += len(shape) - sum(used) if item is Ellipsis else count


def _mask_shape(item: Any) -> tuple[int, ...] | None:
    """The shape of a boolean array; None for anything else."""
    if item is None or item is Ellipsis or isinstance(item, _NO_ARRAYS):
        return None
    dtype, shape = (item.dtype, item.shape) if isinstance(item, TracerArray) else _of_array(item)
    return shape if dtype == np.bool_ else None


def _of_array(item: Any) -> tuple[Any, tuple[int, ...]]:
    if any(True for _ in tracers_in(item)):
        return None, ()
    array = np.asarray(item)
    return array.dtype, array.shape


def _entries(item: Any) -> list[Any]:
    """One item of an index as entries: a known boolean array becomes one integer array per dimension."""
    if item is None or item is Ellipsis or isinstance(item, Spread):
        return [item]
    if isinstance(item, slice):
        return [_static_slice(item)]
    if isinstance(item, bool | np.bool_):
        raise trace_error("a bool as an index cannot be traced", "np.where, or x[None] if you want a new axis")
    if isinstance(item, MaskedSelection):
        raise item.unsupported("using it as an index")
    return _array_entries(item)


def _array_entries(item: Any) -> list[Any]:
    if not isinstance(item, TracerArray) and not any(True for _ in tracers_in(item)):
        known: Any = np.asarray(item)
        tracer = None
    else:
        tracer = as_tracer(item)
        found = tracer.known
        known = None if found is None else found()
    kind = (known if tracer is None else tracer).dtype.kind
    if kind == "b":
        if known is None:
            raise _mask_error("a traced boolean mask cannot be combined with other indices")
        return list(np.nonzero(known))
    empty = known is not None and known.size == 0
    if kind not in "iu" and not empty:
        raise IndexError("an index is made of integers, slices, None, Ellipsis, and integer or boolean arrays")
    if known is not None:
        return [operator.index(known[()])] if known.ndim == 0 else [known.astype(np.int64)]
    return [tracer]


def _static_slice(item: slice) -> slice:
    parts: list[int | None] = []
    for part in (item.start, item.stop, item.step):
        if isinstance(part, Number):
            parts.append(part)  # pyright: ignore[reportArgumentType]  # a slice of places that move with a loop
            continue
        if is_integer_of_the_run(part) and innermost_fork() is not None:
            parts.append(whole_number(part))  # pyright: ignore[reportArgumentType]
            continue
        if isinstance(part, TracerArray) and part.known is None:
            raise trace_error(
                "a slice bound is a traced value, so the shape of the result would depend on data",
                "a Python int for the bound, or x[i + np.arange(n)] for a window of static length n",
            )
        parts.append(None if part is None else operator.index(part))
    return slice(*parts)


def _mask_error(problem: str) -> Exception:
    return trace_error(
        problem, "np.where(mask, a, b) for elementwise choice, x[mask] = value to write, (x * mask).sum() to reduce"
    )


def _whole_mask(x: TracerArray, index: Any) -> TracerArray | None:
    """The mask, if the index is one traced boolean array whose values are not known."""
    if isinstance(index, tuple) and len(cast("tuple[Any, ...]", index)) == 1:
        (index,) = cast("tuple[Any]", index)
    if not isinstance(index, TracerArray) or index.dtype != np.bool_ or index.known is not None:
        return None
    if index.shape != x.shape[: index.ndim]:
        raise IndexError(f"boolean index has shape {index.shape} but the array has shape {x.shape}")
    return index


def _assign_masked(x: TracerArray, mask: TracerArray, value: Any) -> None:
    """`x[mask] = value` as a select."""
    wide = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    if isinstance(value, MaskedSelection):
        value.require_same_mask(mask)
        new = value.full
    else:
        new = as_tracer(value)
        rest = x.ndim - mask.ndim
        while new.ndim > rest and new.shape[0] == 1:
            new = new.reshape(new.shape[1:])
        if new.ndim > rest:
            raise _mask_error(f"x[mask] = values of shape {new.shape}: how many are taken depends on the mask")
    chosen = Term(broadcast(convert(new.value, x.dtype), x.shape))
    where = Term(broadcast(wide.value, x.shape))
    write(x, where.select(chosen, Term(x.value)).value, "assignment through a mask")


def _spans(shape: tuple[int, ...], parsed: Parsed) -> dict[int, tuple[Any, Span]]:
    """By position of an entry, of slices whose length depends on the iteration: windows and spans."""
    found: dict[int, tuple[Any, Span]] = {}
    extents = iter(shape)
    for place, entry in enumerate(parsed.entries):
        extent = 0 if entry is None else next(extents)
        if isinstance(entry, slice) and moves(entry):
            run = run_of(entry, extent)
            if isinstance(run.count, Number):
                found[place] = held(run, extent)
    return found


def _ragged(x: TracerArray, parsed: Parsed, spans: Mapping[int, tuple[Any, Span]]) -> Ragged:
    return taken_at(lambda entries: view(x, *basic_steps(x.shape, entries)), parsed.entries, spans)


def split(x: TracerArray, parsed: Parsed) -> tuple[TracerArray, list[int], list[Any], int]:
    """An index with arrays as (view by the basic entries, dimensions indexed by arrays, arrays, where results go)."""
    basic: list[Any] = []
    dims: list[int] = []
    arrays: list[Any] = []
    places: list[int] = []
    for position, entry in enumerate(parsed.entries):
        if entry is None or isinstance(entry, slice):
            basic.append(entry)
            continue
        dims.append(len(basic))
        places.append(position)
        arrays.append(entry)
        basic.append(slice(None))
    adjacent = places == list(range(places[0], places[-1] + 1))
    target = view(x, *basic_steps(x.shape, basic))
    return target, dims, arrays, dims[0] if adjacent else 0


def _layout(item: Any) -> Any:
    """The layout of an array that is an index; of an integer a position that exists."""
    if isinstance(item, TracerArray):
        return item.cell.layout
    return item if isinstance(item, np.ndarray) else 0


def _is_array_of_rank_0(item: Any) -> bool:
    of_array = isinstance(item, np.ndarray) or (isinstance(item, TracerArray) and not item.is_scalar)
    return of_array and not item.ndim


def _is_array(entry: Any) -> bool:
    return isinstance(entry, np.ndarray) or (isinstance(entry, TracerArray) and entry.ndim > 0)
