from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

from autofuse.errors import GraphError
from autofuse.frontend.traced import trace
from autofuse.ir.digest import digest
from autofuse.ir.interpreter import interpret
from autofuse.ir.tree import flatten
from autofuse.ir.verifier import verify
from autofuse.measurement.workloads import load
from autofuse.passes import pipeline
from autofuse.passes.common_subexpressions import MergeCommon
from autofuse.passes.outputs import MaterialiseOutputs
from autofuse.passes.pipeline import clean, passes_for
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.rareops import ALL_FAMILIES, families

ALL_PASSES = (*passes_for("strict"), *passes_for("fast"), MaterialiseOutputs())
# Reductions of floats may run in another order after clean-up; without them every bit must stay.
EXACT = families(*(set(ALL_FAMILIES) - {"reduce", "dot", "window", "contraction", "opaque"}))


def _graph(seed, nodes=30, **options):
    return random_graph(np.random.default_rng(seed), nodes, **options)


@pytest.mark.parametrize("step", ALL_PASSES, ids=lambda step: step.name)
def test_a_pass_is_a_frozen_dataclass_with_a_name_and_a_contract(step):
    assert dataclasses.is_dataclass(step)
    assert type(step).__dataclass_params__.frozen
    assert step == dataclasses.replace(step)
    assert step.name == type(step).name
    assert len(inspect.getdoc(step) or "") > 80


@pytest.mark.parametrize("step", ALL_PASSES, ids=lambda step: step.name)
@pytest.mark.parametrize("seed", range(4))
def test_a_pass_keeps_inputs_types_and_the_graph_it_cannot_improve(step, seed):
    graph = _graph(seed)
    after = step.apply(graph)
    verify(after)
    assert after.inputs == graph.inputs
    assert [value.type for value in after.outputs] == [value.type for value in graph.outputs]
    assert after.name == graph.name
    if step != MaterialiseOutputs():
        for _ in range(3):
            again, after = after, step.apply(after)
        assert after is again


def test_a_pass_that_goes_wrong_is_named(monkeypatch):
    def shortened(step, graph):
        return dataclasses.replace(graph, nodes=graph.nodes[1:])

    graph = clean(_graph(3))
    monkeypatch.setattr(MergeCommon, "apply", shortened)
    with pytest.raises(GraphError, match=f"after {MergeCommon.name}: "):
        clean(graph)


@pytest.mark.parametrize("seed", range(40))
def test_cleaning_keeps_every_bit_and_cleaning_again_changes_nothing(seed):
    graph = _graph(seed, families=EXACT)
    after = clean(graph)
    assert len(after.nodes) <= len(graph.nodes) + len(graph.outputs)
    assert digest(clean(after)) == digest(after)
    arrays = random_inputs(graph, np.random.default_rng(seed))
    for old, new in zip(interpret(graph, *arrays), interpret(after, *arrays), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("seed", range(40))
def test_every_op_family_survives_cleaning(seed):
    graph = _graph(seed, families=ALL_FAMILIES)
    after = clean(graph)
    assert digest(clean(after)) == digest(after)
    arrays = random_inputs(graph, np.random.default_rng(seed))
    for old, new in zip(interpret(graph, *arrays), interpret(after, *arrays), strict=True):
        # sums of at most some hundred f32 of like magnitude, in another order
        np.testing.assert_allclose(new.astype(np.float64), old.astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_fast_numerics_are_near(seed):
    graph = _graph(seed)
    after = clean(graph, "fast")
    arrays = random_inputs(graph, np.random.default_rng(seed))
    for old, new in zip(interpret(graph, *arrays), interpret(after, *arrays), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)  # some roundings of f32, reassociated


def test_outputs_are_distinct_computed_values(sketch):
    x = sketch.arg("f32[4]")
    doubled = sketch.emit("multiply", [x, sketch.splat(2.0, x)], name="doubled")
    same = sketch.emit("multiply", [x, sketch.splat(2.0, x)], name="same")
    kept = sketch.emit("multiply", [x, sketch.splat(1.0, x)], name="kept")
    two = sketch.emit("add", [sketch.splat(1.0, x), sketch.splat(1.0, x)], name="two")
    graph = sketch.finish([doubled, same, kept, x, two])
    after = clean(graph)
    assert len(set(after.outputs)) == 5
    assert all(after.producers[value].op not in ("constant", "iota") for value in after.outputs)
    assert after.outputs[0].name == "doubled"
    again = clean(after)
    assert [value.name for value in again.outputs] == [value.name for value in after.outputs]


def test_names_that_survive_are_those_of_the_program():
    graph = trace(load("layer_norm_backward").function, *load("layer_norm_backward").inputs("small")).graph
    after = clean(graph)
    types = {value.name: value.type for value in graph.values()}
    kept = [value for value in after.values() if value.name in types]
    assert len(kept) > len(list(after.values())) / 2
    assert all(types[value.name] == value.type for value in kept)
    assert all(node.location is not None for node in after.nodes)


@pytest.mark.parametrize("name", ["attention", "bert_layer", "heat_3d", "mandelbrot", "normalise", "cartpole_step"])
def test_programs_compute_the_same_with_less(name):
    program = load(name)
    traced = trace(program.function, *program.inputs("small")).graph
    after = clean(traced)
    assert len(after.nodes) <= len(traced.nodes)
    arrays = flatten(program.inputs("small"), lambda value: isinstance(value, np.ndarray))[0]
    for old, new in zip(interpret(traced, *arrays), interpret(after, *arrays), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-6)  # f32 sums, perhaps in another order


@pytest.mark.parametrize("name", ["attention", "concat_users", "gru_cell", "layer_norm_backward", "normalise", "hdiff"])
def test_the_order_of_the_passes_does_not_matter(name, monkeypatch):
    program = load(name)
    traced = trace(program.function, *program.inputs("small")).graph
    expected, usual = digest(clean(traced)), passes_for("strict")
    rng = np.random.default_rng(0)
    for _ in range(5):
        shuffled = [usual[number] for number in rng.permutation(len(usual))]
        monkeypatch.setattr(pipeline, "passes_for", lambda *_, shuffled=shuffled: shuffled)
        assert digest(clean(traced)) == expected


def test_the_mean_that_two_functions_compute_is_computed_once(ops):
    program = load("normalise")
    after = clean(trace(program.function, *program.inputs("small")).graph)
    assert ops(after).count("reduce") == 2  # traced: the mean, the mean inside the deviation, the deviation


@pytest.mark.slow
def test_large_graphs_settle():
    graph = _graph(0, 2000)
    after = clean(graph)
    assert len(after.nodes) < len(graph.nodes)
    assert digest(clean(after)) == digest(after)
