"""Samples of graphs: what they compute is a part of what the whole graph does."""

import numpy as np
import pytest

from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.samples import sample_of
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph


def judge(graph, most, seed=0):
    """The sample, after its outputs were compared with those of the whole graph; None where there is none."""
    sample = sample_of(graph, most, seed)
    if sample is None:
        return None
    inputs = random_inputs(graph, np.random.default_rng(seed))
    given = sample.inputs(dict(zip(graph.inputs, inputs, strict=True)))
    whole, found, bounds = interpret(graph, *inputs), interpret(sample.graph, *given), bounds_of(sample.graph, given)
    for value, right, part, bound in zip(graph.outputs, whole, found, bounds, strict=True):
        check(value.name, part, sample.of(value, right), bound)
    return sample


def lengths(sample, value):
    return [len(sample.positions[value, a]) if (value, a) in sample.positions else None for a in range(value.type.rank)]


def test_rows_of_a_softmax():
    graph = softmax_graph(1000, 30)
    sample = judge(graph, 2000)
    assert sample.graph.inputs[0].type.shape[1] == 30
    (rows,) = {len(positions) for positions in sample.positions.values()}
    assert 4 <= rows <= 16
    places = sample.positions[graph.inputs[0], 0]
    assert (places[0], places[-1]) == (0, 999)


def test_rows_of_queries_read_all_keys():
    graph = attention_graph(300, 40)
    queries, keys, values = graph.inputs
    sample = judge(graph, 25_000)
    assert lengths(sample, queries)[1] is None
    assert lengths(sample, queries)[0] <= 16
    assert set(lengths(sample, keys)) == {None}
    assert lengths(sample, values)[0] is None


def test_a_product_in_rows_and_columns():
    sketch = Sketch("product")
    graph = sketch.finish([sketch.dot(sketch.arg("f32[500,64]"), sketch.arg("f32[64,400]"))])
    sample = judge(graph, 2000)
    left, right = graph.inputs
    assert lengths(sample, left)[1] is lengths(sample, right)[0] is None
    assert None not in lengths(sample, graph.outputs[0])


@pytest.mark.parametrize("op", ["iota", "constant"])
def test_what_follows_from_its_place_is_of_that_place(op):
    sketch = Sketch("places")
    x = sketch.arg("f32[400,8]")
    if op == "iota":
        places = sketch.op("iota", shape=(400, 8), dtype=x.type.dtype, iota_dimension=0)
    else:
        places = sketch.constant(np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32))
    assert judge(sketch.finish([sketch.op("multiply", x, places)]), 500) is not None


def test_views_and_joins_along_other_axes():
    sketch = Sketch("moved")
    x, y = sketch.arg("f32[600,4,6]"), sketch.arg("f32[600,5]")
    flat = sketch.reshape(x, 600, 24)
    joined = sketch.op("concatenate", flat, y, dimension=1)
    cut = sketch.op("slice", joined, start_indices=(0, 3), limit_indices=(600, 20), strides=(1, 2))
    zero = sketch.constant(np.array(1.5, np.float32))
    padded = sketch.op("pad", cut, zero, edge_padding_low=(0, 2), edge_padding_high=(0, 1), interior_padding=(0, 1))
    graph = sketch.finish([sketch.transpose(sketch.op("reverse", padded, dimensions=(1,)))])
    sample = judge(graph, 2000)
    assert lengths(sample, graph.outputs[0])[0] is None
    assert lengths(sample, graph.outputs[0])[1] < 100


@pytest.mark.parametrize("axis", [0, 1])
def test_along_joined_and_cut_axes_all_is_whole(axis):
    sketch = Sketch("joined")
    shape = "f32[300,4]" if axis == 0 else "f32[4,300]"
    x, y = sketch.arg(shape), sketch.arg(shape)
    joined = sketch.op("concatenate", x, y, dimension=axis)
    assert sample_of(sketch.finish([sketch.reduce(joined, 1 - axis)]), 100) is None


def test_a_sum_of_all_has_no_sample():
    sketch = Sketch("sum")
    assert sample_of(sketch.finish([sketch.reduce(sketch.arg("f32[400,400]"), 0, 1)]), 1000) is None


def test_x_and_its_transpose_are_sampled_alike():
    """Rows and columns of x are one axis then."""
    sketch = Sketch("symmetric")
    x = sketch.arg("f32[300,300]")
    graph = sketch.finish([sketch.op("add", x, sketch.transpose(x))])
    sample = judge(graph, 3000)
    np.testing.assert_array_equal(sample.positions[x, 0], sample.positions[x, 1])


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 200))])
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 12)), extents=(1, 5, 40, 60), max_rank=3)
    if sum(value.type.size for value in graph.values()) < 3_000_000:
        judge(graph, int(rng.integers(1, 2000)), seed)
