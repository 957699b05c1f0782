"""Ops that move elements: what is written, what is left of it, and every element in its place."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.ir import dtypes
from autofuse.passes.axismaps import runs, unit_moves
from autofuse.passes.constant_folding import FoldConstants
from autofuse.passes.movement import SimplifyMovement
from autofuse.testing.graphs import random_graph
from autofuse.testing.rareops import families


class Chain:
    """Movement ops in a row, written shortly."""

    def __init__(self, sketch, value):
        self.sketch, self.value = sketch, value

    def _next(self, op, *more, **attrs):
        return Chain(self.sketch, self.sketch.emit(op, [self.value, *more], **attrs))

    def reshape(self, *shape):
        return self._next("reshape", shape=shape)

    def transpose(self, *permutation):
        return self._next("transpose", permutation=permutation)

    def broadcast(self, shape, *dims):
        return self._next("broadcast_in_dim", shape=shape, broadcast_dimensions=dims)

    def cut(self, *ranges):
        starts, limits, strides = zip(*((*r, 1)[:3] for r in ranges), strict=True)
        return self._next("slice", start_indices=starts, limit_indices=limits, strides=strides)

    def reverse(self, *dims):
        return self._next("reverse", dimensions=dims)

    def pad(self, *amounts, value=-1.0, interior=None):
        low, high = zip(*amounts, strict=True)
        scalar = self.sketch.scalar(value, self.value.type.dtype.name)
        return self._next(
            "pad", scalar, edge_padding_low=low, edge_padding_high=high, interior_padding=interior or (0,) * len(low)
        )

    def joined(self, *others, dimension=0):
        return self._next("concatenate", *(other.value for other in others), dimension=dimension)

    def take(self, indices, axis):
        indices = np.asarray(indices)
        rank, batch = self.value.type.rank, indices.ndim
        others = [d for d in range(rank + batch - 1) if not axis <= d < axis + batch]
        sizes = tuple(1 if d == axis else n for d, n in enumerate(self.value.type.shape))
        return self._next(
            "gather",
            self.sketch.constant(indices),
            offset_dims=tuple(others),
            collapsed_slice_dims=(axis,),
            operand_batching_dims=(),
            start_indices_batching_dims=(),
            start_index_map=(axis,),
            index_vector_dim=batch,
            slice_sizes=sizes,
        )

    def dynamic(self, starts, sizes):
        return self._next("dynamic_slice", *(self.sketch.scalar(s, "i32") for s in starts), slice_sizes=sizes)

    def updated(self, other, starts):
        scalars = [self.sketch.scalar(s, "i32") for s in starts]
        return self._next("dynamic_update_slice", other.value, *scalars)


SHAPE = (4, 6, 5)
RULES = [
    ("reshape to itself", lambda x: x.reshape(*SHAPE), []),
    ("reshape of reshape", lambda x: x.reshape(24, 5).reshape(2, 60), ["reshape"]),
    ("reshape there and back", lambda x: x.reshape(24, 5).reshape(*SHAPE), []),
    ("reshape of a scalar", lambda x: x.cut((0, 1), (0, 1), (0, 1)).reshape().reshape(1, 1).broadcast((3, 2), 0, 1),
     ["slice", "reshape", "broadcast_in_dim"]),
    ("reshape of a broadcast scalar", lambda x: x.cut((0, 1), (0, 1), (0, 1)).reshape().broadcast((3, 2)).reshape(6),
     ["slice", "reshape", "broadcast_in_dim"]),
    ("reshape of broadcast, apart", lambda x: x.broadcast((2, 3, 4, 6, 5), 2, 3, 4).reshape(6, 24, 5),
     ["reshape", "broadcast_in_dim"]),
    ("reshape of broadcast, mixed", lambda x: x.broadcast((2, 4, 6, 5), 1, 2, 3).reshape(8, 6, 5),
     ["broadcast_in_dim", "reshape"]),
    ("unit axis dropped after broadcast", lambda x: x.broadcast((1, 4, 6, 5, 2), 1, 2, 3).reshape(4, 6, 5, 2),
     ["broadcast_in_dim"]),
    ("transpose by nothing", lambda x: x.transpose(0, 1, 2), []),
    ("transpose of transpose", lambda x: x.transpose(1, 2, 0).transpose(0, 2, 1), ["transpose"]),
    ("transpose there and back", lambda x: x.transpose(1, 2, 0).transpose(2, 0, 1), []),
    ("transpose of a unit axis", lambda x: x.reshape(4, 1, 30).transpose(1, 0, 2), ["reshape"]),
    ("transpose of broadcast", lambda x: x.broadcast((2, 4, 6, 5), 1, 2, 3).transpose(3, 0, 1, 2),
     ["broadcast_in_dim"]),
    ("broadcast to itself", lambda x: x.broadcast(SHAPE, 0, 1, 2), []),
    ("broadcast to unit axes", lambda x: x.broadcast((4, 1, 6, 5), 0, 2, 3), ["reshape"]),
    ("broadcast that permutes", lambda x: x.broadcast((5, 4, 6), 1, 2, 0), ["transpose"]),
    ("broadcast of broadcast", lambda x: x.broadcast((4, 6, 5, 2), 0, 1, 2).broadcast((3, 4, 6, 5, 2), 1, 2, 3, 4),
     ["broadcast_in_dim"]),
    ("broadcast of transpose", lambda x: x.transpose(2, 0, 1).broadcast((5, 4, 6, 3), 0, 1, 2), ["broadcast_in_dim"]),
    ("kept axes before broadcast", lambda x: x.reshape(4, 30, 1).broadcast((4, 30, 7), 0, 1, 2),
     ["reshape", "broadcast_in_dim"]),
    ("added unit axis before broadcast", lambda x: x.reshape(4, 6, 5, 1).broadcast((4, 6, 5, 7), 0, 1, 2, 3),
     ["broadcast_in_dim"]),
    ("dropped unit axis before broadcast",
     lambda x: x.cut((0, 4), (2, 3), (0, 5)).reshape(4, 5).broadcast((4, 7, 5), 0, 2), ["slice", "broadcast_in_dim"]),
    ("slice of everything", lambda x: x.cut((0, 4), (0, 6), (0, 5)), []),
    ("slice of slice", lambda x: x.cut((1, 4), (0, 6, 2), (0, 5)).cut((1, 3), (0, 3, 2), (2, 3)), ["slice"]),
    ("slice in canonical form", lambda x: x.cut((0, 4, 3), (0, 6, 4), (1, 2, 9)), ["slice"]),
    ("empty slice of slice", lambda x: x.cut((1, 4), (0, 6), (0, 5)).cut((1, 1), (0, 6), (0, 5)), ["slice"]),
    ("slice of broadcast", lambda x: x.broadcast((2, 4, 6, 5), 1, 2, 3).cut((0, 2, 2), (1, 3), (0, 6), (4, 5)),
     ["slice", "reshape"]),
    ("slice of a repeated axis", lambda x: x.broadcast((9, 4, 6, 5), 1, 2, 3).cut((2, 8, 3), (0, 4), (0, 6), (0, 5)),
     ["broadcast_in_dim"]),
    ("slice of transpose", lambda x: x.transpose(2, 0, 1).cut((1, 5, 2), (0, 4), (3, 6)), ["slice", "transpose"]),
    ("slice of unit reshape", lambda x: x.reshape(4, 1, 6, 5).cut((1, 3), (0, 1), (0, 6, 3), (0, 5)),
     ["slice", "reshape"]),
    ("slice of reverse", lambda x: x.reverse(0, 1).cut((1, 4), (1, 6, 2), (0, 5)), ["slice", "reverse"]),
    ("reverse twice", lambda x: x.reverse(0, 1).reverse(1, 2), ["reverse"]),
    ("reverse of unit axes", lambda x: x.cut((0, 1), (0, 6), (0, 5)).reverse(0), ["slice"]),
    ("reverse of broadcast", lambda x: x.broadcast((3, 4, 6, 5), 1, 2, 3).reverse(0, 2),
     ["reverse", "broadcast_in_dim"]),
    ("reverse of transpose", lambda x: x.transpose(2, 0, 1).reverse(0), ["reverse", "transpose"]),
    ("concatenation of one", lambda x: x.joined(), []),
    ("nested concatenations", lambda x: x.joined(x.reverse(0)).joined(x, dimension=0), ["reverse", "concatenate"]),
    ("empty operand", lambda x: x.joined(x.cut((2, 2), (0, 6), (0, 5))), []),
    ("neighbouring slices", lambda x: x.cut((0, 2), (0, 6), (0, 5)).joined(
        x.cut((2, 3), (0, 6), (0, 5)), x.cut((3, 4), (0, 6), (0, 5))), []),
    ("slices with a gap", lambda x: x.cut((0, 1), (0, 6), (0, 5)).joined(x.cut((2, 3), (0, 6), (0, 5))), ["slice"]),
    ("slices in the other order", lambda x: x.cut((2, 4), (0, 6), (0, 5)).joined(x.cut((0, 2), (0, 6), (0, 5))),
     ["slice", "slice", "concatenate"]),
    ("slice of one operand", lambda x: x.joined(x.reverse(1), x).cut((4, 8, 2), (0, 6), (0, 5)), ["slice", "reverse"]),
    ("slice of two of three operands", lambda x: x.joined(x.reverse(1), x.reverse(2)).cut((1, 6), (0, 6), (0, 5)),
     ["slice", "slice", "reverse", "concatenate"]),
    ("slice of all operands", lambda x: x.joined(x.reverse(1)).cut((1, 6), (0, 6), (0, 5)),
     ["reverse", "concatenate", "slice"]),
    ("padding by nothing", lambda x: x.pad((0, 0), (0, 0), (0, 0)), []),
    ("padding that removes", lambda x: x.pad((-1, 0), (0, -2), (0, 0)), ["slice"]),
    ("slice inside padding", lambda x: x.pad((1, 1), (0, 0), (2, 2)).cut((1, 5), (0, 6), (3, 7, 2)), ["slice"]),
    ("slice of the padding alone", lambda x: x.pad((1, 1), (0, 0), (2, 2)).cut((0, 5), (0, 6), (0, 2)),
     ["broadcast_in_dim"]),
    ("slice across the padding", lambda x: x.pad((1, 1), (0, 0), (2, 2)).cut((0, 3), (0, 6), (1, 9)), ["slice", "pad"]),
    ("strided slice across the padding", lambda x: x.pad((1, 1), (0, 0), (2, 2)).cut((0, 3), (0, 6), (1, 9, 2)),
     ["pad", "slice"]),
    ("slice of inner padding", lambda x: x.pad((1, 1), (0, 0), (2, 2), interior=(1, 0, 0)).cut((1, 3), (0, 6), (2, 7)),
     ["pad", "slice"]),
    ("dynamic slice at numbers", lambda x: x.dynamic((1, 99, -3), (2, 3, 5)), ["slice"]),
    ("dynamic slice of everything", lambda x: x.dynamic((1, 99, -3), SHAPE), []),
    ("update of everything", lambda x: x.updated(x.reverse(0), (2, 0, 0)), ["reverse"]),
    ("update of nothing", lambda x: x.updated(x.cut((0, 0), (0, 6), (0, 5)), (2, 0, 0)), []),
    ("update of a part", lambda x: x.updated(x.cut((0, 2), (0, 6), (0, 5)), (2, 0, 0)),
     ["slice", "dynamic_update_slice"]),
    ("update of what was updated", lambda x: x.updated(x.cut((0, 2), (1, 6), (0, 2)), (2, 0, 1)).updated(
        x.cut((1, 4), (0, 6), (0, 3)), (9, 0, 1)), ["slice", "dynamic_update_slice"]),
    ("update of a part of what was updated", lambda x: x.updated(x.cut((0, 2), (0, 6), (0, 3)), (2, 0, 1)).updated(
        x.cut((0, 2), (0, 6), (0, 2)), (2, 0, 1)), ["slice", "dynamic_update_slice", "slice", "dynamic_update_slice"]),
    ("gather of a run", lambda x: x.take([1, 2, 3], 1), ["slice"]),
    ("gather with a step", lambda x: x.take([1, 3, 5], 1), ["slice"]),
    ("gather downwards", lambda x: x.take([3, 2, 1, 0], 0), ["reverse"]),
    ("gather of one place often", lambda x: x.take([2, 2, 2], 2), ["slice", "broadcast_in_dim"]),
    ("gather of a clamped run", lambda x: x.take([3, 4, 5], 2), ["gather"]),
    ("gather of one", lambda x: x.take(np.int64(3), 1), ["slice", "reshape"]),
    ("gather in two dimensions", lambda x: x.take([[0, 1, 2], [3, 4, 5]], 1), ["reshape"]),
    ("gather in disorder", lambda x: x.take([3, 1, 2], 1), ["gather"]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "i8"])
@pytest.mark.parametrize(("build", "expected"), [pytest.param(b, e, id=name) for name, b, e in RULES])
def test_movement_is_merged_and_every_element_arrives(sketch, ops, assert_same, build, expected, dtype):
    x = sketch.arg(f"{dtype}[4,6,5]")
    graph = sketch.finish([build(Chain(sketch, x)).value])
    after = SimplifyMovement().apply(graph)
    assert ops(after) == expected
    assert_same(graph, after)
    assert SimplifyMovement().apply(after) is after


def test_an_update_that_others_have_read_stays(sketch, ops, assert_same):
    x, at = Chain(sketch, sketch.arg("f32[4,6,5]")), [sketch.arg("i32[]") for _ in range(3)]
    first = sketch.emit("dynamic_update_slice", [x.value, x.cut((0, 2), (0, 3), (0, 5)).value, *at])
    last = sketch.emit("dynamic_update_slice", [first, x.cut((0, 3), (0, 3), (0, 5)).value, *at])
    after = SimplifyMovement().apply(sketch.finish([first, last]))
    updates = [node for node in after.nodes if node.op == "dynamic_update_slice"]
    assert [node.inputs[0].name for node in updates] == [x.value.name] * 2
    assert_same(sketch.finish([first, last]), after)


def test_views_of_an_iota_are_iotas(sketch, ops, assert_same):
    def count(*shape, dimension=0):
        return Chain(sketch, sketch.emit("iota", shape=shape, dtype=dtypes.I32, iota_dimension=dimension))

    outputs = [
        count(6).broadcast((4, 6, 2), 1),
        count(4, 6, dimension=1).transpose(1, 0),
        count(4, 6, dimension=1).reshape(4, 1, 6),
        count(4, 6, dimension=1).cut((1, 3), (0, 4)),
        count(4, 6).cut((0, 4), (1, 5, 2)),
    ]
    graph = sketch.finish([chain.value for chain in outputs])
    after = SimplifyMovement().apply(graph)
    assert ops(after) == ["iota"] * 5
    assert_same(graph, after)


def test_a_padding_of_a_padding_is_one(sketch, ops, assert_same):
    x = sketch.arg("f32[3]")
    zero = sketch.scalar(0, "f32")
    inner = sketch.emit("pad", [x, zero], edge_padding_low=(1,), edge_padding_high=(0,), interior_padding=(0,))
    outer = sketch.emit("pad", [inner, zero], edge_padding_low=(1,), edge_padding_high=(2,), interior_padding=(0,))
    graph = sketch.finish([outer])
    after = SimplifyMovement().apply(graph)
    assert ops(after) == ["pad"]
    assert_same(graph, after)


def test_what_several_slices_read_is_padded_and_joined_once(sketch):
    x = Chain(sketch, sketch.arg("f32[4,6,5]"))
    padded, joined = x.pad((1, 1), (0, 0), (0, 0)), x.joined(x.reverse(0), x)
    shifted = [padded.cut((i, i + 4), (0, 6), (0, 5)) for i in (0, 2)]
    across = [joined.cut((i, i + 6), (0, 6), (0, 5)) for i in (0, 1)]
    graph = sketch.finish([chain.value for chain in (*shifted, *across)])
    assert SimplifyMovement().apply(graph) is graph


def test_keepdims_and_broadcast_leave_one_op(sketch, ops):
    x = sketch.arg("f32[4,6]")
    total = sketch.emit("reduce", [x], dimensions=(1,), combiner="add")
    kept = Chain(sketch, total).reshape(4, 1).broadcast((4, 6), 0, 1)
    after = SimplifyMovement().apply(sketch.finish([sketch.emit("divide", [x, kept.value])]))
    assert ops(after) == ["reduce", "broadcast_in_dim", "divide"]


def test_runs_of_axes():
    assert list(runs((2, 3, 4), (6, 4))) == [((0, 1), (0,)), ((2,), (1,))]
    assert list(runs((1, 8, 1), (2, 1, 4))) == [((1,), (0, 2))]
    assert list(runs((), (1,))) == []
    assert unit_moves((1, 4, 6), (4, 1, 6)) == {1: 0, 2: 2}
    assert unit_moves((4, 6), (6, 4)) is None


@pytest.mark.parametrize("seed", range(60))
def test_random_movement_keeps_every_element(assert_same, seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 25, families=families("index", "broadcast"))
    after = SimplifyMovement().apply(FoldConstants().apply(graph))
    assert_same(graph, after, seeds=(0,))
    assert SimplifyMovement().apply(after) is after
