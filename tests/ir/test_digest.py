"""Digests: equal for equal structure, different for every difference that matters."""

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.ir.digest import digest, subgraph_digest
from autofuse.ir.graph import Location
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.graphtext import parse_graph
from autofuse.ir.types import parse_type

T = parse_type("f32[4]")


def graph_of(text):
    return parse_graph(f'graph "g"(%x: f32[4], %y: f32[4]) {{\n{text}\n}}')


BASE = graph_of("%a = exp %x : f32[4]\n %b = add %a, %y : f32[4]\n return %b")


def test_it_is_a_sha256():
    assert len(digest(BASE)) == 64
    assert int(digest(BASE), 16)


@pytest.mark.parametrize(
    "text",
    [
        "%p = exp %x : f32[4]\n %q = add %p, %y : f32[4]\n return %q",
        '%a = exp %x : f32[4] loc "f.py":1 "f"\n %b = add %a, %y : f32[4]\n return %b',
        "%dead = tanh %x : f32[4]\n %a = exp %x : f32[4]\n %b = add %a, %y : f32[4]\n return %b",
    ],
    ids=["names", "locations", "dead nodes"],
)
def test_equal(text):
    assert digest(graph_of(text)) == digest(BASE)


@pytest.mark.parametrize(
    "text",
    [
        "%a = tanh %x : f32[4]\n %b = add %a, %y : f32[4]\n return %b",
        "%a = exp %y : f32[4]\n %b = add %a, %x : f32[4]\n return %b",
        "%a = exp %x : f32[4]\n %b = add %y, %a : f32[4]\n return %b",
        "%a = exp %x : f32[4]\n %b = add %a, %x : f32[4]\n return %b",
        "%a = exp %x : f32[4]\n %b = add %a, %y : f32[4]\n return %b, %a",
        "%a = exp %x : f32[4]\n %b = add %a, %y : f32[4]\n return %b, %b",
        "%a = exp %x : f32[4]\n return %a",
    ],
    ids=["op", "inputs", "operand order", "shared input", "outputs", "output twice", "fewer nodes"],
)
def test_different(text):
    assert digest(graph_of(text)) != digest(BASE)


def test_output_order_counts():
    first, second = (
        graph_of(f"%a = exp %x : f32[4]\n %b = tanh %x : f32[4]\n return {order}") for order in ("%a, %b", "%b, %a")
    )
    assert digest(first) != digest(second)


def test_sharing_counts():
    once = graph_of("%a = exp %x : f32[4]\n %b = add %a, %a : f32[4]\n return %b")
    twice = graph_of("%a = exp %x : f32[4]\n %c = exp %x : f32[4]\n %b = add %a, %c : f32[4]\n return %b")
    assert digest(once) != digest(twice)


def test_an_unused_input_counts():
    builder = GraphBuilder("g")
    x = builder.input(T)
    alone = builder.finish([builder.emit("exp", [x])])
    assert digest(alone) != digest(graph_of("%a = exp %x : f32[4]\n return %a"))


def constant_graph(array):
    builder = GraphBuilder("g")
    return builder.finish([builder.constant(array)])


def test_constants_count_bit_by_bit():
    arrays = [
        np.array([0.0], np.float32),
        np.array([-0.0], np.float32),
        np.array(0.0, np.float32),
        np.array([0], np.int32),
        np.zeros(1000, np.float32),
        np.zeros((10, 100), np.float32),
    ]
    assert len({digest(constant_graph(a)) for a in arrays}) == len(arrays)
    assert digest(constant_graph(arrays[0])) == digest(constant_graph(np.array([0.0], np.float32)))


def test_attributes_count():
    builder = GraphBuilder("g")
    x = builder.input(parse_type("f32[4,4]"))
    results = [builder.emit("reduce", [x], dimensions=(d,), combiner=c) for d in (0, 1) for c in ("add", "maximum")]
    graph = builder.finish(results)
    kernels = {subgraph_digest(graph, [node], node.outputs) for node in graph.nodes}
    assert len(kernels) == 4


