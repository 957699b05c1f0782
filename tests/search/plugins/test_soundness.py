"""Partitions of policies that went wrong: each defect is found, and named in words."""

import math
from dataclasses import replace

import pytest

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.userrules import Forbid, Pin, bind
from autofuse.ir.digest import subgraph_digest
from autofuse.lower.schedule import Schedule
from autofuse.search.plans.planning import Tuned
from autofuse.search.plugins.registry import MEASURED, policy_by_name, policy_names
from autofuse.search.plugins.soundness import defect
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.unfused import Unfused
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.testing.fusions import LIMITS
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import sample_graphs
from autofuse.testing.sketches import Sketch, diamond_graph, softmax_graph

GRAPH = softmax_graph(16, 16)


def unfused():
    """peak, shifted, grown, total, share: a kernel each."""
    context = context_of(GRAPH)
    return context, Unfused().partition(context)


def found(change):
    """What is wrong with the unfused partition after a change."""
    context, partition = unfused()
    return defect(change(partition), context)


def with_kernels(change):
    """A change of the list of kernels."""

    def changed(partition):
        return replace(partition, kernels=tuple(change(list(partition.kernels))))

    return changed


def with_known(tuned):
    return lambda partition: replace(partition, known={**partition.known, partition.kernels[0].candidate.digest: tuned})


@pytest.mark.parametrize("name", [name for name in policy_names() if name != MEASURED])
def test_the_partitions_of_every_policy_here_are_sound(name):
    for graph in sample_graphs()[:4]:
        context = context_of(graph)
        assert defect(policy_by_name(name).partition(context), context) is None


def test_kernels_with_a_schedule_of_the_users_are_sound():
    context = context_of(GRAPH, control=bind([Pin("grown", schedule={"unroll": 2})], GRAPH))
    partition = Unfused().partition(context)
    assert len({chosen.candidate.digest for chosen in partition.kernels}) == len(partition.kernels)
    assert defect(partition, context) is None


def test_kernels_that_compute_a_value_for_themselves_are_sound():
    context = context_of(diamond_graph())
    assert defect(Analytical().partition(context), context) is None


def test_what_it_says_was_solved_is_a_solution():
    assert "its solution is a str" in found(lambda partition: replace(partition, solution="optimal"))


def test_it_is_a_partition():
    context, partition = unfused()
    for nothing in (None, [], partition.kernels, Partition):
        assert "not a Partition" in defect(nothing, context)


def elsewhere(partition):
    return Unfused().partition(context_of(softmax_graph(16, 16)))


def second_atoms(partition):
    """The right graph, but kernels of other atoms than the partition names."""
    return replace(partition, atoms=AtomGraph(GRAPH, contract=False))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (elsewhere, "its atoms are of another graph"),
        (second_atoms, "kernel 0 has atoms of another AtomGraph than the partition's"),
        (lambda p: replace(p, atoms=GRAPH), "its atoms are a Graph, not an AtomGraph"),
        (lambda p: replace(p, kernels=None), "its kernels are a NoneType, not a tuple"),
        (lambda p: replace(p, kernels=(c for c in p.kernels)), "its kernels are a generator, not a tuple"),
        (with_kernels(lambda k: [k[0].candidate]), "kernel 0 is a Candidate, not a Chosen"),
        (with_kernels(lambda k: [Chosen("peak", k[0].outputs)]), "kernel 0 has a str for a candidate, not a Candidate"),
        (
            with_kernels(lambda k: [replace(k[0], outputs=("peak",))]),
            "kernel 0 has outputs that are no tuple of values",
        ),
        (with_kernels(lambda k: [replace(k[0], outputs=list(k[0].outputs))]), "outputs that are no tuple of values"),
        (with_kernels(lambda k: [replace(k[0], outputs=())]), "kernel 0 (peak) writes nothing, or a value twice"),
        (
            with_kernels(lambda k: [replace(k[0], candidate=replace(k[0].candidate, atoms=frozenset()))]),
            "kernel 0 has no atoms",
        ),
        (
            with_kernels(lambda k: [replace(k[0], candidate=replace(k[0].candidate, atoms=k[1].candidate.atoms))]),
            "kernel 0 (shifted) was not made by a SpaceBuilder",
        ),
        (
            with_kernels(lambda k: [replace(k[0], candidate=replace(k[0].candidate, digest=k[1].candidate.digest))]),
            "kernel 0 (peak) was not made by a SpaceBuilder",
        ),
        (with_kernels(lambda k: [replace(k[0], outputs=k[1].outputs)]), "kernel 0 (peak) cannot write shifted"),
    ],
)
def test_parts_that_are_not_what_they_must_be(change, words):
    assert words in found(change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_kernels(lambda k: k[:-1]), "no kernel writes share, a result of the program"),
        (with_kernels(lambda k: []), "no kernel writes share, a result of the program"),
        (with_kernels(lambda k: [k[0], *k[2:]]), "no kernel writes shifted, which kernel 1 reads"),
        (
            with_kernels(lambda k: [k[1], k[0], *k[2:]]),
            "kernel 0 stands before the one that writes peak; put it behind",
        ),
        (with_kernels(lambda k: [*k, k[0]]), "kernels 0 and 5 both write peak"),
    ],
)
def test_kernels_that_do_not_make_the_program(change, words):
    assert found(change) == words


