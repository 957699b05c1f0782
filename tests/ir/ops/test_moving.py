"""Ops that move elements: inference errors, iota, scatter and sort against loops. Access rules: ../test_access."""

import math

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir.dtypes import BF16, BOOL, F16, F32, I8, I32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.optable import lookup
from autofuse.ir.types import of_array, parse_type

NAN, INF = math.nan, math.inf


def apply_many(op, *arrays, **attrs):
    builder = GraphBuilder("g")
    values = [builder.input(of_array(x)) for x in arrays]
    return interpret(builder.finish(builder.emit_many(op, values, **attrs)), *arrays)


def apply(op, *arrays, **attrs):
    (result,) = apply_many(op, *arrays, **attrs)
    return result


def test_iota_counts_along_its_dimension():
    assert apply("iota", shape=(2, 3), dtype=I32, iota_dimension=1).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert apply("iota", shape=(2, 3), dtype=F32, iota_dimension=0).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert apply("iota", shape=(130,), dtype=I8, iota_dimension=0)[-1] == -127
    assert apply("iota", shape=(259,), dtype=BF16, iota_dimension=0)[-1] == 258


def test_starts_beyond_i64_are_clamped_too():
    x, huge = np.arange(5, dtype=np.float32), np.array(2**64 - 1, np.uint64)
    assert apply("dynamic_slice", x, huge, slice_sizes=(2,)).tolist() == [3, 4]


def scatter_attrs(**changes):
    return {
        "update_window_dims": (),
        "inserted_window_dims": (0,),
        "input_batching_dims": (),
        "scatter_indices_batching_dims": (),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
        "combiner": "set",
    } | changes


def scatter_reference(x, indices, updates, attrs):
    """The scatter of the StableHLO specification, update by update in row-major order."""
    combine = {
        "set": lambda a, b: b,
        "add": lambda a, b: a + b,
        "multiply": lambda a, b: a * b,
        "minimum": min,
        "maximum": max,
    }[attrs["combiner"]]
    vector_dim, window = attrs["index_vector_dim"], attrs["update_window_dims"]
    full = indices[..., None] if vector_dim == indices.ndim else indices
    indices_dims = [d for d in range(full.ndim) if d != vector_dim]
    batch_dims = [d for d in range(updates.ndim) if d not in window]
    gone = {*attrs["inserted_window_dims"], *attrs["input_batching_dims"]}
    kept = [d for d in range(x.ndim) if d not in gone]
    result = x.copy()
    for point in np.ndindex(*updates.shape):
        vector_at = [point[d] for d in batch_dims]
        vector_at.insert(vector_dim, slice(None))
        vector = full[tuple(vector_at)]
        where = [0] * x.ndim
        for component, d in enumerate(attrs["scatter_dims_to_operand_dims"]):
            where[d] = int(vector[component])
        for d, i in zip(attrs["input_batching_dims"], attrs["scatter_indices_batching_dims"], strict=True):
            where[d] += point[batch_dims[indices_dims.index(i)]]
        for d, target in zip(window, kept, strict=True):
            where[target] += point[d]
        if all(0 <= w < n for w, n in zip(where, x.shape, strict=True)):
            result[tuple(where)] = combine(result[tuple(where)], updates[point])
    return result


@pytest.mark.parametrize("seed", range(60))
def test_scatter(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(1, 5, rank))
    dims = [int(d) for d in rng.permutation(rank)]
    batching = sorted(dims[: rng.integers(0, 2)])
    rest = [d for d in dims if d not in batching]
    index_map = rest[: rng.integers(0, len(rest) + 1)]
    inserted = sorted(d for d in rest if rng.random() < 0.5)
    kept = [d for d in range(rank) if d not in inserted and d not in batching]
    counts = [int(n) for n in rng.integers(1, 4, rng.integers(0, 3))] + [shape[d] for d in batching]
    vector_dim = int(rng.integers(0, len(counts) + 1))
    index_shape = [*counts[:vector_dim], len(index_map), *counts[vector_dim:]]
    partners = [d for d in range(len(index_shape)) if d != vector_dim][len(counts) - len(batching) :]
    total = len(counts) + len(kept)
    window = sorted(int(d) for d in rng.permutation(total)[: len(kept)])
    update_shape = [0] * total
    for d, target in zip(window, kept, strict=True):
        update_shape[d] = int(rng.integers(1, shape[target] + 1))
    for d, n in zip([d for d in range(total) if d not in window], counts, strict=True):
        update_shape[d] = n
    attrs = scatter_attrs(
        update_window_dims=tuple(window),
        inserted_window_dims=tuple(inserted),
        input_batching_dims=tuple(batching),
        scatter_indices_batching_dims=tuple(partners),
        scatter_dims_to_operand_dims=tuple(index_map),
        index_vector_dim=vector_dim,
        combiner=str(rng.choice(["set", "add", "multiply", "minimum", "maximum"])),
    )
    x, updates = (rng.integers(-9, 10, s).astype(np.int64) for s in (shape, update_shape))
    indices = rng.integers(-1, 5, index_shape).astype(np.int32)
    before = x.copy()
    result = apply("scatter", x, indices, updates, **attrs)
    np.testing.assert_array_equal(result, scatter_reference(x, indices, updates, attrs))
    np.testing.assert_array_equal(x, before)


