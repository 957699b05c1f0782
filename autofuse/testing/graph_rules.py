"""Rules of random graphs for the ops that few programs use: windows, convolutions, run-time indices, other dtypes."""

from __future__ import annotations

import numpy as np

from autofuse.ir import dtypes
from autofuse.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, DType
from autofuse.ir.graph import Value
from autofuse.testing.grower import Grower

_INTEGERS = (dtypes.I8, dtypes.I16, dtypes.I32, dtypes.I64, dtypes.U8, dtypes.U16, dtypes.U32, dtypes.U64)


def cumulative(grower: Grower) -> None:
    """A running fold; a product only of what stays small."""
    x = grower.pick(least_rank=1)
    axis = grower.below(x.type.rank)
    names = ["add", "maximum", "minimum", *(["multiply"] if grower.bound(x) <= 1 else [])]
    combiner = grower.one_of(names)
    bound = grower.bound(x) * (max(1, x.type.shape[axis]) if combiner == "add" else 1)
    grower.emit("cumulative", [x], bound, dimension=axis, combiner=combiner, reverse=grower.chance(0.3))


def window(grower: Grower) -> None:
    """A pooling. A greatest or least value is only asked of windows that hold an element."""
    x = grower.pick(least_rank=1)
    if 0 in x.type.shape:
        return
    combiner = grower.one_of(("add", "maximum", "minimum"))
    holes = combiner == "add"
    rank = range(x.type.rank)
    extents = [1 + grower.below(min(3, n)) for n in x.type.shape]
    dilations = [grower.one_of((1, 1, 2)) if holes else 1 for _ in rank]
    bases = [grower.one_of((1, 1, 1, 2)) if holes else 1 for _ in rank]
    padding = [(grower.below(w), grower.below(w)) for w in extents]
    if holes and grower.chance(0.2):
        padding = [(-1, lo) if n > 1 else (hi, lo) for n, (hi, lo) in zip(x.type.shape, padding, strict=True)]
    grower.emit(
        "reduce_window",
        [x],
        grower.bound(x) * (int(np.prod(extents)) if holes else 1),
        window_dimensions=tuple(extents),
        window_strides=tuple(grower.one_of((1, 1, 2)) for _ in rank),
        base_dilations=tuple(bases),
        window_dilations=tuple(dilations),
        padding=tuple(padding),
        combiner=combiner,
    )


def contraction(grower: Grower) -> None:
    """A dot over random dimensions in a random layout."""
    x = grower.pick(least_rank=1)
    roles = [grower.one_of(("batch", "contract", "free", "contract", "free")) for _ in range(x.type.rank)]
    batch = [d for d, role in enumerate(roles) if role == "batch"]
    contract = [d for d, role in enumerate(roles) if role == "contract"]
    shared = [*batch, *contract]
    extents = [x.type.shape[d] for d in shared] + [grower.one_of(grower.extents) for _ in range(grower.below(3))]
    order = [int(n) for n in grower.rng.permutation(len(extents))]
    y = grower.pick(shape=tuple(extents[n] for n in order))
    where = [order.index(n) for n in range(len(shared))]
    depth = int(np.prod([x.type.shape[d] for d in contract]))
    grower.emit(
        "dot_general",
        [x, y],
        grower.bound(x) * grower.bound(y) * max(depth, 1),
        lhs_batching_dimensions=tuple(batch),
        rhs_batching_dimensions=tuple(where[: len(batch)]),
        lhs_contracting_dimensions=tuple(contract),
        rhs_contracting_dimensions=tuple(where[len(batch) :]),
    )


