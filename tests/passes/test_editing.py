"""New definitions of values: who reads them notices nothing."""

from __future__ import annotations

import pytest

from autofuse.errors import GraphError
from autofuse.ir.verifier import verify
from autofuse.passes.editing import Editor


def _graph(sketch):
    x = sketch.arg("f32[4]", "x")
    first = sketch.emit("exp", [x], name="first")
    second = sketch.emit("tanh", [first], name="second")
    third = sketch.emit("abs", [x], name="third")
    return sketch.finish([sketch.emit("add", [second, third], name="total")])


def test_without_new_definitions_the_graph_stays(sketch):
    graph = _graph(sketch)
    editor = Editor(graph)
    editor.emit("abs", graph.inputs[0], like=graph.nodes[0])
    assert editor.finish() is graph


def test_names_stay_and_what_nothing_reads_goes(sketch, ops):
    graph = _graph(sketch)
    editor = Editor(graph)
    editor.define(graph.node_by_name["second"], "sqrt", graph.inputs[0])
    after = editor.finish()
    verify(after)
    assert ops(after) == ["sqrt", "abs", "add"]
    assert after.value_by_name["second"] is graph.value_by_name["second"]
    assert after.outputs == graph.outputs


def test_a_definition_may_need_what_stands_later(sketch, ops):
    graph = _graph(sketch)
    editor = Editor(graph)
    twice = editor.emit("add", *[graph.value_by_name["third"]] * 2, like=graph.nodes[0])
    editor.define(graph.node_by_name["first"], "negate", twice)
    after = editor.finish()
    verify(after)
    assert ops(after) == ["abs", "add", "negate", "tanh", "add"]


def test_new_names_are_free_ones(sketch):
    graph = _graph(sketch)
    editor = Editor(graph)
    made = [editor.emit("exp", graph.inputs[0], like=graph.nodes[0]) for _ in range(2)]
    assert len({value.name for value in (*made, *graph.values())}) == len(made) + len(list(graph.values()))


def test_a_definition_of_another_type_is_refused(sketch):
    graph = _graph(sketch)
    with pytest.raises(GraphError, match=r"%first is f32\[4\]; its new definition by reshape is f32\[2,2\]"):
        Editor(graph).define(graph.nodes[0], "reshape", graph.inputs[0], shape=(2, 2))
