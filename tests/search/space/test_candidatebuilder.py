"""What the candidate space holds, what it leaves out, and that it says so."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from autofuse.api.programs import traced_program
from autofuse.errors import LegalityError
from autofuse.frontend.traced import trace
from autofuse.fusion.atoms import AtomGraph
from autofuse.lower.limits import as_it_is
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.measurement.workloads import load
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.problem import Problem
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import Bounds
from autofuse.search.space.enumeration import _Enumeration, enumerated
from autofuse.search.space.growth import Growth
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from autofuse.testing.fusions import LIMITS
from autofuse.testing.graphs import random_graph
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import (
    Sketch,
    attention_graph,
    diamond_graph,
    layers_graph,
    peaks_and_sums_graph,
    softmax_graph,
)

DEFAULT = Bounds()


def builder_of(graph):
    return SpaceBuilder(AtomGraph(graph), LIMITS)


def space_of(graph, bounds=DEFAULT):
    return enumerated(builder_of(graph), bounds)


def sets(space):
    return {candidate.atoms for candidate in space.candidates}


@pytest.mark.parametrize(
    ("a_kind", "kinds", "most"),
    [(math.inf, 3, 400), (8, 3, 150), (8, 30, 240), (8, 100, 400), (0, 30, 150)],
)
def test_kernels_that_are_tried_for_a_plan_that_is_not_measured(a_kind, kinds, most):
    assert Bounds(measured=False).most_classes(kinds, a_kind) == most
    assert Bounds().most_classes(kinds, a_kind) == 400


def test_fewer_kernels_are_tried_where_nothing_is_measured():
    graph = layers_graph(3)
    few, usual = SpaceBuilder(AtomGraph(graph), replace(LIMITS, classes_a_kind=8)), builder_of(graph)
    few, usual = enumerated(few, Bounds(measured=False)), enumerated(usual)
    assert few.cut_off > 0
    assert len(few.classes) < len(usual.classes) - 100


def named(space, *names):
    """The set of the atoms that hold the named nodes."""
    return frozenset(atom for atom in space.atom_graph.atoms for node in atom.nodes if node.name in names)


def two_reductions(rows=64, columns=64):
    """Sums over rows and over columns of one value: never one kernel."""
    sketch = Sketch("two reductions")
    x = sketch.arg(f"f32[{rows},{columns}]")
    return sketch.finish([sketch.reduce(x, 0, name="columns"), sketch.reduce(x, 1, name="rows")])


# ---- what is in it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_every_atom_is_a_candidate_whatever_the_bounds(seed):
    graph = random_graph(np.random.default_rng(seed), 20)
    for bounds in (Bounds(), Bounds(1, 1, 1)):
        space = space_of(graph, bounds)
        assert {frozenset((atom,)) for atom in space.atom_graph.atoms} <= sets(space)


@pytest.mark.parametrize("graph", [softmax_graph(), attention_graph()], ids=["softmax", "attention"])
def test_greedy_growth_reaches_the_whole_program_past_the_bounds(graph):
    space = space_of(graph, Bounds(atoms=2, sets_per_atom=2))
    assert frozenset(space.atom_graph.atoms) in sets(space)
    assert space.cut_off > 0


def test_all_intervals_of_a_chain_are_candidates():
    space = space_of(softmax_graph())
    names = ["peak", "grown", "total", "share"]
    wanted = {named(space, *names[i:j]) for i in range(4) for j in range(i + 1, 5)}
    assert wanted <= sets(space)
    assert space.cut_off == 0


@pytest.mark.parametrize("seed", range(8))
def test_no_candidate_waits_for_itself_and_all_lower_with_any_of_their_outputs(seed):
    rng = np.random.default_rng(seed)
    space = space_of(random_graph(rng, 16))
    for candidate in space.candidates:
        waits = space.atom_graph.left_to_others(candidate.atoms)
        assert waits.isdisjoint(candidate.outputs)
        assert candidate.outputs
        kept = [v for v in candidate.outputs if rng.random() < 0.5] or [candidate.outputs[0]]
        lower(space.atom_graph.candidate(candidate.atoms, tuple(kept)), Schedule(), "kernel", LIMITS)


def test_a_path_that_leaves_and_comes_back_is_taken_in():
    sketch = Sketch("detour")
    x = sketch.arg("f32[64,64]")
    first = sketch.reduce(x, 1, name="first")
    middle = sketch.op("exp", sketch.broadcast(first, x, 0), name="middle")
    last = sketch.reduce(sketch.op("add", middle, sketch.broadcast(first, x, 0)), 1, name="last")
    builder = builder_of(sketch.finish([last, middle]))
    space = enumerated(builder)
    assert named(space, "first", "middle", "last") in sets(space)
    with pytest.raises(LegalityError, match="comes back, and %first is not worth doing twice"):
        builder.require(named(space, "first", "last"))


def centred(rows=64, columns=64):
    """Exponentials over their sums down the columns."""
    sketch = Sketch("centred")
    x = sketch.arg(f"f32[{rows},{columns}]")
    y = sketch.op("exp", x, name="y")
    t = sketch.reduce(y, 0, name="t")
    return sketch.finish([sketch.op("divide", y, sketch.broadcast(t, x, 1), name="z")])


def test_a_value_may_be_computed_where_it_is_needed_and_made_elsewhere_too():
    space = space_of(centred())
    (twice,) = [c for c in space.candidates if c.atoms == named(space, "y", "z")]
    assert [value.name for value in twice.outputs] == ["z"]


def test_a_set_that_is_a_kernel_is_not_refused_for_what_it_cannot_write():
    """{y, z} leaves y to others; asked to write it all the same, it is no kernel, and still is one without."""
    builder = builder_of(centred())
    space = enumerated(builder)
    twice = named(space, "y", "z")
    y, z = (space.atom_graph.graph.value_by_name[name] for name in "yz")
    assert builder.try_add(twice, (y, z)) is None
    assert twice not in space.refused
    with pytest.raises(LegalityError, match="a path leaves the set and comes back"):
        builder.require(twice, (y, z))


def test_what_a_path_comes_back_to_must_need_what_it_left():
    """Nothing in {a, c} needs a once the set leaves it to others: b reads it and c reads b."""
    sketch = Sketch("line")
    x = sketch.arg("f32[64,64]")
    a = sketch.op("exp", x, name="a")
    b = sketch.reduce(a, 0, name="b")
    c = sketch.op("tanh", b, name="c")
    builder = SpaceBuilder(AtomGraph(sketch.finish([c]), contract=False), LIMITS)
    with pytest.raises(LegalityError, match="nothing here needs"):
        builder.require(named(builder.space, "a", "c"))


def outputs_of(space, *names):
    atoms = named(space, *names)
    return {tuple(value.name for value in c.outputs) for c in space.candidates if c.atoms == atoms}


def test_a_kernel_may_write_what_others_need_to_compute_a_large_value_once_more():
    space = space_of(peaks_and_sums_graph())
    assert outputs_of(space, "peak", "shifted", "total") == {("shifted", "total"), ("peak", "total")}
    assert outputs_of(space, "shifted", "columns") == {("shifted", "columns")}  # where writing the first is optional
    chosen = Analytical().partition(context_of(peaks_and_sums_graph())).kernels
    assert "shifted" not in {value.name for kernel in chosen for value in kernel.outputs}


def test_what_is_as_large_as_the_value_or_heavy_itself_is_no_reason_to_compute_it_again():
    sketch = Sketch("product")
    x, w = sketch.arg("f32[64,64]"), sketch.arg("f32[64,64]")
    h = sketch.op("tanh", sketch.dot(x, w, name="made"), name="h")
    space = space_of(sketch.finish([sketch.reduce(h, 0, name="columns"), sketch.reduce(h, 1, name="rows")]))
    assert all("made" not in {v.name for v in c.outputs} or len(c.atoms) == 1 for c in space.candidates)


def test_kernels_that_write_less_may_be_left_out():
    space = enumerated(builder_of(peaks_and_sums_graph()), leaner=False)
    assert outputs_of(space, "peak", "shifted", "total") == {("shifted", "total")}


def test_a_kernel_may_be_asked_to_write_less():
    builder = builder_of(diamond_graph())
    whole = builder.require(named(builder.space, "grown", "columns"))
    less = builder.require(whole.atoms, tuple(v for v in whole.outputs if v.name == "columns"))
    assert [v.name for v in whole.outputs] == ["grown", "columns"]
    assert [v.name for v in less.outputs] == ["columns"]
    assert less.digest != whole.digest


def test_readers_of_a_large_value_are_neighbours_and_readers_of_a_small_one_are_not():
    def together(size):
        sketch = Sketch("siblings")
        x = sketch.arg(f"f32[{size}]")
        space = space_of(sketch.finish([sketch.op("exp", x, name="a"), sketch.op("tanh", x, name="b")]))
        return named(space, "a", "b") in sets(space)

    assert together(4096)
    assert not together(64)


def test_what_only_scales_a_sum_ends_the_kernel_that_computes_large_values_for_it_again():
    """A loss of rows: `shifted` is computed where its exponentials are summed, and again where rows are added up."""
    sketch = Sketch("loss")
    x, rows = sketch.arg("f32[2048,512]"), 2048
    peak = sketch.reduce(x, 1, combiner="maximum", name="peak")
    shifted = sketch.op("subtract", x, sketch.broadcast(peak, x, 0), name="shifted")
    total = sketch.reduce(sketch.op("exp", shifted, name="grown"), 1, name="total")
    first = sketch.emit("slice", [shifted], start_indices=(0, 0), limit_indices=(rows, 1), strides=(1, 1))
    loss = sketch.op("subtract", sketch.op("log", total), sketch.reshape(first, rows))
    mean = sketch.op(
        "divide", sketch.reduce(loss, 0, name="sum"), sketch.constant(np.array(rows, np.float32)), name="mean"
    )
    graph = sketch.finish([mean])
    chosen = Analytical().partition(context_of(graph)).kernels
    assert [[value.name for value in kernel.outputs] for kernel in chosen] == [["peak", "total"], ["mean"]]


# ---- what is not in it -----------------------------------------------------------------------------------------------


def test_refusals_are_kept_with_their_reasons():
    space = space_of(two_reductions())
    (reason,) = space.refused.values()
    assert reason.startswith("reduce %")
    assert "nested inside another reduction" in reason
    builder = builder_of(two_reductions())
    with pytest.raises(LegalityError, match="nested inside another reduction"):
        builder.require(frozenset(builder.space.atom_graph.atoms))


def test_recomputation_without_end_is_refused():
    sketch = Sketch("stencils")
    value = sketch.arg("f32[4096]")
    for level in range(6):  # element i reads i and i + 3**level: 64 different elements in all
        size, far = value.type.shape[0], 3**level
        left = sketch.op("slice", value, start_indices=(0,), limit_indices=(size - far,), strides=(1,))
        right = sketch.op("slice", value, start_indices=(far,), limit_indices=(size,), strides=(1,))
        value = sketch.op("tanh", sketch.op("add", sketch.op("sin", left), sketch.op("cos", right)))
    space = space_of(sketch.finish([value]))
    assert frozenset(space.atom_graph.atoms) not in sets(space)
    assert any("scalar" in reason for reason in space.refused.values())
    assert max(len(candidate.atoms) for candidate in space.candidates) >= 2


def test_what_the_bounds_cut_off_is_counted():
    graph = attention_graph()
    assert space_of(graph).cut_off == 0
    few = space_of(graph, Bounds(sets_per_atom=1))
    assert few.cut_off > 0
    assert len(few.candidates) < len(space_of(graph).candidates)
    assert space_of(graph, Bounds(classes=2)).cut_off > 0


class SetClock:
    """A clock on which a second passes with every set that is tried."""

    def build(self, graph, seconds, **bounds):
        self.builder = builder_of(graph)
        return enumerated(self.builder, Bounds(seconds=seconds, **bounds), clock=self)

    def __call__(self):
        return float(len(self.builder.space.candidates) + len(self.builder.space.refused))


@pytest.mark.parametrize("bounds", [{}, {"whole": 0, "segment": 6}], ids=["whole", "segments"])
@pytest.mark.parametrize("seed", range(4))
def test_time_bounds_the_space_and_leaves_a_cover(seed, bounds):
    graph = random_graph(np.random.default_rng(seed), 40)
    full = space_of(graph, Bounds(**bounds))
    atoms = len(full.atom_graph.atoms)
    tried = len(full.candidates) + len(full.refused)
    assert full.late == 0
    for seconds in (0, atoms, (atoms + tried) // 2):
        space = SetClock().build(graph, float(seconds), **bounds)
        assert {frozenset((atom,)) for atom in space.atom_graph.atoms} <= sets(space)
        assert len(space.candidates) + len(space.refused) <= max(atoms, seconds) + 1
        assert 0 < space.late <= space.cut_off
    late = SetClock().build(graph, 10.0 * tried, **bounds)
    assert (late.late, late.cut_off) == (0, full.cut_off)
    assert [c.digest for c in late.candidates] == [c.digest for c in full.candidates]


def test_half_of_the_time_is_for_small_sets_and_each_segment_has_its_share():
    graph = layers_graph(1)
    atoms = len(AtomGraph(graph).atoms)
    space = SetClock().build(graph, atoms + 40.0)
    assert any(len(c.atoms) == atoms for c in space.candidates)
    assert sum(len(c.atoms) == 2 for c in space.candidates) >= 3
    space = SetClock().build(random_graph(np.random.default_rng(3), 60), 200.0, whole=0, segment=6)
    largest = [max(len(c.atoms) for c in space.candidates if c.atoms <= set(s)) for s in space.segments]
    assert len(largest) > 3
    assert min(largest[:-1]) > 1


@pytest.mark.parametrize("bounds", [{}, {"whole": 0, "segment": 20}], ids=["whole", "segments"])
def test_greedy_growth_has_half_of_the_time_of_its_segment(bounds, monkeypatch):
    begun = []  # when small sets were begun, and when the segment must be done
    enumerate_sets = Growth.enumerate

    def noted(growth, atoms):
        begun.append((growth._clock(), growth.stop))
        enumerate_sets(growth, atoms)

    monkeypatch.setattr(Growth, "enumerate", noted)
    graph = random_graph(np.random.default_rng(3), 60)
    atoms = len(AtomGraph(graph).atoms)
    SetClock().build(graph, 1e6, **bounds)
    assert begun[0][0] > atoms + 12  # it would take longer, were there time
    begun.clear()
    space = SetClock().build(graph, atoms + 40.0, **bounds)  # a tenth is for kernels that write less
    segments = max(1, len(space.segments))
    assert len(begun) == segments
    start = float(atoms)
    for number, (half, stop) in enumerate(begun):
        assert stop <= start + (atoms + 36.0 - start) / (segments - number) + 1e-9
        assert half <= (start + stop) / 2 + 1
        start = max(start, stop + 1)


def test_kernels_that_write_less_have_a_tenth_of_the_time(monkeypatch):
    begun = []
    add_leaner = _Enumeration._add_leaner

    def noted(enumeration):
        begun.append((enumeration.clock(), enumeration.growth.stop))
        add_leaner(enumeration)

    monkeypatch.setattr(_Enumeration, "_add_leaner", noted)
    graph = random_graph(np.random.default_rng(3), 60)
    atoms = len(AtomGraph(graph).atoms)
    SetClock().build(graph, atoms + 40.0)
    ((start, stop),) = begun
    assert stop == atoms + 40.0
    assert atoms + 18 < start <= atoms + 37


def test_segments_that_are_alike_end_with_the_time_too():
    bounds = {"whole": 0, "segment": 5}
    graph = layers_graph(6)
    full = SetClock().build(graph, math.inf, **bounds)
    atoms, tried = len(full.atom_graph.atoms), len(full.candidates) + len(full.refused)
    seconds = (atoms + tried) // 2
    space = SetClock().build(graph, float(seconds), **bounds)
    assert len(space.candidates) + len(space.refused) <= seconds + 1
    assert 0 < space.late <= space.cut_off


def test_a_plan_of_a_space_that_time_cut_says_so():
    context = context_of(attention_graph(), bounds=Bounds(seconds=0.0))
    plan = document_of(context, Analytical().partition(context), identity_here())
    late = context.space.late
    assert late == context.space.cut_off > 0
    said = (
        f"; {late} sets of operations were not grown further, for their size or their number; {late} of them for want"
    )
    assert any(said in note for note in plan.notes)


def test_small_sets_come_first_where_a_bound_cuts():
    space = space_of(attention_graph(), Bounds(sets_per_atom=2))
    pairs = [c for c in space.candidates if len(c.atoms) == 2]
    assert len(pairs) >= 5


# ---- classes ---------------------------------------------------------------------------------------------------------


def test_equal_layers_share_classes_and_programs():
    space = space_of(layers_graph(4))
    layers = 4
    singles = [members for members in space.classes.values() if len(members[0].atoms) == 1]
    assert all(len(members) % layers == 0 for members in singles)
    assert all(member.program is members[0].program for members in space.classes.values() for member in members)
    assert len(space.classes) < len(space.candidates) / 2


def test_a_digest_stands_for_one_signature():
    for graph in (attention_graph(), diamond_graph(), layers_graph(3)):
        for members in space_of(graph).classes.values():
            types = {tuple(sorted(str(v.type) for v in member.kernel.inputs)) for member in members}
            assert len(types) == 1


SCRIPT = """
import numpy as np
from autofuse.fusion.atoms import AtomGraph
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import Bounds
from autofuse.search.space.enumeration import enumerated
from autofuse.testing.fusions import LIMITS
from autofuse.testing.graphs import random_graph
from autofuse.testing.sketches import layers_graph
for graph in (layers_graph(2), *(random_graph(np.random.default_rng(seed), 16) for seed in range(4))):
    space = enumerated(SpaceBuilder(AtomGraph(graph), LIMITS), Bounds(sets_per_atom=6))
    for candidate in space.candidates:
        print(sorted(a.number for a in candidate.atoms), candidate.digest, [v.name for v in candidate.outputs])
    print(space.cut_off, list(space.refused.values()))
"""


def test_every_process_enumerates_the_same_candidates_in_the_same_order():
    def run(seed):
        path = os.pathsep.join(sys.path)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True)
        return done.stdout

    first = run("1")
    assert first.count(b"\n") > 50
    assert first == run("2")


@pytest.mark.slow
def test_the_passes_of_a_target_do_not_change_what_is_a_kernel():
    """They leave fewer scalars than were lowered; how many there may be is about those that were lowered."""
    workload = load("jacobi_2d")
    program = traced_program(trace(workload.function, *workload.inputs()))
    found = []
    for limits in (LIMITS, replace(LIMITS, passes=as_it_is)):
        target = CpuTarget(server(LIMITS.workers), limits)
        found.append(Context.of(Problem(program, target), target.cost_model()).space)
    with_passes, without = ([candidate.digest for candidate in space.candidates] for space in found)
    assert with_passes == without