def convolution(grower: Grower) -> None:
    """A convolution in random layouts, now and then in groups."""
    x = grower.pick(least_rank=2)
    rank = x.type.rank
    spatial = rank - 2
    lhs, rhs, out = ([int(d) for d in grower.rng.permutation(rank)] for _ in range(3))
    features = x.type.shape[lhs[1]]
    groups = grower.one_of([n for n in range(1, features + 1) if features % n == 0] or [1])
    groups = groups if grower.chance(0.3) else 1
    batch_groups = x.type.shape[lhs[0]] if groups == 1 and x.type.shape[lhs[0]] > 1 and grower.chance(0.15) else 1
    window_shape = [1 + grower.below(3) for _ in range(spatial)]
    kernel = [groups * batch_groups * (1 + grower.below(3)), features // groups, *window_shape]
    shape = [0] * rank
    for extent, d in zip(kernel, rhs, strict=True):
        shape[d] = extent
    y = grower.pick(shape=tuple(shape))
    low = 0 if 0 in x.type.shape else -1
    depth = max(1, kernel[1] * int(np.prod(window_shape)))
    grower.emit(
        "convolution",
        [x, y],
        grower.bound(x) * grower.bound(y) * depth,
        window_strides=tuple(grower.one_of((1, 1, 2)) for _ in range(spatial)),
        padding=tuple((grower.one_of((0, 1, 2)), grower.one_of((0, low, 1))) for _ in range(spatial)),
        lhs_dilation=tuple(grower.one_of((1, 1, 1, 2)) for _ in range(spatial)),
        rhs_dilation=tuple(grower.one_of((1, 1, 2)) for _ in range(spatial)),
        input_batch_dimension=lhs[0],
        input_feature_dimension=lhs[1],
        input_spatial_dimensions=tuple(lhs[2:]),
        kernel_output_feature_dimension=rhs[0],
        kernel_input_feature_dimension=rhs[1],
        kernel_spatial_dimensions=tuple(rhs[2:]),
        output_batch_dimension=out[0],
        output_feature_dimension=out[1],
        output_spatial_dimensions=tuple(out[2:]),
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )


def update(grower: Grower) -> None:
    """A block written at run-time positions."""
    x = grower.pick(least_rank=1)
    part = grower.pick(shape=tuple(n and 1 + grower.below(n) for n in x.type.shape))
    starts = [grower.pick(I32, ()) for _ in x.type.shape]
    grower.emit("dynamic_update_slice", [x, part, *starts], max(grower.bound(x), grower.bound(part)))


def windows_at(grower: Grower) -> None:
    """Windows gathered at index vectors."""
    x = grower.pick(least_rank=1)
    if 0 in x.type.shape:
        return
    rank = x.type.rank
    mapped = [int(d) for d in grower.rng.permutation(rank)[: 1 + grower.below(rank)]]
    collapsed = sorted(d for d in range(rank) if d in mapped and grower.chance(0.5))
    sizes = [1 if d in collapsed else 1 + grower.below(n) for d, n in enumerate(x.type.shape)]
    counts = list(grower.shape(grower.below(3)))
    vector = len(counts) if len(mapped) == 1 and grower.chance(0.5) else grower.below(len(counts) + 1)
    shape = list(counts)
    if len(mapped) > 1 or vector < len(counts):
        shape.insert(vector, len(mapped))
    indices = grower.pick(I32, tuple(shape))
    result = len(counts) + rank - len(collapsed)
    offsets = sorted(int(d) for d in grower.rng.permutation(result)[: rank - len(collapsed)])
    grower.emit(
        "gather",
        [x, indices],
        grower.bound(x),
        offset_dims=tuple(offsets),
        collapsed_slice_dims=tuple(collapsed),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=tuple(mapped),
        index_vector_dim=vector,
        slice_sizes=tuple(sizes),
    )


def scatter_rows(grower: Grower) -> None:
    """Rows added at an index vector; those out of bounds are dropped."""
    x = grower.pick(least_rank=1)
    rows = grower.pick(I32, grower.shape(1))
    updates = grower.pick(shape=(*rows.type.shape, *x.type.shape[1:]))
    combiner = grower.one_of(("set", "add", "maximum"))
    count = rows.type.size if combiner == "add" else 1
    grower.emit(
        "scatter",
        [x, rows, updates],
        grower.bound(x) + max(1, count) * grower.bound(updates),
        update_window_dims=tuple(range(1, updates.type.rank)),
        inserted_window_dims=(0,),
        input_batching_dims=(),
        scatter_indices_batching_dims=(),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        combiner=combiner,
    )


def sort(grower: Grower) -> None:
    """Of an input: rounding before it would be no fair test."""
    found = [value for value in grower.inputs if value.type.rank]
    if found:
        x = grower.one_of(found)
        grower.emit("sort", [x], 8, dimension=grower.below(x.type.rank), descending=grower.chance(0.5), stable=True)


def change_dtype(grower: Grower) -> None:
    """Go on in another float dtype."""
    x = grower.pick()
    grower.dtype = grower.one_of((F16, BF16, F32, F64))
    if x.type.dtype != grower.dtype:
        grower.emit("convert", [x], grower.bound(x), dtype=grower.dtype)


def from_integer(grower: Grower) -> None:
    """A small integer of any width as a float."""
    dtype = grower.one_of(_INTEGERS)
    x = grower.pick(dtype)
    seven = grower.builder.constant(np.array(7, dtype.numpy))
    mask = grower.emit("broadcast_in_dim", [seven], 7, shape=x.type.shape, broadcast_dimensions=())
    grower.emit("convert", [grower.emit("and", [x, mask], 7)], 7, dtype=grower.dtype)


def integers(grower: Grower) -> None:
    """Integer arithmetic of any width; what overflows wraps."""
    x = grower.pick(grower.one_of(_INTEGERS))
    y = grower.pick(x.type.dtype, x.type.shape)
    names = ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder")
    more = ("power", "shift_left", "shift_right_arithmetic", "shift_right_logical")
    result = grower.emit(grower.one_of((*names, *more)), [x, y], 8)
    if grower.chance(0.5):
        grower.emit(grower.one_of(("not", "popcnt", "abs", "sign", "count_leading_zeros", "negate")), [result], 8)
    if grower.chance(0.4):
        grower.emit("convert", [result], 8, dtype=grower.one_of(_INTEGERS))


def fold_integers(grower: Grower) -> None:
    """Folds that are exact: sums that wrap, greatest values, bits, positions, products of matrices."""
    dtype = grower.one_of(_INTEGERS)
    x = grower.pick(dtype, least_rank=1)
    axis = grower.below(x.type.rank)
    if x.type.shape[axis] == 0:
        return
    match grower.below(5):
        case 0:
            combiner = grower.one_of(("add", "multiply", "minimum", "maximum", "and", "or"))
            grower.emit("reduce", [x], 8, dimensions=(axis,), combiner=combiner)
        case 1:
            grower.emit("cumulative", [x], 8, dimension=axis, combiner="add", reverse=grower.chance(0.5))
        case 2:
            op = grower.one_of(("argmin", "argmax"))
            grower.emit(op, [x], 8, dimension=axis, dtype=grower.one_of((dtypes.I32, dtypes.I64)))
        case 3:
            _matrix_product(grower, x, axis, dtype)
        case _:
            pad = grower.builder.constant(np.array(3, dtype.numpy))
            edges = tuple(grower.below(2) for _ in x.type.shape)
            none = tuple(0 for _ in x.type.shape)
            grower.emit("pad", [x, pad], 8, edge_padding_low=edges, edge_padding_high=none, interior_padding=none)


def _matrix_product(grower: Grower, x: Value, axis: int, dtype: DType) -> None:
    y = grower.pick(dtype, (x.type.shape[axis], grower.one_of(grower.extents)))
    grower.emit(
        "dot_general",
        [x, y],
        8,
        lhs_batching_dimensions=(),
        rhs_batching_dimensions=(),
        lhs_contracting_dimensions=(axis,),
        rhs_contracting_dimensions=(0,),
    )


def logic(grower: Grower) -> None:
    """Truth values: combined, folded, chosen by, counted."""
    x = grower.pick(BOOL)
    match grower.below(5):
        case 0:
            grower.emit("not", [x], 1)
        case 1:
            name = grower.one_of(("and", "or", "xor", "maximum", "minimum", "add", "multiply"))
            grower.emit(name, [x, grower.pick(BOOL, x.type.shape)], 1)
        case 2 if x.type.rank:
            combiner = grower.one_of(("and", "or", "maximum", "minimum"))
            axis = grower.below(x.type.rank)
            if x.type.shape[axis] or combiner in ("and", "or"):
                grower.emit("reduce", [x], 1, dimensions=(axis,), combiner=combiner)
        case 3:
            a, b = (grower.pick(shape=x.type.shape) for _ in range(2))
            grower.emit("select", [x, a, b], max(grower.bound(a), grower.bound(b)))
        case _:
            grower.emit("convert", [x], 1, dtype=grower.dtype)


def test_float(grower: Grower) -> None:
    """A decision by a float input."""
    x = grower.one_of([value for value in grower.inputs if value.type.dtype.is_float])
    if grower.chance(0.3):
        grower.emit("is_finite", [x], 1)
    else:
        zero = grower.builder.constant(np.array(0.25, x.type.dtype.numpy))
        spread = grower.emit("broadcast_in_dim", [zero], 1, shape=x.type.shape, broadcast_dimensions=())
        grower.emit("compare", [x, spread], 1, direction=grower.one_of(("LT", "GE", "NE")))
