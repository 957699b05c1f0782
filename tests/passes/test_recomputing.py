"""Values that wait long for their readers are computed again, exactly, and less is alive at once."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.ir.interpreter import interpret
from autofuse.ir.verifier import verify
from autofuse.passes.choices import read_choices, savings
from autofuse.passes.pipeline import can_change, clean
from autofuse.passes.recomputing import Lives, Recompute, estimated_bytes
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.rareops import ALL_FAMILIES
from autofuse.testing.sketches import Sketch

ROWS, WIDTH = 64, 8


def backward(layers):
    """`x = tanh(x @ w) * sin(x) + x` by layers, and what reads them in the reverse order, as a gradient does."""
    sketch = Sketch("network")
    value = sketch.arg(f"f32[{ROWS},{WIDTH}]")
    weights = [sketch.arg(f"f32[{WIDTH},{WIDTH}]", f"w{number}") for number in range(layers)]
    kept = []
    for weight in weights:
        product = sketch.dot(value, weight)
        bent = sketch.op("tanh", product)
        wave = sketch.op("sin", value)
        kept.append((value, bent, wave))
        value = sketch.op("add", sketch.op("multiply", bent, wave), value)
    for weight, (before, bent, wave) in zip(reversed(weights), reversed(kept), strict=True):
        slope = sketch.op("subtract", bent, sketch.op("multiply", value, wave))
        value = sketch.op("multiply", sketch.dot(slope, sketch.transpose(weight)), before)
    return clean(sketch.finish([value]))


@pytest.mark.parametrize("choices", savings(), ids=lambda choices: choices.label)
def test_what_is_computed_again_is_the_same_bit_for_bit(choices):
    graph = backward(8)
    inputs = random_inputs(graph, np.random.default_rng(0))
    less = clean(graph, choices=choices)
    verify(less)
    for found, expected in zip(interpret(less, *inputs), interpret(graph, *inputs), strict=True):
        assert found.tobytes() == expected.tobytes()


def test_less_is_alive_at_once_and_products_are_computed_once():
    graph = backward(16)
    array = ROWS * WIDTH * 4
    assert Lives.of(graph).peak_bytes >= 2.8 * 16 * array
    assert can_change(graph, read_choices("kept=products"))
    less = Recompute("products").apply(graph)
    assert Lives.of(less).peak_bytes <= 2.2 * 16 * array
    assert [node.op for node in less.nodes].count("dot_general") == [node.op for node in graph.nodes].count(
        "dot_general"
    )
    assert estimated_bytes(less) < estimated_bytes(graph)


def test_of_a_deep_network_a_few_places_are_kept():
    """As memory goes, the square root of the layers is the best of all: four of sixteen, and four again."""
    graph = backward(16)
    peaks = {count: Lives.of(Recompute(count).apply(graph)).peak_bytes for count in ("1", "2", "4", "8")}
    assert peaks["4"] < peaks["2"] < Lives.of(graph).peak_bytes
    assert peaks["4"] < 0.5 * Lives.of(graph).peak_bytes


def test_where_nothing_waits_nothing_changes():
    sketch = Sketch("chain")
    value = sketch.arg("f32[64,8]")
    for _ in range(6):
        value = sketch.reduce(sketch.broadcast(sketch.reduce(sketch.op("tanh", value), 1), value, 0), 1)
        value = sketch.broadcast(value, sketch.arg("f32[64,8]", "y"), 0)
    graph = clean(sketch.finish([value]))
    for choices in savings():
        assert Recompute(choices.kept).apply(graph) is graph


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))])
def test_random_programs_mean_the_same(seed):
    rng = np.random.default_rng(seed)
    graph = clean(random_graph(rng, 60, families=ALL_FAMILIES))
    inputs = random_inputs(graph, rng)
    expected = interpret(graph, *inputs)
    for choices in savings():
        less = Recompute(choices.kept).apply(graph)
        verify(less)
        assert Lives.of(less).peak_bytes <= Lives.of(graph).peak_bytes
        for one, other in zip(interpret(less, *inputs), expected, strict=True):
            assert one.tobytes() == other.tobytes()
