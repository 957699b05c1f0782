"""Which axes are the same loop: extents of the factors of each value, and who shares them."""

import pytest

from autofuse.errors import LegalityError
from autofuse.fusion import dimensions
from autofuse.fusion.dimensions import Dimensions
from autofuse.fusion.nodeaxes import dot_axes
from autofuse.testing.sketches import Sketch


@pytest.fixture
def sketch():
    return Sketch("sketch")


def dims_of(sketch, *outputs, **options):
    graph = sketch.finish(outputs)
    return graph, Dimensions(graph.nodes, **options)


def extents(dims, use):
    return [[dims.extent(factor) for factor in axis] for axis in dims.axes(use)]


def test_elementwise_ops_share_all_axes(sketch):
    x, y = sketch.arg("f32[8,4]"), sketch.arg("f32[8,4]", "y")
    total = sketch.op("add", x, y)
    graph, dims = dims_of(sketch, total)
    node = graph.producers[total]
    assert dims.axes(total) == dims.axes(dims.use(node, 0)) == dims.axes(dims.use(node, 1))
    assert extents(dims, total) == [[8], [4]]


def test_axes_of_extent_one_have_no_atoms(sketch):
    total = sketch.op("tanh", sketch.arg("f32[1,8]"))
    _, dims = dims_of(sketch, total)
    assert extents(dims, total) == [[], [8]]


def test_a_broadcast_ties_the_axes_it_keeps(sketch):
    row = sketch.arg("f32[4]")
    like = sketch.arg("f32[8,4]", "like")
    wide = sketch.broadcast(row, like, 1)
    graph, dims = dims_of(sketch, wide)
    assert dims.axes(dims.use(graph.producers[wide], 0)) == (dims.axes(wide)[1],)


def test_a_reduction_ties_the_axes_it_keeps(sketch):
    x = sketch.arg("f32[8,4,2]")
    total = sketch.reduce(x, 1)
    graph, dims = dims_of(sketch, total)
    first, _, last = dims.axes(dims.use(graph.producers[total], 0))
    assert dims.axes(total) == (first, last)


def test_a_reshape_splits_axes_until_both_sides_agree(sketch):
    x = sketch.op("exp", sketch.arg("f32[8,128,256]"))
    split = sketch.reshape(x, 8, 128, 4, 64)
    _, dims = dims_of(sketch, split)
    assert extents(dims, x) == [[8], [128], [4, 64]]
    assert extents(dims, split) == [[8], [128], [4], [64]]
    assert dims.factors(x) == dims.factors(split)


def test_reshapes_in_both_directions_meet_in_the_middle(sketch):
    x = sketch.op("exp", sketch.arg("f32[6,4]"))
    flat = sketch.reshape(x, 24)
    other = sketch.reshape(flat, 2, 12)
    _, dims = dims_of(sketch, other)
    assert extents(dims, x) == [[2, 3], [4]]
    assert extents(dims, flat) == [[2, 3, 4]]
    assert extents(dims, other) == [[2], [3, 4]]


def test_extents_that_do_not_divide_stay_apart(sketch):
    x = sketch.op("exp", sketch.arg("f32[4,6]"))
    other = sketch.reshape(x, 6, 4)
    _, dims = dims_of(sketch, other)
    # neither of the fastest axes, 6 and 4, divides the other
    assert dims.factors(x).isdisjoint(dims.factors(other))
    assert not dims.has_conflict()


def test_a_reshape_of_nothing_ties_nothing(sketch):
    x = sketch.op("exp", sketch.arg("f32[0,6]"))
    other = sketch.reshape(x, 3, 0)
    _, dims = dims_of(sketch, other)
    assert extents(dims, other) == [[3], [0]]