def test_the_last_of_repeated_sets_wins():
    indices, updates = np.zeros((1000, 1), np.int32), np.arange(1000, dtype=np.float32)
    assert apply("scatter", np.zeros(3, np.float32), indices, updates, **scatter_attrs()).tolist() == [999, 0, 0]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_sixteen_bit_scatter_rounds_after_every_update(dtype):
    big = 2.0 ** (12 if dtype is F16 else 9)
    x = np.array([big], dtype.numpy)
    indices, updates = np.zeros((8, 1), np.int32), np.ones(8, dtype.numpy)
    assert apply("scatter", x, indices, updates, **scatter_attrs(combiner="add")).tolist() == [big]


def test_scatter_drops_what_falls_outside_element_by_element():
    x, updates = np.zeros(4, np.float32), np.array([[1, 2, 3]], np.float32)
    attrs = scatter_attrs(update_window_dims=(1,), inserted_window_dims=())
    assert apply("scatter", x, np.array([[2]]), updates, **attrs).tolist() == [0, 0, 1, 2]
    assert apply("scatter", x, np.array([[-1]]), updates, **attrs).tolist() == [2, 3, 0, 0]
    assert apply("scatter", x, np.array([[2**63]], np.uint64), updates, **attrs).tolist() == [0, 0, 0, 0]


def test_of_many_rows_for_one_place_the_last_stays():
    rng = np.random.default_rng(0)
    x, indices = np.zeros((50, 3)), rng.integers(0, 50, 5000)
    updates = rng.standard_normal((5000, 3))
    attrs = scatter_attrs(update_window_dims=(1,))
    expected = x.copy()
    for place, row in zip(indices, updates, strict=True):
        expected[place] = row
    np.testing.assert_array_equal(apply("scatter", x, indices, updates, **attrs), expected)
    one_by_one = apply("scatter", x[:, 0], indices, updates[:, 0], **scatter_attrs())
    np.testing.assert_array_equal(one_by_one, expected[:, 0])


def test_rows_outside_are_dropped():
    x, updates = np.zeros((2, 2)), np.array([[1.0, 2], [3, 4], [5, 6]])
    attrs = scatter_attrs(update_window_dims=(1,))
    assert apply("scatter", x, np.array([2, 1, -1]), updates, **attrs).tolist() == [[0, 0], [3, 4]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64])
def test_adding_one_number_everywhere_wraps(dtype):
    x, indices = np.full(3, 100, dtype), np.array([1] * 400 + [5])
    (result,) = apply_many("scatter", x, indices, np.broadcast_to(dtype(7), 401), **scatter_attrs(combiner="add"))
    expected = x.copy()
    np.add.at(expected, indices[:-1], dtype(7))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("start", [0.0, -0.0, 1.0])
def test_sums_of_f64_are_those_of_one_addition_after_the_other(start):
    rng = np.random.default_rng(0)
    indices, updates = rng.integers(0, 5, 1000), rng.standard_normal(1000)
    indices[indices == 3] = 2
    expected = np.full(5, start)
    np.add.at(expected, indices, updates)
    result = apply("scatter", np.full(5, start), indices, updates, **scatter_attrs(combiner="add"))
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
def test_a_sort_that_need_not_be_stable_is_numpys_own(dtype):
    keys = np.random.default_rng(0).integers(0, 9, (3, 500)).astype(dtype)
    positions = np.broadcast_to(np.arange(500), keys.shape)
    out, order = apply_many("sort", keys, positions, dimension=1, descending=False, stable=False)
    np.testing.assert_array_equal(out, np.sort(keys))
    np.testing.assert_array_equal(np.take_along_axis(keys, order, 1), out)
    if dtype != np.float16:  # which is ordered as f32
        np.testing.assert_array_equal(order, np.argsort(keys))


