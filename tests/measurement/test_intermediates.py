"""Values that the worker computes: right whatever is held, and within the limit."""

import numpy as np
import pytest

from autofuse.ir.interpreter import interpret_values
from autofuse.measurement.intermediates import Intermediates
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.sketches import Sketch, attention_graph

PLENTY = 1 << 40


def chain(length, shape="f32[64,64]"):
    """Every node reads the one before: x, x + x, ..."""
    sketch = Sketch("chain")
    value = sketch.arg(shape)
    for number in range(length):
        value = sketch.op("add", value, value, name=f"n{number}")
    return sketch.finish([value])


@pytest.mark.parametrize("most_bytes", [0, 4096, PLENTY])
@pytest.mark.parametrize("seed", range(4))
def test_they_are_the_interpreters_in_whatever_order(seed, most_bytes):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 14)
    inputs = random_inputs(graph, rng)
    values = [value for node in graph.nodes for value in node.outputs]
    right = interpret_values(graph, inputs, [value.name for value in values])
    held = Intermediates(graph, inputs, most_bytes)
    for place in rng.permutation(len(values)):
        (found,) = held.of([values[place]])
        np.testing.assert_array_equal(found, right[values[place].name])


def test_no_more_is_held_than_the_limit_and_what_is_asked_for():
    graph = chain(200)
    one = graph.outputs[0].type.nbytes
    held = Intermediates(graph, [np.zeros((64, 64), np.float32)], 5 * one)
    for name in ("n199", "n3", "n150"):
        (found,) = held.of([graph.value_by_name[name]])
        assert found[0, 0] == 0.0
        assert held.held_bytes <= 5 * one
        assert held.held_bytes == sum(array.nbytes for array in held._held.values())
    none = Intermediates(graph, [np.ones((64, 64), np.float32)], 0)
    none.of([graph.value_by_name["n7"], graph.value_by_name["n9"]])
    assert none.held_bytes == 2 * one


def test_views_take_no_memory():
    sketch = Sketch("views")
    x = sketch.arg("f32[64,64]")
    turned = sketch.transpose(sketch.op("exp", x, name="grown"))
    graph = sketch.finish([turned, sketch.transpose(x)])
    held = Intermediates(graph, [np.ones((64, 64), np.float32)], PLENTY)
    held.of(graph.outputs)
    assert held.held_bytes == 64 * 64 * 4
    assert len(held._held) == 3


def test_what_is_held_is_not_computed_again():
    graph = attention_graph(32, 16)
    inputs = random_inputs(graph, np.random.default_rng(0))
    held = Intermediates(graph, inputs, PLENTY)
    (first,) = held.of(graph.outputs)
    assert held.of(graph.outputs)[0] is first
    assert held.seconds(graph.nodes) > 0
