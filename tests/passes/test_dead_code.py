from __future__ import annotations

from autofuse.passes.dead_code import DropDead


def test_unread_nodes_go_and_unread_inputs_stay(sketch):
    x, y = sketch.arg("f32[3]"), sketch.arg("f32[3]", "y")
    sketch.emit("exp", [sketch.emit("negate", [y])])
    out = sketch.emit("abs", [x])
    after = DropDead().apply(sketch.finish([out]))
    assert [node.op for node in after.nodes] == ["abs"]
    assert after.inputs == (x, y)


def test_a_live_graph_is_returned_as_it_is(sketch):
    graph = sketch.finish([sketch.emit("abs", [sketch.arg("f32[3]")])])
    assert DropDead().apply(graph) is graph
