"""A deadline for choosing fusions: what is tried in which order, and that the plan says so. The clock is a counter."""

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest

from autofuse.errors import SearchError
from autofuse.fusion.codesize import MOST_CODE, code_size
from autofuse.search.policies import deadline as module
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.deadline import BUDGETED, DECIDED, Deadline, choose
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.greedy import Beam, Greedy
from autofuse.search.policies.pricedkernels import Kernels
from autofuse.search.policies.unfused import Unfused
from autofuse.search.policies.workclock import WorkClock
from autofuse.search.space.candidates import Bounds
from autofuse.testing.partitions import context_of, identity_here
from autofuse.testing.sketches import Sketch, layers_graph, softmax_graph


def ticking(step):
    """A clock that goes on by so many seconds each time somebody looks at it."""
    ticks = itertools.count()
    return lambda: next(ticks) * step


def chosen(graph, policy=None, step=0.0, seconds=1.0, context=None):
    context = context or context_of(graph)
    return choose(policy or Analytical(), context, Deadline(seconds, ticking(step)), identity_here())[1]


def kernels(partition):
    return [(kernel.candidate.digest, [value.name for value in kernel.outputs]) for kernel in partition.kernels]


def covers(partition, graph):
    """Whether the kernels, in their order, make all that they and the program's caller need."""
    made = set(graph.inputs)
    for kernel in partition.kernels:
        assert made.issuperset(v for v in kernel.candidate.kernel.inputs if graph.producers.get(v) is not None)
        made.update(kernel.outputs)
    return made.issuperset(graph.outputs)


def unrolled(steps, width=64):
    """An unrolled loop of two states, each a value that a kernel can write."""
    build = Sketch("unrolled")
    x, v = build.arg(f"f32[{width}]"), build.arg(f"f32[{width}]")
    for _ in range(steps):
        v = build.op("subtract", v, build.op("sin", x))
        x = build.op("add", x, v)
    return build.finish([x, v])


@pytest.mark.parametrize("policy", [Analytical(), Greedy(), Beam()], ids=lambda policy: policy.name)
def test_a_search_that_ends_in_time_gives_what_it_gives_without_a_deadline(policy):
    graph = layers_graph(1)
    hurried = chosen(graph, policy)
    assert kernels(hurried) == kernels(policy.partition(context_of(graph)))
    assert not any(note.startswith(DECIDED) for note in hurried.notes)


@pytest.mark.parametrize("step", [0.001, 0.02, 0.05])
def test_what_was_chosen_is_of_the_context_that_is_returned(step):
    asked = context_of(layers_graph(2))
    context, partition = choose(Analytical(), asked, Deadline(1.0, ticking(step)), identity_here())
    notes = document_of(context, partition, identity_here()).notes
    assert partition.atoms is context.space.atom_graph
    assert any(note.startswith("searched ") for note in notes) == (context.space.cut_off > 0)
    assert asked.kernels.known is None  # whoever asked enumerates its own


@pytest.mark.parametrize("step", [0.001, 0.003, 0.01, 0.1, 2.0])
@pytest.mark.parametrize("policy", [Analytical(), Greedy(), Beam()], ids=lambda policy: policy.name)
def test_however_little_time_there_is_a_plan_is_found(policy, step):
    graph = layers_graph(2)
    partition = chosen(graph, policy, step)
    assert covers(partition, graph)


def test_a_plan_that_the_deadline_decided_says_so():
    partition = chosen(layers_graph(2), step=0.02)
    (note,) = (note for note in partition.notes if note.startswith(DECIDED))
    assert "deadline of 1 s decided, so another run may choose otherwise" in note
    assert "no time to try all kernels of the whole program" in note
    assert "deadline=None" in note


def ways_tried(monkeypatch, steps):
    """The ways that were tried, where each of the first `steps` finds nothing."""
    tried = []
    original = module._Hurried._tried

    def counted(self, way):
        tried.append(way)
        found = original(self, way)
        if len(tried) <= steps:
            self.missed.append("made to miss")
            return None
        return found

    monkeypatch.setattr(module._Hurried, "_tried", counted)
    partition = chosen(layers_graph(1))
    return len(tried), partition


@pytest.mark.parametrize(
    ("failing", "words"),
    [(1, "its segments"), (2, "merging greedily"), (3, "a kernel per operation")],
)
def test_segments_then_greedy_then_a_kernel_per_operation(monkeypatch, failing, words):
    tried, partition = ways_tried(monkeypatch, failing)
    assert tried == failing + 1
    assert f"chosen: what {words} gave" in partition.notes[-1]


def test_the_cheapest_of_what_was_found_is_kept(monkeypatch):
    usual = Unfused().partition(context_of(layers_graph(1)))

    def ways(self):
        for words, price_us in (("one way", 3.0), ("another", 1.0), ("a third", 2.0)):
            yield (
                words,
                lambda price_us=price_us: self.missed.append("made to miss") or replace(usual, price_us=price_us),
            )

    monkeypatch.setattr(module._Hurried, "_ways", ways)
    partition = chosen(layers_graph(1))
    assert partition.price_us == 1.0
    assert "chosen: what another gave" in partition.notes[-1]