def layers(count):
    """Equal layers one after another, each with a weight of its own."""
    builder = GraphBuilder("net")
    value = builder.input(T, "x")
    for number in range(count):
        weight = builder.input(T, f"w{number}")
        builder.location = Location("net.py", number, "layer")
        scaled = builder.emit("multiply", [value, weight])
        value = builder.emit("add", [builder.emit("tanh", [scaled]), value])
    return builder.finish([value])


def test_equal_kernels_of_one_graph_are_equal():
    graph = layers(3)
    kernels = [graph.nodes[start : start + 3] for start in (0, 3, 6)]
    digests = {subgraph_digest(graph, kernel, [kernel[-1].output]) for kernel in kernels}
    assert len(digests) == 1
    shuffled = subgraph_digest(graph, kernels[0][::-1], [kernels[0][-1].output])
    assert {shuffled} == digests


def test_kernels_differ_by_outputs_and_by_shared_inputs():
    graph = layers(2)
    multiply, tanh, add = graph.nodes[:3]
    whole = [multiply, tanh, add]
    variants = {
        subgraph_digest(graph, whole, [add.output]),
        subgraph_digest(graph, whole, [tanh.output, add.output]),
        subgraph_digest(graph, whole, [add.output, tanh.output]),
        subgraph_digest(graph, [tanh, add], [add.output]),
    }
    assert len(variants) == 4
    same = graph_of("%a = multiply %x, %x : f32[4]\n %b = multiply %x, %y : f32[4]\n return %a, %b")
    one, two = (subgraph_digest(same, [node], node.outputs) for node in same.nodes)
    assert one != two


def test_an_output_from_outside_is_refused():
    graph = layers(2)
    with pytest.raises(GraphError, match="made by none of the kernel's nodes"):
        subgraph_digest(graph, graph.nodes[:1], [graph.nodes[1].output])


LOOP = """graph "g"(%n: i32[], %m: i32[]) {{
  %w = while %n : i32[] {{
    region "c"(%i: i32[]) captures({captures}) {{
      %p = compare %i, {limit} {{direction = "LT"}} : bool[]
      %q = compare %i, %n {{direction = "NE"}} : bool[]
      %r = and %p, %q : bool[]
      return %r
    }}
    region "b"(%i: i32[]) captures() {{
      %k = {step} %i, %i : i32[]
      return %k
    }}
  }}
  return %w
}}
"""


def test_regions_and_captures_count():
    base = {"captures": "%n, %m", "limit": "%m", "step": "add"}
    changes = [{}, {"captures": "%m, %n"}, {"captures": "%n", "limit": "%n"}, {"step": "multiply"}]
    digests = [digest(parse_graph(LOOP.format(**base | change))) for change in changes]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_long_chains_do_not_exhaust_the_stack():
    builder = GraphBuilder("long")
    value = builder.input(T)
    for _ in range(5000):
        value = builder.emit("add", [value, value])
    assert len(digest(builder.finish([value]))) == 64


def test_the_digest_is_the_same_in_every_process_and_version():
    saved = "b23a50ecc5d68b65f1a4d0728e2f0e92a89dae2021329744b7a4f838ffad6c80"
    assert digest(BASE) == saved, "plans and measurements on disk are found by this digest; changing it loses them"


def test_a_node_may_count_as_something_else():
    (exp,) = (node for node in BASE.nodes if node.op == "exp")
    other = graph_of("%a = tanh %x : f32[4]\n %b = add %a, %y : f32[4]\n return %b")
    (tanh,) = (node for node in other.nodes if node.op == "tanh")
    plain = [subgraph_digest(g, g.nodes, g.outputs) for g in (BASE, other)]
    blurred = [subgraph_digest(g, g.nodes, g.outputs, {n: "some function"}) for g, n in ((BASE, exp), (other, tanh))]
    assert plain[0] != plain[1]
    assert blurred[0] == blurred[1]
    assert blurred[0] not in plain
