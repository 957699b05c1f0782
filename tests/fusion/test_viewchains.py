"""Chains of views whose indices grow are cut: what an atom reads takes few divisions, however long the program is."""

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.loops import refusal
from autofuse.fusion.viewchains import MOST_DIVISIONS, ReadIndices, index_divisions
from autofuse.ir.graph import Graph
from autofuse.ir.index import Affine, Symbol, of
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.testing.fusions import LIMITS, whole_kernel
from autofuse.testing.sketches import Sketch

TIMES = 24
"""Of which the index would have 16 million divisions."""


def shuffled(x, times=TIMES, scale=None):
    """Every row-major position moved, again and again."""
    for _ in range(times):
        x = x.T.reshape(x.shape)
        x = x if scale is None else x * scale
    return x


def chain_of(times: int, *, scaled: bool) -> Graph:
    """The graph of `shuffled`."""
    sketch = Sketch("chain")
    value = sketch.arg("f32[5,7]")
    for _ in range(times):
        value = sketch.reshape(sketch.transpose(value), 5, 7)
        value = sketch.op("exp", value) if scaled else value
    return sketch.finish((sketch.op("negate", value),))


def test_divisions_are_counted_as_they_are_written():
    k = of(Symbol("k", 35))
    twice = (k % 5) * 7 + k // 5
    assert [value.divisions() for value in (Affine(3), k * 7, k // 5, twice, twice % 5)] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("scaled", [False, True], ids=["views", "views and work"])
@pytest.mark.parametrize("times", [TIMES, 2 * TIMES])
def test_atoms_of_a_chain_are_many_and_each_is_a_kernel(times, scaled):
    atoms = AtomGraph(chain_of(times, scaled=scaled))
    assert times / 5 < len(atoms.atoms) < times / 2
    for atom in atoms.atoms:
        alone = frozenset((atom,))
        lower(atoms.candidate(alone, atoms.required_outputs(alone)), Schedule(), "k", LIMITS)


def test_short_chains_are_not_cut():
    assert len(AtomGraph(chain_of(3, scaled=True)).atoms) == 1


def test_views_that_simplify_are_not_cut():
    sketch = Sketch("windows")
    value = sketch.arg("f32[8,8,4]")
    for _ in range(TIMES):  # into windows of 4 by 4, and back
        value = sketch.emit("transpose", [sketch.reshape(value, 2, 4, 2, 4, 4)], permutation=(0, 2, 1, 3, 4))
        value = sketch.emit("transpose", [sketch.reshape(value, 2, 2, 4, 4, 4)], permutation=(0, 2, 1, 3, 4))
        value = sketch.reshape(value, 8, 8, 4)
    assert len(AtomGraph(sketch.finish((sketch.op("negate", value),))).atoms) == 1


def test_of_several_readers_the_longest_index_counts():
    sketch = Sketch("two readers")
    x = sketch.arg("f32[5,7]")
    view = sketch.reshape(sketch.transpose(x), 5, 7)
    after = sketch.reshape(sketch.transpose(view), 5, 7)
    graph = sketch.finish((sketch.op("negate", view), sketch.op("negate", after)))
    indices = ReadIndices()
    for node in reversed(graph.nodes):
        assert node.op == "negate" or indices.passed_on(node)
    assert 4 < index_divisions(indices.longest(x)) < MOST_DIVISIONS


def test_a_kernel_of_many_atoms_is_refused_before_its_indices_grow():
    with pytest.raises(LegalityError, match="divisions say which element of %"):
        lower(whole_kernel(chain_of(TIMES, scaled=True)), Schedule(), "k", LIMITS)


def test_plans_of_long_chains_are_right():
    x = np.random.default_rng(3).random((5, 7))
    plan = af.compile(lambda x: shuffled(x, 12, 1.5), x, backend="cpu", policy="greedy", roll=False)
    assert len(plan.kernels) > 1
    np.testing.assert_array_equal(plan(x), shuffled(x, 12, 1.5))


def test_loops_with_long_chains_in_their_bodies_are_driven():
    def steps(x):
        return af.fori_loop(0, 3, lambda _, x: shuffled(x, 8, 1.5), x)

    x = np.random.default_rng(4).random((5, 7))
    graph = af.trace(steps, x)
    (loop,) = [node for node in graph.nodes if node.regions]
    assert "too long" in refusal(loop)
    np.testing.assert_array_equal(af.compile(steps, x, backend="cpu", policy="greedy")(x), shuffled(x, 24, 1.5))