def test_the_time_that_is_left_goes_by():
    now = [5.0]
    deadline = Deadline(10.0, lambda: now[0])
    assert (deadline.left(), deadline.left(0.5)) == (10.0, 5.0)
    now[0] = 11.0
    assert (deadline.left(), deadline.left(0.5)) == (4.0, 0.0)
    assert (deadline.is_over(), deadline.is_over(0.5)) == (False, True)


def test_each_step_ends_with_its_share_of_the_time(monkeypatch):
    now, given = [0.0], {}
    deadline, context = Deadline(1.0, lambda: now[0]), context_of(layers_graph(1))
    usual = Unfused().partition(context)
    monkeypatch.setattr(Analytical, "partition", lambda _, context: given.update(solve=context.deadline_s) or usual)
    monkeypatch.setattr(Kernels, "keep_priced", lambda _, is_late: given.update(is_late=is_late) or 0)
    monkeypatch.setattr(
        module, "merged", lambda context, _, clock: given.update(merge=context.deadline_s, clock=clock) or usual
    )
    hurried = module._Hurried(Analytical(), context, deadline, identity_here())
    now[0] = 0.25
    hurried._price(0.5)
    hurried._chosen(0.65)
    hurried._merged(Greedy())
    assert (given["solve"], given["merge"]) == (pytest.approx(0.4), pytest.approx(0.97 - 0.25))
    assert given["clock"] is deadline.clock
    assert not given["is_late"]()
    now[0] = 0.5
    assert given["is_late"]()


def test_the_last_way_is_the_unfused_plan(monkeypatch):
    _, partition = ways_tried(monkeypatch, 3)
    assert kernels(partition) == kernels(Unfused().partition(context_of(layers_graph(1))))


def test_other_policies_decide_as_they_do():
    graph = layers_graph(1)
    assert kernels(chosen(graph, Unfused(), step=5.0)) == kernels(Unfused().partition(context_of(graph)))


def test_a_limit_on_memory_holds_under_a_deadline():
    graph = softmax_graph()
    context = context_of(graph, memory=1)
    with pytest.raises(SearchError, match="max_memory"):
        chosen(graph, step=0.05, context=context)


def test_greedy_growth_lowers_no_more_than_it_may():
    graph = unrolled(40)
    context = context_of(graph, bounds=Bounds(atoms=1, grown_nodes=300))
    space = context.space
    grown = {c.digest: c for c in space.candidates if len(c.atoms) > 1}
    assert sum(len(c.kernel.nodes) for c in grown.values()) < 300 + max(len(c.kernel.nodes) for c in grown.values())
    assert space.unprobed > 0
    assert space.cut_off >= space.unprobed


def test_no_kernel_of_the_space_has_more_code_than_is_quickly_generated():
    build = Sketch("one chain")
    x = build.arg("f32[64]")
    for _ in range(150):
        x = build.op("tanh", build.op("add", x, x))
    graph = build.finish([x])
    context = context_of(graph)
    sizes = [code_size(candidate.kernel.nodes) for candidate in context.space.candidates]
    assert max(sizes) <= MOST_CODE
    partition = chosen(graph, context=context)
    assert covers(partition, graph)
    assert len({kernel.candidate.digest for kernel in partition.kernels}) <= 3  # equal steps fall into equal kernels


def test_pricing_ends_with_its_time_and_keeps_single_atoms():
    context = context_of(layers_graph(1))
    many = len(context.space.candidates)
    left_out = context.kernels.keep_priced(lambda: True)
    assert 0 < left_out < many
    assert {frozenset((atom,)) for atom in context.space.atom_graph.atoms} <= {
        candidate.atoms for candidate in context.space.candidates
    }
    np.testing.assert_array_less(
        0, [context.prices(context.space)[c.digest].predicted_us for c in context.space.candidates]
    )


@pytest.mark.parametrize("seconds", [0.002, 0.02, 0.05, 5.0])
def test_a_deadline_of_work_decides_the_same_however_busy_the_machine_is(monkeypatch, seconds):
    graph = layers_graph(2)

    def partition(step):
        monkeypatch.setattr(time, "monotonic", ticking(step))
        return choose(Analytical(), context_of(graph), Deadline(seconds, WorkClock()), identity_here())[1]

    quiet, busy = partition(1e-9), partition(0.01)
    assert kernels(quiet) == kernels(busy)
    assert quiet.notes == busy.notes
    assert covers(quiet, graph)
    decided = [note for note in quiet.notes if note.startswith(BUDGETED)]
    assert len(decided) == (seconds < 1)
    if seconds > 1:
        assert kernels(quiet) == kernels(Analytical().partition(context_of(graph)))
