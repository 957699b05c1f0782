from __future__ import annotations

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir.graph import Graph, Location, Node, Value
from autofuse.ir.interpreter import interpret
from autofuse.ir.types import parse_type
from autofuse.passes.rewriting import Names, call, rewrite


def _double_negation(node, facts):
    inner = facts.producer(node.inputs[0], "negate")
    return inner.inputs[0] if inner else None


def _abs_by_maximum(node, facts):
    return call("maximum", node.inputs[0], call("negate", node.inputs[0]))


def test_an_unchanged_graph_is_the_same_object(sketch):
    x = sketch.arg("f32[3]")
    graph = sketch.finish([sketch.emit("negate", [x])])
    assert rewrite(graph, lambda: {"negate": (_double_negation,)}) is graph


def test_what_no_output_needs_goes_and_unread_inputs_stay(sketch):
    x, y = sketch.arg("f32[3]"), sketch.arg("f32[3]", "y")
    sketch.emit("exp", [sketch.emit("negate", [y])])
    after = rewrite(sketch.finish([sketch.emit("abs", [x])]), dict)
    assert [node.op for node in after.nodes] == ["abs"]
    assert after.inputs == (x, y)


def test_a_chain_settles_in_one_walk(sketch):
    x = value = sketch.arg("f32[3]")
    for _ in range(400):
        value = sketch.emit("negate", [value])
    after = rewrite(sketch.finish([value]), lambda: {"negate": (_double_negation,)})
    assert after.nodes == ()
    assert after.outputs == (x,)


def test_a_replacement_keeps_name_and_location_and_readers(sketch):
    x = sketch.arg("f32[3]")
    sketch.location = Location("model.py", 7, "f")
    kept = sketch.emit("abs", [x], name="magnitude")
    sketch.location = None
    out = sketch.emit("exp", [kept])
    after = rewrite(sketch.finish([out]), lambda: {"abs": (_abs_by_maximum,)})
    assert [(node.name, node.op) for node in after.nodes] == [
        ("negate", "negate"),
        ("magnitude", "maximum"),
        ("exp", "exp"),
    ]
    assert str(after.node_by_name["magnitude"].location) == "model.py:7 in f"
    assert str(after.node_by_name["negate"].location) == "model.py:7 in f"
    assert after.nodes[2].inputs == (kept,)


def test_new_names_avoid_those_in_use(sketch):
    sketch.arg("f32[3]", "negate")
    names = Names(sketch.finish([]))
    assert [names.fresh("negate"), names.fresh("negate"), names.fresh("add")] == ["negate_1", "negate_2", "add"]


def test_a_rule_that_never_stops_is_bounded(sketch):
    x = sketch.arg("f32[3]")
    graph = sketch.finish([sketch.emit("add", [x, x])])
    after = rewrite(graph, lambda: {"add": (lambda node, facts: call("add", *reversed(node.inputs)),)})
    assert [node.op for node in after.nodes] == ["add"]


def test_a_rule_that_changes_the_type_is_refused(sketch):
    x = sketch.arg("f32[3]")
    graph = sketch.finish([sketch.emit("negate", [x], name="n")])
    with pytest.raises(GraphError, match=r"%n: .* f32\[3\], got f32\[3,1\]"):
        rewrite(graph, lambda: {"negate": (lambda node, facts: call("reshape", node.inputs[0], shape=(3, 1)),)})


def _countdown(outer_names):
    """while count > 0: total, count = total + -(-step) * two, count - 1; `step` and `two` are captured."""
    scalar = parse_type("f32[]")
    step, two, zero, one = (Value(name, scalar) for name in outer_names)
    count, total = Value("count", scalar), Value("total", scalar)
    condition = Value("more", parse_type("bool[]"))
    test = Graph(
        "test",
        (count, total),
        (Node("compare", (count, zero), (condition,), {"direction": "GT"}),),
        (condition,),
        (zero,),
    )
    new_count, new_total = Value("new_count", scalar), Value("new_total", scalar)
    minus, plus, scaled = Value("minus", scalar), Value("plus", scalar), Value("scaled", scalar)
    body = Graph(
        "body",
        (count, total),
        (
            Node("negate", (step,), (minus,), {}),
            Node("negate", (minus,), (plus,), {}),
            Node("multiply", (plus, two), (scaled,), {}),
            Node("add", (total, scaled), (new_total,), {}),
            Node("subtract", (count, one), (new_count,), {}),
        ),
        (new_count, new_total),
        (step, two, one),
    )
    start, end = Value("end_count", scalar), Value("end_total", scalar)
    loop = Node("while", (Value("n", scalar), zero), (start, end), {}, (test, body))
    constants = tuple(
        Node("constant", (), (value,), {"value": np.array(number, np.float32)})
        for value, number in ((two, 2), (zero, 0), (one, 1))
    )
    return Graph("loop", (loop.inputs[0], step), (*constants, loop), (end,))


def test_regions_are_rewritten_and_captured_numbers_become_constants_inside():
    graph = _countdown(["step", "two", "zero", "one"])
    after = rewrite(graph, lambda: {"negate": (_double_negation,)})
    (loop,) = [node for node in after.nodes if node.op == "while"]
    test, body = loop.regions
    assert test.captures == ()
    assert body.captures == (after.inputs[1],)
    assert "negate" not in [node.op for node in body.nodes]
    arrays = np.array(5, np.float32), np.array(1.5, np.float32)
    assert interpret(after, *arrays)[0] == interpret(graph, *arrays)[0] == 15