def test_what_goes_with_the_keys_need_not_count_from_zero():
    keys = np.array([3.0, 1, 2])
    for partner in ([0, 2, 1], [1, 2, 3], [0, 1, 2], [0.0, 1, 2]):
        _, moved = apply_many("sort", keys, np.array(partner), dimension=0, descending=False, stable=True)
        assert moved.tolist() == [partner[i] for i in (1, 2, 0)]


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_sort_puts_nan_last_in_both_directions(dtype):
    x = np.array([2, NAN, -INF, 0.0, INF, -0.0, NAN, 1], dtype.numpy)
    up = apply("sort", x, dimension=0, descending=False, stable=True).astype(np.float32)
    down = apply("sort", x, dimension=0, descending=True, stable=True).astype(np.float32)
    np.testing.assert_array_equal(up, np.array([-INF, 0, 0, 1, 2, INF, NAN, NAN], np.float32))
    np.testing.assert_array_equal(down, np.array([INF, 2, 1, 0, 0, -INF, NAN, NAN], np.float32))
    assert np.signbit(up[1:3]).tolist() == [False, True]
    assert np.signbit(down[3:5]).tolist() == [False, True]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64, np.bool_, np.float64])
def test_sort_keeps_the_order_of_equal_keys(dtype, descending):
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 4, (3, 20)).astype(dtype)
    positions = np.broadcast_to(np.arange(20), keys.shape).copy()
    out, order = apply_many("sort", keys, positions, dimension=1, descending=descending, stable=True)
    for row, found, where in zip(keys, out, order, strict=True):
        key = (lambda i, row=row: -int(row[i])) if descending else (lambda i, row=row: int(row[i]))
        assert where.tolist() == sorted(range(20), key=key)
        np.testing.assert_array_equal(found, row[where])


def test_sort_of_extreme_integers_does_not_overflow():
    x = np.array([-128, 127, 0], np.int8)
    assert apply("sort", x, dimension=0, descending=True, stable=False).tolist() == [127, 0, -128]


