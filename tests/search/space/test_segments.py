"""Cut points, and programs that are searched in segments."""

import numpy as np
import pytest

from autofuse.errors import ArgumentError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.userrules import Forbid, bind
from autofuse.plan.verify import verify
from autofuse.search.policies.analytical import Analytical, bound_at, solve_at
from autofuse.search.policies.documents import document_of
from autofuse.search.space import enumeration as space_module
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import Bounds
from autofuse.search.space.enumeration import enumerated
from autofuse.search.space.segments import crossing_bytes, cut, depth_first, structure
from autofuse.testing.fusions import LIMITS, check_plan
from autofuse.testing.graphs import random_graph, random_inputs
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.search_policies import SearchPolicyContract
from autofuse.testing.sketches import Sketch, layers_graph
from tests.fixtures.benches import MS, CountedBench, unscheduled
from tests.fixtures.tuning import counted, tuned

LAYER = 5
"""Atoms of a layer of `layers_graph`."""


def numbers(segments):
    return [[atom.number for atom in segment] for segment in segments]


def bytes_of(graph):
    return crossing_bytes(graph, graph.atoms)


def chain(length, size=1024):
    sketch = Sketch("chain")
    value = sketch.arg(f"f32[{size}]")
    for _ in range(length):
        value = sketch.op("tanh", value)
    return AtomGraph(sketch.finish([value]), contract=False)


def waist():
    """Two stages of three operations; all that the second one needs of the first is a sum."""
    sketch = Sketch("waist")
    x, y = sketch.arg("f32[1024]"), sketch.arg("f32[1024]", "y")
    total = sketch.reduce(sketch.op("tanh", sketch.op("exp", x)), 0)
    scaled = sketch.op("multiply", y, sketch.broadcast(total, y))
    return AtomGraph(sketch.finish([sketch.op("tanh", sketch.op("exp", scaled))]), contract=False)


def segmented(graph, most):
    """A context in which every graph is cut into segments of at most so many atoms."""
    return context_of(graph, bounds=Bounds(whole=0, segment=most))


# ---- where to cut ----------------------------------------------------------------------------------------------------


def test_what_crosses_each_position():
    assert bytes_of(waist()) == [0, 4096, 4096, 4, 4096, 4096, 0]


def test_a_value_crosses_until_its_last_reader():
    sketch = Sketch("long")
    first = sketch.op("exp", sketch.arg("f32[256]"))
    second = sketch.op("tanh", first)
    graph = AtomGraph(sketch.finish([sketch.op("add", sketch.op("sin", second), first)]), contract=False)
    assert bytes_of(graph) == [0, 1024, 2048, 2048, 0]


def test_the_cut_is_where_little_crosses():
    assert numbers(cut(waist(), 4)) == [[0, 1, 2], [3, 4, 5]]


def test_of_equal_cuts_the_last_segments_are_the_longest():
    assert [len(segment) for segment in cut(chain(7), 3)] == [1, 3, 3]


def test_cuts_that_cost_the_same_make_equal_segments():
    """Exponentials and tangents in turn: segments of five would begin with either."""
    sketch = Sketch("turns")
    value = sketch.arg("f32[1024]")
    for number in range(12):
        value = sketch.op(("exp", "tanh")[number % 2], value)
    graph = AtomGraph(sketch.finish([value]), contract=False)
    segments = cut(graph, 5)
    assert [len(segment) for segment in segments] == [4, 4, 4]
    assert len(set(shapes_of(graph, segments))) == 1


def test_a_small_graph_is_one_segment():
    graph = chain(4)
    assert cut(graph, 4) == (graph.atoms,)
    empty = Sketch("empty")
    assert cut(AtomGraph(empty.finish([empty.arg("f32[4]")])), 4) == ((),)


