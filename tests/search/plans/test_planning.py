"""From a partition to a plan document: names, digests, what is known, and functions that share a graph."""

from autofuse.ir.tree import Branch, Leaf
from autofuse.lower.schedule import Schedule
from autofuse.plan.verify import verify
from autofuse.runtime.planlowering import lower_plan
from autofuse.search.plans.planning import Program, Tuned
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.unfused import Unfused
from autofuse.search.solve.solver import Chosen
from autofuse.targets.cpu.decisions import UNROLL, cpu_schedule
from autofuse.testing.fusions import LIMITS
from autofuse.testing.partitions import context_of, identity_here, plan_of, program_of
from autofuse.testing.sketches import Sketch, layers_graph, softmax_graph


def test_kernels_are_named_by_kind_and_title_and_names_are_unique():
    plan = plan_of(layers_graph(2, 8, 8), ())
    assert [kernel.name for kernel in plan.kernels] == ["stitch_reduce_add_reduce_maximum_tanh"]
    partition = Unfused().partition(context_of(layers_graph(2, 8, 8)))
    unfused = document_of(context_of(layers_graph(2, 8, 8)), partition, identity_here())
    names = [kernel.name for kernel in unfused.kernels]
    assert len(names) == len(set(names))
    assert {"reduction_reduce_maximum", "reduction_reduce_maximum_1"} <= set(names)
    verify(unfused)


def test_equal_kernels_have_equal_digests_and_share_what_is_known():
    context = context_of(layers_graph(2, 8, 8))
    partition = Unfused().partition(context)
    one = partition.kernels[0].candidate.digest
    known = {one: Tuned(cpu_schedule(unroll=8), 1.0, 2.0, "memory")}
    plan = document_of(context, Partition(partition.atoms, partition.kernels, known, 0.0), identity_here())
    told = [kernel for kernel in plan.kernels if kernel.digest == one]
    assert len(told) >= 2
    assert {(k.schedule[UNROLL], k.predicted_us, k.measured_us, k.bound) for k in told} == {(8, 1.0, 2.0, "memory")}
    assert all(kernel.measured_us is None for kernel in plan.kernels if kernel.digest != one)


def test_a_kernel_that_leaves_an_output_out_is_known_by_the_kernel_with_all_of_them():
    sketch = Sketch("two_outputs")
    x = sketch.arg("f32[64]")
    first = sketch.op("exp", x, name="first")
    graph = sketch.finish([sketch.op("tanh", first, name="second"), sketch.op("sin", first, name="third")])
    context = context_of(graph)
    by_name = {node.name: atom for atom in context.space.atom_graph.atoms for node in atom.nodes}
    both = context.kernels.try_add(frozenset((by_name["first"], by_name["second"])))
    other = context.kernels.try_add(frozenset((by_name["first"], by_name["third"])))
    assert [value.name for value in both.outputs] == ["first", "second"]
    kernels = tuple(Chosen(c, (c.outputs[-1],)) for c in (both, other))
    known = {both.digest: Tuned(cpu_schedule(unroll=2), 3.0)}
    plan = document_of(context, Partition(context.space.atom_graph, kernels, known, 0.0), identity_here())
    verify(plan)
    assert [kernel.outputs for kernel in plan.kernels] == [("second",), ("third",)]
    assert [kernel.schedule[UNROLL] for kernel in plan.kernels] == [2, Schedule()[UNROLL]]
    assert plan.kernels[0].digest != both.digest


def test_a_kernel_that_leaves_an_output_out_leaves_out_what_was_decided_of_it():
    """A plan must load: only what the kernel as it is leaves open is decided."""
    sketch = Sketch("two_outputs")
    grown = sketch.op("exp", sketch.arg("f32[2048,1031]"), name="grown")
    total = sketch.op("reduce", grown, dimensions=(1,), combiner="add", name="total")
    context = context_of(sketch.finish([total, sketch.op("tanh", grown, name="bent")]))
    atom = {node.name: atom for atom in context.space.atom_graph.atoms for node in atom.nodes}
    both, other = (context.kernels.try_add(frozenset((atom["grown"], atom[name]))) for name in ("total", "bent"))
    assert [value.name for value in both.outputs] == ["grown", "total"]
    kernels = (Chosen(both, both.outputs[1:]), Chosen(other, other.outputs[1:]))
    known = {
        both.digest: Tuned(cpu_schedule(stream_stores=True, lane="stream", unroll=2))
    }  # of the large output, and not
    plan = document_of(context, Partition(context.space.atom_graph, kernels, known, 0.0), identity_here())
    assert [kernel.schedule for kernel in plan.kernels] == [cpu_schedule(lane="stream", unroll=2), Schedule()]
    assert len(lower_plan(plan, LIMITS)) == 2


def test_a_kernel_that_leaves_an_output_out_is_priced_as_it_is():
    sketch = Sketch("two_outputs")
    x = sketch.arg("f32[1048576]")
    first = sketch.op("exp", x, name="first")
    graph = sketch.finish([sketch.op("tanh", first, name="second"), sketch.op("sin", first, name="third")])
    context = context_of(graph)
    by_name = {node.name: atom for atom in context.space.atom_graph.atoms for node in atom.nodes}
    both = context.kernels.try_add(frozenset((by_name["first"], by_name["second"])))
    other = context.kernels.try_add(frozenset((by_name["first"], by_name["third"])), (graph.outputs[1],))
    assert [value.name for value in other.outputs] == ["third"]
    kernels = (Chosen(both, (both.outputs[-1],)), Chosen(other, other.outputs))
    prices = context.prices(context.space)
    known = {c.digest: Tuned(predicted_us=prices[c.digest].predicted_us, measured_us=7.0) for c in (both, other)}
    plan = document_of(context, Partition(context.space.atom_graph, kernels, known, 0.0), identity_here())
    alone = context.kernels.try_add(both.atoms, (both.outputs[-1],))
    assert plan.kernels[0].predicted_us == context.prices(context.space)[alone.digest].predicted_us
    assert plan.kernels[0].predicted_us < prices[both.digest].predicted_us
    assert [kernel.measured_us for kernel in plan.kernels] == [None, 7.0]  # nobody measured the first as it is


def test_a_plan_found_by_its_graph_takes_the_functions_own_names():
    graph = softmax_graph(8, 8)
    plan = plan_of(graph)
    mine = Program("mine", graph, Branch("tuple", (0,), (Leaf(),)), Leaf(), ("scores",), ())
    renamed = mine.renamed(plan)
    assert (renamed.name, renamed.parameters, renamed.out_tree) == ("mine", ("scores",), Leaf())
    assert renamed.kernels == plan.kernels
    verify(renamed)
    assert program_of(graph).renamed(renamed) == plan