GATHER = {
    "offset_dims": (1,),
    "collapsed_slice_dims": (0,),
    "operand_batching_dims": (),
    "start_indices_batching_dims": (),
    "start_index_map": (0,),
    "index_vector_dim": 1,
    "slice_sizes": (1, 4),
}
SLICE = {"start_indices": (0,), "limit_indices": (3,), "strides": (1,)}
PAD = {"edge_padding_low": (0,), "edge_padding_high": (0,), "interior_padding": (0,)}
ERRORS = [
    (
        "iota",
        [],
        {"shape": (2,), "dtype": F32, "iota_dimension": 1},
        "must be a dimension of the result",
    ),
    ("iota", [], {"shape": (2,), "dtype": BOOL, "iota_dimension": 0}, "must have a float or integer dtype"),
    ("iota", [], {"shape": (-2,), "dtype": F32, "iota_dimension": 0}, "shape must have entries >= 0"),
    ("broadcast_in_dim", ["f32[3]"], {"shape": (2, 4), "broadcast_dimensions": (1,)}, "has extent 3.*has 4"),
    ("broadcast_in_dim", ["f32[3]"], {"shape": (3,), "broadcast_dimensions": ()}, "must have 1 entries"),
    ("broadcast_in_dim", ["f32[3,3]"], {"shape": (3, 3), "broadcast_dimensions": (0, 0)}, "not repeat a dimension"),
    ("reshape", ["f32[2,3]"], {"shape": (4, 2)}, r"must hold 6 elements like operand x \(f32\[2,3\]\).*got \(4, 2\)"),
    ("reshape", ["f32[2,3]"], {"shape": (-1, 6)}, "shape must have entries >= 0"),
    ("transpose", ["f32[2,3]"], {"permutation": (0,)}, "permutation must have 2 entries"),
    ("transpose", ["f32[2,3]"], {"permutation": (0, 0)}, "not repeat a dimension"),
    ("slice", ["f32[3]"], SLICE | {"limit_indices": (4,)}, "required is 0 <= start <= limit <= 3.*limit 4"),
    ("slice", ["f32[3]"], SLICE | {"start_indices": (-1,)}, "got start -1"),
    ("slice", ["f32[3]"], SLICE | {"strides": (0,)}, "strides must have entries >= 1"),
    ("slice", ["f32[3,3]"], SLICE, "start_indices must have 2 entries"),
    ("reverse", ["f32[3]"], {"dimensions": (1,)}, "dimensions must be a dimension"),
    ("pad", ["f32[3]", "i32[]"], PAD, r"operand 1 \(the padding value\) must be f32\[\].*got i32\[\]"),
    ("pad", ["f32[3]", "f32[]"], PAD | {"interior_padding": (-1,)}, "interior_padding must have entries >= 0"),
    ("pad", ["f32[3]", "f32[]"], PAD | {"edge_padding_low": (-4,)}, "removes more than operand x"),
    ("concatenate", ["f32[2,3]", "f32[2,4]"], {"dimension": 0}, "operand 1 must equal operand 0"),
    ("concatenate", ["f32[2]", "i32[2]"], {"dimension": 0}, "operand 1 must equal operand 0"),
    ("concatenate", [], {"dimension": 0}, "at least one operand"),
    ("dynamic_slice", ["f32[3]"], {"slice_sizes": (2,)}, "needs 1 start scalars.*got 0"),
    ("dynamic_slice", ["f32[3]", "f32[]"], {"slice_sizes": (2,)}, "operand start_0 must be an integer scalar"),
    ("dynamic_slice", ["f32[3]", "i32[1]"], {"slice_sizes": (2,)}, "operand start_0 must be an integer scalar"),
    ("dynamic_slice", ["f32[3]", "i32[]"], {"slice_sizes": (4,)}, r"slice_sizes\[0\] must lie in 0..3.*got 4"),
    ("dynamic_slice", [], {"slice_sizes": ()}, "needs an operand"),
    ("dynamic_update_slice", ["f32[3]", "f32[4]", "i32[]"], {}, "operand update must fit into operand x"),
    ("dynamic_update_slice", ["f32[3]", "f64[2]", "i32[]"], {}, "operand update must have dtype f32"),
    ("dynamic_update_slice", ["f32[3]", "f32[2]"], {}, "needs 1 start scalars"),
    ("gather", ["f32[3,4]", "f32[2,1]"], GATHER, "operand indices must have an integer dtype"),
    ("gather", ["f32[3,4]", "i32[2,2]"], GATHER, "start_index_map must have 2 entries"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"slice_sizes": (2, 4)}, r"slice_sizes\[0\].*at most 1"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"slice_sizes": (1, 5)}, r"slice_sizes\[1\] must lie in 0..4"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"offset_dims": ()}, "offset_dims must have 1 entries"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"index_vector_dim": 3}, r"index_vector_dim must lie in 0..2"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"start_index_map": (2,)}, "must be a dimension"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"operand_batching_dims": (0,)}, "must not repeat"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"start_indices_batching_dims": (1,)}, "must not hold"),
    ("gather", ["f32[3,4]", "i32[2,1]"], GATHER | {"start_indices_batching_dims": (0,)}, "must have 0 entries"),
    ("scatter", ["f32[3]", "i32[2,1]", "f64[2]"], scatter_attrs(), "operand updates must have dtype f32"),
    ("scatter", ["f32[3]", "i32[2,1]", "f32[2,1]"], scatter_attrs(), "updates must have 1 dimensions"),
    ("scatter", ["f32[3]", "i32[2,1]", "f32[3]"], scatter_attrs(), "must have the extent of dimension 0"),
    ("scatter", ["bool[3]", "i32[2,1]", "bool[2]"], scatter_attrs(combiner="add"), "not defined on bool"),
    (
        "scatter",
        ["f32[3]", "i32[2,1]", "f32[2,4]"],
        scatter_attrs(update_window_dims=(1,), inserted_window_dims=()),
        "must not exceed dimension 0 of operand x",
    ),
    ("sort", ["f32[3]", "f32[2]"], {"dimension": 0, "descending": False, "stable": True}, "shape of the keys"),
    ("sort", ["f32[3]"], {"dimension": 1, "descending": False, "stable": True}, "dimension must be a dimension"),
    ("sort", [], {"dimension": 0, "descending": False, "stable": True}, "at least one operand"),
]


@pytest.mark.parametrize(("op", "operands", "attrs", "message"), ERRORS)
def test_inference_errors(op, operands, attrs, message):
    with pytest.raises(GraphError, match=message):
        lookup(op).infer([parse_type(t) for t in operands], attrs, ())
