"""Attributes are brought into one form, or refused by name."""

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.attributes import normalized
from autofuse.ir.digest import digest, subgraph_digest
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.graphparser import parse_graph
from autofuse.ir.graphtext import print_graph
from autofuse.ir.optable import all_ops, lookup
from autofuse.ir.types import parse_type


def test_lists_and_numpy_integers_become_tuples_of_int():
    attrs = normalized(lookup("transpose"), {"permutation": [np.int64(1), 0]})
    assert attrs == {"permutation": (1, 0)}
    assert type(attrs["permutation"][0]) is int


def test_pairs():
    given = {
        "window_dimensions": (1,),
        "window_strides": (1,),
        "base_dilations": (1,),
        "window_dilations": (1,),
        "padding": [[0, 1]],
        "combiner": "add",
    }
    assert normalized(lookup("reduce_window"), given)["padding"] == ((0, 1),)


def test_a_writeable_array_is_copied():
    array = np.ones(3, np.float32)
    held = normalized(lookup("constant"), {"value": array})["value"]
    array[:] = 2
    assert held.tolist() == [1, 1, 1]
    assert not held.flags.writeable


def test_a_read_only_view_of_a_writeable_array_is_copied():
    array = np.zeros((), np.float32)
    held = normalized(lookup("constant"), {"value": np.broadcast_to(array, (3,))})["value"]
    array[...] = 2
    assert held.tolist() == [0, 0, 0]
    assert held.flags.c_contiguous


def test_a_constant_that_nobody_can_change_is_not_copied():
    array = np.zeros(6, np.float32)
    array.setflags(write=False)
    view = array.reshape(2, 3)
    assert normalized(lookup("constant"), {"value": view})["value"] is view
    assert normalized(lookup("constant"), {"value": view.T})["value"].flags.c_contiguous


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("transpose", {}, "transpose: missing attributes permutation; its attributes: permutation"),
        ("transpose", {"permutation": (0,), "axis": 1}, "transpose: unknown attributes axis"),
        ("erf", {"dtype": dtypes.F32}, "erf: unknown attributes dtype; its attributes: none"),
        ("exp", {"numerics": "strict"}, "attribute numerics must be one of fast; got 'strict'"),
        ("transpose", {"permutation": (0.5,)}, r"attribute permutation must be a tuple of ints .*got \(0.5,\)"),
        ("transpose", {"permutation": (True,)}, "attribute permutation must be a tuple of ints"),
        ("transpose", {"permutation": 3}, "attribute permutation must be a tuple of ints"),
        ("compare", {"direction": "lt"}, "attribute direction must be one of EQ, NE, LT, LE, GT, GE; got 'lt'"),
        ("convert", {"dtype": "f32"}, "attribute dtype must be a DType"),
        ("convert", {"dtype": np.float32}, "attribute dtype must be a DType"),
        ("sort", {"dimension": 0, "descending": 1, "stable": True}, "attribute descending must be a bool"),
        ("constant", {"value": 3.0}, "attribute value must be a NumPy array"),
        ("constant", {"value": np.array([1j], np.clongdouble)}, "dtype complex256 is not supported"),
        ("custom_call", {"call_target_name": "f", "results": ("f32[]",)}, "attribute results must be a tuple of Tens"),
    ],
)
def test_errors(op, attrs, message):
    with pytest.raises(GraphError, match=message):
        normalized(lookup(op), attrs)


def test_the_builder_holds_attributes_in_normal_form():
    builder = GraphBuilder("g")
    x = builder.input(parse_type("f32[2,3]"))
    builder.emit("transpose", [x], permutation=[1, 0])
    assert builder.finish([]).nodes[0].attrs == {"permutation": (1, 0)}


def test_an_optional_attribute_may_be_left_out_and_is_kept_in_texts():
    builder = GraphBuilder("g")
    x = builder.input(parse_type("f32[3]"), "x")
    graph = builder.finish([builder.emit("exp", [x]), builder.emit("exp", [x], numerics="fast")])
    assert [node.attrs for node in graph.nodes] == [{}, {"numerics": "fast"}]
    again = parse_graph(*print_graph(graph))
    assert [node.attrs for node in again.nodes] == [{}, {"numerics": "fast"}]
    assert digest(again) == digest(graph)
    assert subgraph_digest(graph, graph.nodes[:1], graph.outputs[:1]) != subgraph_digest(
        graph, graph.nodes[1:], graph.outputs[1:]
    )


def test_every_op_documents_itself_and_its_attributes():
    for op in all_ops():
        assert op.doc.endswith("."), op.name
        assert all(spec.doc for spec in op.attrs.values()), op.name


def test_the_catalogue_in_the_docs_names_every_op_and_attribute():
    text = (Path(__file__).parents[2] / "docs" / "ops.md").read_text(encoding="utf-8")
    for op in all_ops():
        assert op.name in text, op.name
        assert all(key in text for key in op.attrs), op.name
