"""Properties over random graphs: text, digest and interpreter agree with one another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.ir.digest import digest
from autofuse.ir.dtypes import BF16, F16, F64
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphtext import parse_graph, print_graph
from autofuse.ir.interpreter import interpret, interpret_values
from autofuse.ir.optable import all_ops
from autofuse.ir.verifier import verify
from autofuse.testing.graphs import random_graph, random_inputs
from tests.fixtures.examples import examples

SEEDS = st.integers(0, 2**32 - 1)
GRAPHS = st.builds(lambda nodes, seed: random_graph(np.random.default_rng(seed), nodes), st.integers(1, 16), SEEDS)
"""Shrink to fewer nodes."""


def renamed_and_reordered(graph: Graph, rng: np.random.Generator) -> Graph:
    """The same graph with other names and another topological order."""
    new = {value: Value(f"v{number}", value.type) for number, value in enumerate(graph.values())}
    waiting = list(graph.nodes)
    nodes = []
    ready = set(graph.inputs)
    while waiting:
        choices = [node for node in waiting if ready.issuperset(node.inputs)]
        node = choices[int(rng.integers(len(choices)))]
        waiting.remove(node)
        ready.update(node.outputs)
        nodes.append(Node(node.op, tuple(new[v] for v in node.inputs), tuple(new[v] for v in node.outputs), node.attrs))
    return Graph("other", tuple(new[v] for v in graph.inputs), tuple(nodes), tuple(new[v] for v in graph.outputs))


@examples(60)
@given(GRAPHS)
def test_text_round_trip(graph):
    verify(graph)
    text, constants = print_graph(graph)
    again = parse_graph(text, constants)
    verify(again)
    assert print_graph(again)[0] == text
    assert digest(again) == digest(graph)


@examples(60)
@given(GRAPHS, SEEDS)
def test_digest_ignores_names_and_order(graph, seed):
    other = renamed_and_reordered(graph, np.random.default_rng(seed))
    verify(other)
    assert digest(other) == digest(graph)


@examples(40)
@given(GRAPHS, SEEDS)
def test_values_are_finite_and_inputs_untouched(graph, seed):
    inputs = random_inputs(graph, np.random.default_rng(seed))
    before = [x.copy() for x in inputs]
    names = [value.name for value in graph.values()]
    values = interpret_values(graph, inputs, names)
    for value in graph.values():
        assert values[value.name].shape == value.type.shape
        assert values[value.name].dtype == value.type.dtype.numpy
        assert np.isfinite(values[value.name].astype(np.float64)).all(), value
    for x, y in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(x, y)
    for value, result in zip(graph.outputs, interpret(graph, *inputs), strict=True):
        np.testing.assert_array_equal(result, values[value.name])


@pytest.mark.parametrize("dtype", [F16, BF16, F64], ids=str)
def test_other_float_dtypes(dtype):
    for seed in range(15):
        graph = random_graph(np.random.default_rng(seed), 12, dtype=dtype)
        verify(graph)
        for result in interpret(graph, *random_inputs(graph, np.random.default_rng(seed))):
            assert np.isfinite(result.astype(np.float64)).all()


def test_the_seed_decides_the_graph():
    first, second = (print_graph(random_graph(np.random.default_rng(7), 20)) for _ in range(2))
    assert first[0] == second[0]


def test_random_graphs_reach_most_ops():
    seen = {node.op for seed in range(80) for node in random_graph(np.random.default_rng(seed), 20).nodes}
    assert {"exp", "select", "reduce", "argmax", "pad", "concatenate", "gather", "dot_general", "dynamic_slice"} <= seen
    assert seen <= {op.name for op in all_ops()}