@pytest.mark.parametrize("seed", range(6))
def test_segments_are_all_atoms_in_order_and_no_larger_than_allowed(seed):
    graph = AtomGraph(random_graph(np.random.default_rng(seed), 40))
    for most in (1, 2, 3, 5, 8, 13):
        segments = cut(graph, most)
        joined = sum(segments, ())
        assert joined in (graph.atoms, depth_first(graph))
        assert set(joined) == set(graph.atoms)
        place = {atom: number for number, atom in enumerate(joined)}
        assert all(place[maker] < place[atom] for atom in joined for maker in graph.predecessors[atom])
        assert len(segments) == 1 or all(max(1, most // 4) <= len(segment) <= most for segment in segments)


def test_a_segment_of_nothing_is_refused():
    with pytest.raises(ArgumentError, match="segment=0 must be a positive number of atoms"):
        cut(chain(2), 0)


def test_steps_over_many_arrays_are_cut_between_arrays():
    """As an optimiser is written: each step for all of its arrays before the next one."""
    sketch = Sketch("optimiser")
    values = [sketch.arg("f32[1024]", f"x{number}") for number in range(8)]
    for op in ("exp", "tanh", "sin"):
        values = [sketch.op(op, value) for value in values]
    graph = AtomGraph(sketch.finish(values), contract=False)
    segments = cut(graph, 6)
    assert numbers(segments) == [
        [0, 8, 16, 1, 9, 17],
        [2, 10, 18, 3, 11, 19],
        [4, 12, 20, 5, 13, 21],
        [6, 14, 22, 7, 15, 23],
    ]
    assert len(set(shapes_of(graph, segments))) == 1
    parts = Analytical().partition(segmented(graph.graph, 6))
    assert len(parts.kernels) == 8


# ---- equal segments --------------------------------------------------------------------------------------------------


def shapes_of(graph, segments):
    builder = SpaceBuilder(graph, LIMITS)
    alone = {atom: builder.require(frozenset((atom,))).digest for atom in graph.atoms}
    return [structure(graph, segment, alone) for segment in segments]


def test_equal_layers_have_equal_structure():
    graph = AtomGraph(layers_graph(3))
    segments = [graph.atoms[n * LAYER : (n + 1) * LAYER] for n in range(3)]
    assert len(set(shapes_of(graph, segments))) == 1
    assert len(set(shapes_of(graph, [segments[0], segments[0][1:], segments[0][:-1]]))) == 3


@pytest.mark.parametrize("change", ["op", "wiring", "kept"])
def test_what_differs_in_structure(change):
    """Twice an exponential and a product with it; the second time something is different."""
    sketch = Sketch("pairs")
    x, y = sketch.arg("f32[64]"), sketch.arg("f32[64]", "y")
    first = sketch.op("exp", x)
    one = sketch.op("multiply", first, x)
    second = sketch.op("tanh" if change == "op" else "exp", y)
    other = sketch.op("multiply", second, x if change == "wiring" else y)
    outputs = [one, other, second] if change == "kept" else [one, other]
    graph = AtomGraph(sketch.finish(outputs), contract=False)
    assert len(graph.atoms) == 4
    assert len(set(shapes_of(graph, [graph.atoms[:2], graph.atoms[2:]]))) == 2


# ---- the space -------------------------------------------------------------------------------------------------------


def space_of(graph, most, **bounds):
    return enumerated(SpaceBuilder(AtomGraph(graph), LIMITS), Bounds(whole=0, segment=most, **bounds))


def found(space):
    return [sorted(atom.number for atom in candidate.atoms) for candidate in space.candidates]


@pytest.mark.parametrize("seed", range(6))
def test_no_candidate_crosses_a_cut(seed):
    space = space_of(random_graph(np.random.default_rng(seed), 30), 4)
    home = {atom: number for number, segment in enumerate(space.segments) for atom in segment}
    assert len(space.segments) > 1
    assert all(len({home[atom] for atom in candidate.atoms}) == 1 for candidate in space.candidates)
    assert {frozenset((atom,)) for atom in space.atom_graph.atoms} <= {c.atoms for c in space.candidates}
    assert any(len(candidate.atoms) > 1 for candidate in space.candidates)


def test_a_graph_that_is_not_large_is_searched_whole():
    space = enumerated(SpaceBuilder(AtomGraph(layers_graph(2)), LIMITS), Bounds(whole=2 * LAYER, segment=LAYER))
    assert space.segments == ()
    assert any(chosen[0] < LAYER <= chosen[-1] for chosen in found(space))


def test_equal_segments_have_the_same_sets():
    space = space_of(layers_graph(4), LAYER)
    assert [len(segment) for segment in space.segments] == [LAYER] * 4
    sets = found(space)
    layers = [[[n - k * LAYER for n in s] for s in sets if s[0] // LAYER == k] for k in range(4)]
    assert all(layer == layers[0] for layer in layers)
    assert list(range(LAYER)) in layers[0]


def test_equal_segments_have_the_sets_that_each_would_have_by_itself(monkeypatch):
    shared = space_of(layers_graph(4), 2 * LAYER)
    monkeypatch.setattr(space_module, "structure", lambda graph, segment, alone: segment[0].number)
    apart = space_of(layers_graph(4), 2 * LAYER)
    assert sorted(found(shared)) == sorted(found(apart))
    assert shared.cut_off == apart.cut_off


def test_what_the_bounds_cut_off_in_equal_segments_is_counted_in_each():
    bounds = {"sets_per_atom": 2}
    one = enumerated(SpaceBuilder(AtomGraph(layers_graph(1)), LIMITS), Bounds(**bounds))
    four = space_of(layers_graph(4), LAYER, **bounds)
    assert one.cut_off > 0
    assert four.cut_off == 4 * one.cut_off


def test_segments_without_an_equal_share_the_kernels_that_may_be_tried():
    graph = random_graph(np.random.default_rng(3), 60)
    few, many = space_of(graph, 6, classes=2), space_of(graph, 6)
    assert few.cut_off > many.cut_off
    assert len(few.candidates) < len(many.candidates)


def test_rules_of_users_are_kept_in_segments():
    graph = layers_graph(4)
    first = next(node.name for node in graph.nodes if node.op == "reduce")
    reader = next(node.name for node in graph.nodes if node.op == "tanh")
    control = bind([Forbid(f"%{first}", f"%{reader}")], graph)
    space = enumerated(SpaceBuilder(AtomGraph(graph, control=control), LIMITS), Bounds(whole=0, segment=LAYER))
    names = [{node.name for atom in c.atoms for node in atom.nodes} for c in space.candidates]
    assert not any({first, reader} <= inside for inside in names)
    assert {frozenset((atom,)) for atom in space.atom_graph.atoms} <= {c.atoms for c in space.candidates}


# ---- plans -----------------------------------------------------------------------------------------------------------


class InSegments:
    """The cheapest partition of segments of three atoms."""

    name = "in segments"

    def partition(self, context):
        return Analytical().partition(context.within(Bounds(whole=0, segment=3)))


class TestInSegments(SearchPolicyContract):
    def policy(self):
        return InSegments()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [1, 3, 5])
def test_segments_cost_no_less_than_the_whole(seed, most):
    """On one space, of which the segments leave out the kernels across the cuts."""
    context = context_of(random_graph(np.random.default_rng(seed), 16))
    space = context.space
    prices = {digest: price.predicted_us for digest, price in context.prices(space).items()}
    whole = solve_at(context, space, prices)
    space.segments = cut(space.atom_graph, most)
    parts = solve_at(context, space, prices)
    assert parts.optimal
    assert parts.segments == max(1, len(space.segments))
    assert parts.price_us >= whole.price_us * (1 - 1e-5)
    assert bound_at(context, space, prices) <= parts.price_us * (1 + 1e-9)
    assert parts.bound_us <= parts.price_us


def test_nothing_is_lost_where_the_cut_separates_unconnected_parts():
    sketch = Sketch("two")
    inputs = sketch.arg("f32[64,64]"), sketch.arg("f32[64,64]", "y")
    graph = sketch.finish([sketch.op("tanh", sketch.reduce(x, 1)) for x in inputs])
    whole, parts = Analytical().partition(context_of(graph)), Analytical().partition(segmented(graph, 2))
    assert parts.solution.segments == 2
    assert parts.price_us == pytest.approx(whole.price_us, rel=1e-6)


def test_segments_cost_what_they_would_as_programs_of_their_own():
    one, four = layers_graph(1, 256, 256), layers_graph(4, 256, 256)
    parts = Analytical().partition(segmented(four, LAYER))
    assert parts.solution.segments == 4
    assert parts.price_us == pytest.approx(4 * Analytical().partition(context_of(one)).price_us, rel=1e-5)


def test_a_plan_of_segments_says_so_and_computes_the_same():
    graph = layers_graph(3, 8, 8)
    context = segmented(graph, LAYER)
    document = document_of(context, Analytical().partition(context), identity_here())
    verify(document)
    (note,) = [note for note in document.notes if "segments" in note]
    assert "searched in 3 segments" in note
    assert "no kernel crosses a cut" in note
    assert "what was chosen in each segment is the cheapest there under these costs" in document.notes
    check_plan(document, random_inputs(graph, np.random.default_rng(0)))
    whole = context_of(graph)
    assert not any("segments" in n for n in document_of(whole, Analytical().partition(whole), identity_here()).notes)


def test_segments_are_measured_and_certified():
    graph = layers_graph(4, 16, 16)
    context = counted(graph, bounds=Bounds(whole=0, segment=LAYER))
    plan = tuned(graph, CountedBench(graph, unscheduled()), context=context)
    verify(plan)
    assert any("searched in 4 segments" in note for note in plan.notes)
    slow = CountedBench(graph, plan=lambda plan, ns: 100 * MS / len(plan.kernels))
    unfused = tuned(graph, slow, context=context)
    assert "accepted partition: unfused" in unfused.notes
    assert sum("searched in 4 segments" in note for note in unfused.notes) == 1
    certificate = plan.certificate
    assert 0 < certificate.floor_bound_us <= certificate.sum_us
    assert certificate.statistical_bound_us <= certificate.sum_us * (1 + 1e-6)