def test_kernels_that_wait_for_one_another():
    sketch = Sketch("crossed")
    x = sketch.arg("f32[64]")
    a, c = sketch.op("exp", x, name="a"), sketch.op("tanh", x, name="c")
    b, d = sketch.op("sin", a, name="b"), sketch.op("cos", c, name="d")
    graph = sketch.finish([b, d])
    atoms = AtomGraph(graph, contract=False)
    builder = SpaceBuilder(atoms, LIMITS)
    of = {atom.nodes[0].name: atom for atom in atoms.atoms}
    pairs = [builder.require(frozenset((of[one], of[other]))) for one, other in (("a", "d"), ("c", "b"))]
    partition = Partition(atoms, tuple(Chosen(c, c.outputs) for c in pairs), {}, 0.0)
    assert defect(partition, context_of(graph)) == "kernels wait for one another: 0 for c; 1 for a"


def test_kernels_that_are_no_legal_fusion():
    """Somebody who makes candidates without asking whether they are kernels."""
    graph = diamond_graph()
    atoms = AtomGraph(graph, contract=False)
    builder = SpaceBuilder(atoms, LIMITS)
    alone = {atom.nodes[0].name: builder.require(frozenset((atom,))) for atom in atoms.atoms}
    both = alone["columns"].atoms | alone["rows"].atoms
    outputs = (*alone["columns"].outputs, *alone["rows"].outputs)
    kernel = atoms.candidate(both, outputs)
    joined = replace(alone["columns"], atoms=both, kernel=kernel)
    assert "was not made by a SpaceBuilder" in defect(of_candidates(atoms, joined), context_of(graph))
    joined = replace(joined, digest=subgraph_digest(graph, kernel.nodes, kernel.outputs))
    words = defect(of_candidates(atoms, alone["grown"], joined, alone["share"]), context_of(graph))
    assert words.startswith("kernel 1 (columns, rows) is not a legal fusion: ")
    assert "nested inside another reduction" in words


def of_candidates(atoms, *candidates):
    return Partition(atoms, tuple(Chosen(c, c.outputs) for c in candidates), {}, 1.0)


def test_kernels_that_break_a_rule_of_the_user():
    graph = softmax_graph(16, 16)
    context, free = context_of(graph, control=bind([Forbid("exp", "divide")], graph)), context_of(graph)
    assert "breaks a rule: Forbid('exp', 'divide')" in defect(Analytical().partition(free), context)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: replace(p, price_us=math.nan), "its price_us is nan; it must be a number, finite and not negative"),
        (lambda p: replace(p, price_us=-1.0), "its price_us is -1.0"),
        (lambda p: replace(p, price_us=None), "its price_us is None"),
        (lambda p: replace(p, known=None), "what it knows is a NoneType, not a mapping"),
        (with_known(3.0), "is a float, not a Tuned"),
        (with_known(Tuned(predicted_us=math.nan)), "has predicted_us=nan; it must be None, or finite and not negative"),
        (with_known(Tuned(measured_us=math.inf)), "has measured_us=inf"),
        (with_known(Tuned(predicted_us="3")), "has predicted_us='3'"),
        (with_known(Tuned(bound=3)), "has a bound that is a int, not a text"),
        (with_known(Tuned(schedule={"unroll": 2})), "has a schedule that is a dict, not a Schedule"),
        (
            with_known(Tuned(schedule=Schedule.from_json({"unroll": -1}))),
            "has a schedule that is none: schedule unroll=-1",
        ),
    ],
)
def test_prices_and_schedules_that_are_none(change, words):
    assert words in found(change)


def test_a_schedule_that_the_kernel_cannot_have():
    """Its plan would be refused when it is loaded."""
    words = found(with_known(Tuned(schedule=cpu_schedule(unroll=3))))
    assert words.endswith("a schedule that it cannot have: unroll: must be one of 1, 2, 4, 8 for this kernel, got 3")


def test_a_schedule_that_is_one_is_kept():
    assert found(with_known(Tuned(schedule=cpu_schedule(unroll=2), predicted_us=1.0))) is None
