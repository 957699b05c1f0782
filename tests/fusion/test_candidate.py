"""Kernel candidates: what they read, and what every reader computes for itself."""

import gc
import weakref

import numpy as np
import pytest

from autofuse.fusion.candidate import is_inlined, is_view, make_candidate
from autofuse.ir.dtypes import F64
from autofuse.ir.graph import Node, Value
from autofuse.ir.types import TensorType
from autofuse.testing.sketches import Sketch


@pytest.fixture
def sketch():
    return Sketch("sketch")


def node_of(sketch, value):
    return sketch.finish([value]).producers[value]


@pytest.mark.parametrize(
    ("array", "inlined"),
    [
        (np.zeros((4, 4), np.float32), True),
        (np.array(2.5), True),
        (np.full(3, np.nan, np.float32), True),
        (np.array([1, 1, 2], np.int32), False),
        (np.array([0.0, -0.0], np.float32), False),
        (np.zeros((0, 4), np.float32), False),
        (np.array([True, True]), True),
    ],
    ids=["zeros", "scalar", "all NaN", "two numbers", "both zeros", "empty", "bools"],
)
def test_a_constant_of_one_value_is_inlined(sketch, array, inlined):
    assert is_inlined(node_of(sketch, sketch.constant(array))) is inlined


def test_an_iota_is_inlined_and_a_computed_value_is_not(sketch):
    x = sketch.arg("f32[4]")
    assert is_inlined(node_of(sketch, sketch.emit("iota", shape=(4,), dtype=x.type.dtype, iota_dimension=0)))
    assert not is_inlined(node_of(sketch, sketch.op("exp", x)))


def test_views_rename_elements(sketch):
    x = sketch.arg("f32[4,2]")
    for view in (sketch.reshape(x, 8), sketch.transpose(x), sketch.broadcast(x, x, 0, 1)):
        assert is_view(node_of(sketch, view))
    assert not is_view(node_of(sketch, sketch.op("concatenate", x, x, dimension=0)))


def test_inputs_stand_in_the_order_of_first_use_and_inlined_leaves_come_along(sketch):
    x, y = sketch.arg("f32[4]"), sketch.arg("f32[4]", "y")
    ones = sketch.constant(np.ones(4, np.float32), "ones")
    table = sketch.constant(np.arange(4, dtype=np.float32), "table")
    first = sketch.op("add", y, table, name="first")
    second = sketch.op("multiply", first, sketch.op("add", x, ones, name="shifted"), name="second")
    graph = sketch.finish([second])
    nodes = frozenset(graph.producers[v] for v in (first, second)) | {graph.node_by_name["shifted"]}
    kernel = make_candidate(graph, nodes, (second,))
    assert [value.name for value in kernel.inputs] == ["y", "table", "x"]
    assert [node.name for node in kernel.nodes] == ["ones", "first", "shifted", "second"]


def test_no_constant_is_kept_alive_by_having_been_looked_at():
    array = np.arange(6.0)
    array.flags.writeable = False
    value = Value("c", TensorType((6,), F64))
    node = Node("constant", (), (value,), {"value": array})
    assert not is_inlined(node)
    alive = weakref.ref(node)
    del node
    gc.collect()
    assert alive() is None
