"""Kernels that are weighed before they are lowered: plans cost what they do where all are lowered, or little more."""

from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.userrules import Forbid, bind
from autofuse.lower.tile import TileProgram
from autofuse.measurement.workloads import load
from autofuse.search.policies import promising
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.pricedkernels import may_estimate
from autofuse.search.policies.promising import lower_promising
from autofuse.search.prices.estimates import Estimates
from autofuse.search.prices.pricing import KernelPrices
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import ESTIMATED, UNMEASURED
from autofuse.search.space.enumeration import enumerated
from autofuse.search.space.verdicts import elements
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch, attention_graph, layers_graph

TARGET = CpuTarget(server(2))


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    """Small graphs are weighed too."""
    monkeypatch.setattr(promising, "_FEW", 4)


def both(graph):
    """The contexts in which kernels are weighed, and in which all are lowered."""
    return tuple(context_of(graph, bounds=bounds, target=TARGET) for bounds in (ESTIMATED, UNMEASURED))


def part(sketch, x, begin, end):
    return sketch.op("slice", x, start_indices=(begin,), limit_indices=(end,), strides=(1,))


def waiting(graph):
    """A builder whose kernels of several atoms wait, and prices."""
    context = context_of(graph, target=TARGET)
    builder = SpaceBuilder(AtomGraph(graph), TARGET.limits)
    builder.waits = True
    enumerated(builder, UNMEASURED)
    return builder, KernelPrices(context.model)


# ---- plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [attention_graph(), layers_graph(1)], ids=lambda graph: graph.name)
def test_plans_cost_as_much_as_with_all_prices(graph):
    weighed, priced = both(graph)
    assert Analytical().partition(weighed).price_us <= 1.02 * Analytical().partition(priced).price_us
    assert len(weighed.space.classes) < len(priced.space.classes)
    assert weighed.space.weighed > 0
    assert priced.space.weighed == 0


@pytest.mark.parametrize("seed", [1, 3])
def test_plans_of_random_graphs(seed):
    graph = random_graph(np.random.default_rng(seed), 24)
    weighed, priced = both(graph)
    assert Analytical().partition(weighed).price_us <= 1.15 * Analytical().partition(priced).price_us
    assert all(candidate.lowered is not None for candidate in weighed.space.candidates)


def test_a_deadline_of_none_prices_all_kernels_and_notes_say_what_was_left_out():
    program = load("small_heads")
    arguments = program.inputs("small", 0)
    weighed = af.compile(program.function, *arguments, deadline=600.0)
    priced = af.compile(program.function, *arguments, deadline=None)
    assert any("left out by an estimate" in note for note in weighed.document.notes)
    assert not any("left out by an estimate" in note for note in priced.document.notes)


def test_rules_and_limits_on_memory_want_all_kernels():
    graph = layers_graph(1)
    problem = context_of(graph, target=TARGET).problem
    assert may_estimate(problem)
    first, second = [node.name for node in graph.nodes if node.inputs][:2]
    assert not may_estimate(replace(problem, control=bind([Forbid(first, second)], graph)))
    assert not may_estimate(context_of(graph, memory=1 << 30, target=TARGET).problem)


# ---- what waits ------------------------------------------------------------------------------------------------------


def test_kernels_that_wait_are_lowered_when_they_are_wanted():
    builder, prices = waiting(attention_graph())
    before = [candidate for candidate in builder.space.candidates if candidate.lowered is None]
    assert before
    lower_promising(builder, prices, lambda: False)
    assert builder.space.candidates
    assert all(candidate.lowered is not None for candidate in builder.space.candidates)
    assert not builder.waits
    left_out = {c.atoms for c in before} - {c.atoms for c in builder.space.candidates}
    assert builder.space.weighed >= len(left_out) > 0
    again = builder.try_add(next(iter(left_out)))
    assert again is None or isinstance(again.program, TileProgram)


def test_what_there_was_no_time_to_weigh_is_late():
    builder, prices = waiting(attention_graph())
    lower_promising(builder, prices, lambda: True)
    assert builder.space.late > 0
    assert all(candidate.lowered is not None for candidate in builder.space.candidates)


def test_a_kernel_that_lowering_refuses_leaves_the_space(monkeypatch):
    lowered = SpaceBuilder._lower

    def refusing(builder, kernel, *others):
        return "refused" if len(kernel.nodes) > 6 else lowered(builder, kernel, *others)

    monkeypatch.setattr(SpaceBuilder, "_lower", refusing)
    monkeypatch.setattr(promising, "_FEW", 1000)
    builder, prices = waiting(attention_graph())
    waited = {candidate.atoms for candidate in builder.space.candidates if candidate.lowered is None}
    lower_promising(builder, prices, lambda: False)
    assert all(len(candidate.kernel.nodes) <= 6 for candidate in builder.space.candidates)
    refused = {atoms for atoms in waited if builder.space.refused.get(atoms) == "refused"}
    assert refused
    assert all(builder.try_add(atoms) is None for atoms in refused)


# ---- estimates -------------------------------------------------------------------------------------------------------


def test_estimates_are_near_prices_and_learn():
    context = both(layers_graph(1))[1]
    space, prices = context.space, context.prices(context.space)
    alone = {atom: prices[c.digest] for c in space.candidates if len(c.atoms) == 1 for atom in c.atoms}
    several = [(c, prices[c.digest].predicted_us) for c in space.candidates if len(c.atoms) > 1]
    estimates = Estimates(space.atom_graph, context.model, alone)

    def error():
        return np.median([abs(np.log(us / estimates.us(candidate))) for candidate, us in several])

    first = error()
    assert first < 0.5
    estimates.learn(several[::3])
    assert error() <= first


def test_elements_that_are_computed():
    sketch = Sketch("places")
    x = sketch.op("sin", sketch.arg("f32[64]"))
    left, right = part(sketch, x, 0, 63), part(sketch, x, 1, 64)
    graph = sketch.finish([sketch.op("subtract", right, left)])
    atoms = AtomGraph(graph)
    whole = atoms.candidate(frozenset(atoms.atoms), graph.outputs)
    assert elements(whole) == 1 + 2 + 2  # the difference, two slices, and two sines
    assert elements(whole, most=1) > 1
