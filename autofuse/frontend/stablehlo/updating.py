"""Scatters of any body: what stands at the places is read, met by the updates, and written back.

Where index vectors may be equal, one update follows another in a loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.frontend.stablehlo.bodies import vectorised
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.ir import dtypes
from autofuse.ir.graph import Graph, Value
from autofuse.ir.ops.scatter import roles_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass


def updated(
    body: Graph,
    arrays: Sequence[Value],
    indices: Value,
    updates: Sequence[Value],
    attrs: Mapping[str, Any],
    emitter: Emitter,
    *,
    unique: bool,
) -> list[Value]:
    """The arrays after updates by any body, in the order of the index vectors. `unique`: no two of these are equal."""
    places, rows = _in_rows(arrays, indices, updates, attrs, emitter)
    count = places.indices.type.shape[0]
    if count == 0 or any(0 in value.type.shape for value in (*arrays, *rows)):
        return list(arrays)
    if unique or count == 1:
        return places.combined(body, arrays, rows, emitter)
    return _one_after_another(body, arrays, places, rows, emitter)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where windows lie in arrays of one shape: a row of indices for each."""

    indices: Value
    """`[windows, components]`."""
    index_map: tuple[int, ...]
    """The dimension of the arrays that each component is about."""
    extents: tuple[int, ...]
    """Of a window, along all dimensions of the arrays."""
    inserted: tuple[int, ...]
    """Dimensions that updates do not have, as windows have one element along them."""

    def combined(self, body: Graph, arrays: Sequence[Value], rows: Sequence[Value], emitter: Emitter) -> list[Value]:
        """All updates at once: no two windows meet."""
        window = tuple(range(1, rows[0].type.rank))
        held = [self._read(x, window, emitter) for x in arrays]
        made = vectorised(body, emitter, [*held, *rows], rows[0].type.shape)
        attrs = {
            "update_window_dims": window,
            "inserted_window_dims": self.inserted,
            "input_batching_dims": (),
            "scatter_indices_batching_dims": (),
            "scatter_dims_to_operand_dims": self.index_map,
            "index_vector_dim": 1,
            "combiner": "set",
        }
        return [emitter.emit("scatter", x, self.indices, row, **attrs) for x, row in zip(arrays, made, strict=True)]

    def _read(self, x: Value, window: tuple[int, ...], emitter: Emitter) -> Value:
        """What stands in the windows; anything outside of the array.

        A gather moves windows inside, a scatter does not: the array gets margins, so that nothing inside is moved.
        """
        margins = [
            self.extents[d] - 1 if d in self.index_map and self.extents[d] > 1 else 0 for d in range(x.type.rank)
        ]
        indices = self.indices
        if any(margins):
            zero = emitter.scalar(0, x.type.dtype)
            none = (0,) * x.type.rank
            edges = tuple(margins)
            x = emitter.emit("pad", x, zero, edge_padding_low=edges, edge_padding_high=edges, interior_padding=none)
            shifts = [emitter.full(margins[d], TensorType((1,), indices.type.dtype)) for d in self.index_map]
            shift = emitter.emit("concatenate", *shifts, dimension=0)
            indices = emitter.emit("add", indices, emitter.along(shift, 1, indices.type.shape))
        return emitter.emit(
            "gather",
            x,
            indices,
            offset_dims=window,
            collapsed_slice_dims=self.inserted,
            operand_batching_dims=(),
            start_indices_batching_dims=(),
            start_index_map=self.index_map,
            index_vector_dim=1,
            slice_sizes=self.extents,
        )


def _in_rows(
    arrays: Sequence[Value], indices: Value, updates: Sequence[Value], attrs: Mapping[str, Any], emitter: Emitter
) -> tuple[_Places, list[Value]]:
    """Index vectors and updates in rows; dimensions of batches are components of the index vectors."""
    rank = arrays[0].type.rank
    roles = roles_of(attrs, rank, indices.type.rank)
    lead = roles.indices_dims
    outer = tuple(indices.type.shape[d] for d in lead)
    count = math.prod(outer)
    if roles.index_vector_dim < indices.type.rank:
        indices = emitter.emit("transpose", indices, permutation=(*lead, roles.index_vector_dim))
    components = [emitter.emit("reshape", indices, shape=(count, len(roles.index_map)))]
    for at in roles.indices_batching:
        number = emitter.emit("iota", shape=outer, dtype=dtypes.I64, iota_dimension=lead.index(at))
        components.append(emitter.emit("reshape", emitter.converted(number, indices.type.dtype), shape=(count, 1)))
    joined = emitter.emit("concatenate", *components, dimension=1) if len(components) > 1 else components[0]
    sizes = updates[0].type.shape
    extents = dict(zip(roles.window_operand, (sizes[d] for d in roles.window), strict=True))
    places = _Places(
        joined,
        (*roles.index_map, *roles.operand_batching),
        tuple(extents.get(d, 1) for d in range(rank)),
        tuple(d for d in range(rank) if d not in extents),
    )
    order = (*roles.batch, *roles.window)
    shape = (count, *(sizes[d] for d in roles.window))
    rows = [emitter.emit("reshape", emitter.emit("transpose", u, permutation=order), shape=shape) for u in updates]
    return places, rows


def _one_after_another(
    body: Graph, arrays: Sequence[Value], places: _Places, rows: Sequence[Value], emitter: Emitter
) -> list[Value]:
    count = places.indices.type.shape[0]
    number = TensorType((), dtypes.I32)
    types = [number, *(x.type for x in arrays)]
    condition, (at, *_) = emitter.region("condition", types)
    goes_on = condition.builder.finish(
        [condition.emit("compare", at, condition.scalar(count, number.dtype), direction="LT")]
    )
    inner, (at, *held) = emitter.region("body", types)
    here = _Places(_row(places.indices, at, inner), places.index_map, places.extents, places.inserted)
    made = here.combined(body, held, [_row(row, at, inner) for row in rows], inner)
    following = inner.emit("add", at, inner.scalar(1, number.dtype))
    regions = (goes_on, inner.builder.finish([following, *made]))
    start = emitter.scalar(0, number.dtype)
    return list(emitter.builder.emit_many("while", [start, *arrays], regions=regions)[1:])


def _row(x: Value, at: Value, emitter: Emitter) -> Value:
    zero = emitter.scalar(0, at.type.dtype)
    starts = [at, *(zero for _ in x.type.shape[1:])]
    return emitter.emit("dynamic_slice", x, *starts, slice_sizes=(1, *x.type.shape[1:]))
