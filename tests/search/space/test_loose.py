"""Numbers that tie many arrays together: no kernels are tried across them, and none of worth is lost."""

import numpy as np
import pytest

from autofuse.fusion.atoms import AtomGraph
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.documents import document_of
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.enumeration import enumerated
from autofuse.search.space.loose import LooseTies
from autofuse.testing.fusions import LIMITS, check_plan
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import Sketch


def clipped(arrays, size):
    """Arrays scaled by the norm of all, then added to others: an optimiser's beginning."""
    sketch = Sketch("clipped")
    values = [sketch.arg(f"f32[{size + 8 * number}]", f"x{number}") for number in range(arrays)]
    others = [sketch.arg(str(value.type), f"y{number}") for number, value in enumerate(values)]
    total = None
    for value in values:
        square = sketch.reduce(sketch.op("multiply", value, value), 0)
        total = square if total is None else sketch.op("add", total, square)
    norm = sketch.op("sqrt", total, name="norm")
    scaled = [sketch.op("divide", value, sketch.broadcast(norm, value)) for value in values]
    return sketch.finish([one for s, y in zip(scaled, others, strict=True) for one in (s, sketch.op("add", s, y))])


def sets(graph):
    """The sets of more than one atom in the space of a graph, as names of operations, and how many were cut off."""
    space = enumerated(SpaceBuilder(AtomGraph(graph), LIMITS))
    found = [{node.op for atom in c.atoms for node in atom.nodes} for c in space.candidates if len(c.atoms) > 1]
    return found, space.cut_off


def test_a_norm_of_many_arrays_is_a_kernel_apart():
    """Each array's kernel writes two results; the norm's own kernel is the only one with its root."""
    found, cut_off = sets(clipped(10, 1024))
    assert cut_off == 0
    assert {"divide", "add"} in found
    assert not any("sqrt" in ops for ops in found)


@pytest.mark.parametrize(("arrays", "size"), [(4, 1024), (10, 16)])
def test_few_arrays_and_small_ones_are_tried_together_with_their_norm(arrays, size):
    assert any("sqrt" in ops for ops in sets(clipped(arrays, size))[0])


def test_a_set_is_refused_for_both_ends_of_a_tie_only():
    graph = AtomGraph(clipped(10, 1024))
    ties = LooseTies(graph)
    norm = next(atom for atom in graph.atoms if any(node.name == "norm" for node in atom.nodes))
    (first, *_), (maker, *_) = graph.successors[norm], graph.predecessors[norm]
    assert ties.hold(frozenset((norm, first)))
    assert ties.hold(frozenset((norm, maker)))
    assert not ties.hold(frozenset((first, maker)))
    assert not ties.hold(frozenset((norm,)))


def test_the_plan_of_many_arrays_has_one_kernel_for_each_step_of_each():
    graph = clipped(10, 1024)
    context = context_of(graph)
    document = document_of(context, Analytical().partition(context), identity_here())
    assert len(document.kernels) == 10 + 1 + 10
    check_plan(document, random_inputs(graph, np.random.default_rng(0)))
