"""Broken graphs are refused with the offending line and a caret under the offending part."""

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import parse_type
from autofuse.ir.verifier import verify

T = parse_type("f32[2,3]")
INT = parse_type("i32[]")


def value(name, type_=T):
    return Value(name, type_)


X = value("x")


def node(op, inputs, outputs, regions=(), **attrs):
    return Node(op, tuple(inputs), tuple(outputs), attrs, tuple(regions))


def fails(nodes, outputs=(), inputs=(X,), captures=()):
    with pytest.raises(GraphError) as info:
        verify(Graph("g", tuple(inputs), tuple(nodes), tuple(outputs), tuple(captures)))
    return str(info.value)


def marked(message):
    """What the caret of a message points at."""
    line, caret = message.splitlines()[1:3]
    return line[caret.index("^") :]


def test_a_sound_graph_passes():
    builder = GraphBuilder("g")
    x = builder.input(T)
    verify(builder.finish([builder.emit("add", [x, x]), x]))


def test_use_before_definition():
    a, b = value("a"), value("b")
    message = fails([node("add", [X, b], [a]), node("exp", [X], [b])], [a])
    assert "operand 1, %b, is not defined above" in message
    assert marked(message) == "%b : f32[2,3]"
    assert message.splitlines()[1] == "  %a = add %x, %b : f32[2,3]"


def test_a_twin_of_the_same_name_is_pointed_out():
    assert "another object" in fails([node("exp", [value("x")], [value("a")])])


def test_names_are_unique():
    message = fails([node("exp", [X], [value("a")]), node("exp", [X], [value("a")])])
    assert "the name %a is taken" in message
    assert "%x names two of its inputs" in fails([], inputs=(value("x"), value("x")))


def test_a_value_is_defined_once():
    a = value("a")
    assert "%a is defined twice" in fails([node("exp", [X], [a]), node("tanh", [X], [a])])


def test_types_equal_inference():
    message = fails([node("exp", [X], [value("a", INT)])])
    assert "%a must have type f32[2,3], as inferred; got i32[]" in message
    assert marked(message) == "i32[]"


def test_operands_and_attributes_fit_the_op():
    assert "add takes 2 operands, got 1" in fails([node("add", [X], [value("a")])])
    assert "unknown op 'expp'; did you mean exp" in fails([node("expp", [X], [value("a")])])
    assert "unknown attributes axis" in fails([node("exp", [X], [value("a")], axis=0)])
    message = fails([node("transpose", [X], [value("a")], permutation=(0, 2))])
    assert marked(message).startswith("permutation = [0, 2]")
    assert "must be held as (1, 0), got [1, 0]" in fails(
        [node("transpose", [X], [value("a", parse_type("f32[3,2]"))], permutation=[1, 0])]
    )


def test_a_constant_that_can_be_written_to_is_refused():
    array = np.ones(2, np.float32)
    message = fails([node("constant", [], [value("c", parse_type("f32[2]"))], value=array)])
    assert "attribute value must be held as" in message


def test_number_of_results():
    assert "exp has 1 results, the node 2" in fails([node("exp", [X], [value("a"), value("b")])])
    assert "a exp node has no results" in fails([node("exp", [X], [])])


def test_outputs_are_defined():
    assert "output 1, %other, is not defined" in fails([], [X, value("other")])


def test_only_regions_capture():
    assert "only regions capture values" in fails([], captures=[value("outside")])


def loop(captures, body_reads):
    """A while graph whose condition region captures and reads the given values."""
    start = value("start", INT)
    i, p = value("i", INT), value("p", parse_type("bool[]"))
    condition = Graph("c", (i,), (node("compare", [i, body_reads], [p], direction="LT"),), (p,), tuple(captures))
    j = value("j", INT)
    body = Graph("b", (j,), (), (j,))
    loop_node = node("while", [start], [value("end", INT)], [condition, body])
    return [loop_node], (X, start)


def test_captures_are_visible_and_declared():
    limit = value("limit", INT)
    nodes, inputs = loop([limit], limit)
    verify(Graph("g", (*inputs, limit), tuple(nodes), ()))
    assert "region c captures %limit, which is not defined above" in fails(nodes, inputs=inputs)
    nodes, inputs = loop([], limit)
    assert "graph c: operand 1, %limit, is not defined above" in fails(nodes, inputs=(*inputs, limit))


def test_a_name_captured_and_defined_is_refused():
    twin = value("p", INT)
    nodes, inputs = loop([twin], twin)
    assert "the name %p is taken" in fails(nodes, inputs=(*inputs, twin))


def test_regions_belong_to_control_ops():
    region = Graph("r", (), (), ())
    assert "exp owns no regions" in fails([node("exp", [X], [value("a")], [region])])