def test_a_slice_ties_only_the_axes_it_walks_whole(sketch):
    x = sketch.arg("f32[8,4]")
    part = sketch.emit("slice", [x], start_indices=(2, 0), limit_indices=(6, 4), strides=(1, 1))
    graph, dims = dims_of(sketch, part)
    rows, columns = dims.axes(dims.use(graph.producers[part], 0))
    assert columns == dims.axes(part)[1]
    assert rows != dims.axes(part)[0]


def test_two_uses_of_one_input_share_axes_unless_they_are_told_apart(sketch):
    x = sketch.arg("f32[8,4]")
    both = [sketch.op("exp", x), sketch.op("tanh", x)]
    graph, tied = dims_of(sketch, *both)
    assert tied.axes(both[0]) == tied.axes(both[1])
    free = Dimensions(graph.nodes, ())
    assert free.factors(both[0]).isdisjoint(free.factors(both[1]))


def test_each_reader_of_an_iota_has_axes_of_its_own(sketch):
    x, y = sketch.arg("f32[8,8]"), sketch.arg("f32[8,8]", "y")
    rows = sketch.emit("iota", shape=(8, 8), dtype=x.type.dtype, iota_dimension=0)
    first, second = sketch.op("add", x, rows), sketch.op("add", y, rows)
    _, dims = dims_of(sketch, first, second)
    assert dims.factors(first).isdisjoint(dims.factors(second))


def test_x_plus_its_transpose_is_a_conflict(sketch):
    x = sketch.arg("f32[8,8]")
    mixed = sketch.op("add", x, sketch.transpose(x))
    graph, dims = dims_of(sketch, mixed)
    assert dims.has_conflict()
    assert not Dimensions(graph.nodes, ()).has_conflict()


def test_a_made_value_read_in_two_ways_is_told_apart_by_copies(sketch):
    made = sketch.op("exp", sketch.arg("f32[8,8]"))
    mixed = sketch.op("add", made, sketch.transpose(made))
    total = sketch.reduce(mixed, 1)
    graph, dims = dims_of(sketch, total)
    assert dims.has_conflict()
    apart = Dimensions.apart(graph.nodes, graph.outputs)
    assert not apart.has_conflict()
    rows, columns = apart.axes(apart.use(graph.producers[total], 0))
    assert apart.axes(total) == (rows,)
    assert rows != columns


def test_copies_without_end_are_refused(sketch, monkeypatch):
    monkeypatch.setattr(dimensions, "_MOST_COPIED_AXES", 100)
    value = sketch.op("exp", sketch.arg("f32[4,4]"))
    for _ in range(8):
        value = sketch.op("add", value, sketch.transpose(value))
    graph = sketch.finish([sketch.reduce(value, 1)])
    with pytest.raises(LegalityError, match="one value is read in too many ways: each needs loops of its own"):
        Dimensions.apart(graph.nodes, graph.outputs)


def test_a_dot_ties_rows_columns_and_depth(sketch):
    lhs, rhs = sketch.arg("f32[2,8,3]", "lhs"), sketch.arg("f32[2,3,5]", "rhs")
    product = sketch.dot(lhs, rhs, batch=1)
    graph, dims = dims_of(sketch, product)
    node = graph.producers[product]
    parts = dot_axes(node)
    assert (parts.lhs_batch, parts.lhs_free, parts.lhs_contracting) == ((0,), (1,), (2,))
    assert (parts.rhs_batch, parts.rhs_free, parts.rhs_contracting) == ((0,), (2,), (1,))
    left, right = dims.axes(dims.use(node, 0)), dims.axes(dims.use(node, 1))
    assert dims.axes(product) == (left[0], left[1], right[2])
    assert left[0] == right[0]
    assert left[2] == right[1]


def test_a_scan_keeps_its_axes(sketch):
    x = sketch.op("exp", sketch.arg("f32[8,4]"))
    scanned = sketch.emit("cumulative", [x], dimension=1, combiner="add", reverse=False)
    _, dims = dims_of(sketch, scanned)
    assert dims.axes(scanned) == dims.axes(x)
