"""Kernels compute small values for themselves where the target then starts them in less time."""

from dataclasses import replace

import numpy as np
import pytest

from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.fusion.userrules import Forbid, bind
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.search.policies import fewerlaunches
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import at_model_prices
from autofuse.search.solve.solver import Chosen
from autofuse.testing.counted.device import CountedDevice
from autofuse.testing.counted.target import CountedTarget
from autofuse.testing.graphs import random_inputs
from autofuse.testing.partitions import context_of
from autofuse.testing.sketches import Sketch
from tests.search.policies.test_compiled_prices import arithmetic

DEVICE = CountedDevice(launch_ns=30_000, issue_ns=4, operation_ns=1, byte_ns=1)


class JoiningTarget(CountedTarget):
    """Kernels of a group are started at once."""

    def joined_us(self, kernels):
        start = self.device.launch_ns / 1e3
        return start + sum(float(us) - start for us in self.cost_model().price(kernels).us)


def shared(readers: int, size: int = 1, links: int = 1, heavy: bool = False) -> Graph:
    """Loops of different lengths that read `exp(s)`, `tanh(exp(s))`, ... in turn, or the sum of the last of them."""
    sketch = Sketch("shared")
    values = [sketch.op("exp", sketch.arg(f"f32[{size}]"))]
    for _ in range(links - 1):
        values.append(sketch.op("tanh", values[-1]))
    if heavy:
        values = [sketch.reduce(values[-1], 0)]
    results = []
    for number in range(readers):
        x, value = sketch.arg(f"f32[{8 + number},{size}]"), values[number % len(values)]
        results.append(sketch.op("multiply", x, sketch.broadcast(value, x, *(() if heavy else (1,)))))
    return sketch.finish(results)


def chosen(graph: Graph, target=None, rules=(), **options):
    context = context_of(graph, bind(rules, graph), target=target or JoiningTarget(DEVICE), **options)
    partition = Analytical().partition(context)
    return context, partition, document_of(context, partition, context.problem.target.identity)


def groups(document) -> int:
    return sum(launch.group_place == 0 for launch in document.order)


def makers(partition, op: str) -> int:
    """Kernels that compute an op."""
    return sum(op in {node.op for node in kernel.candidate.kernel.nodes} for kernel in partition.kernels)


def check(graph: Graph, context, document) -> None:
    """The plan's answers are the interpreter's."""
    inputs = random_inputs(graph, np.random.default_rng(0))
    found = context.problem.target.executable(document).run(inputs)
    for one, right in zip(found, interpret(graph, *inputs), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-6)


def test_a_small_value_is_computed_by_each_kernel_that_reads_it():
    graph = shared(readers=5)
    context, partition, document = chosen(graph)
    assert groups(document) == 1
    assert len(document.kernels) == makers(partition, "exp") == 5
    (note,) = partition.notes
    assert note.startswith("kernels that compute for themselves what they would wait for: 4; by the model the plan")
    check(graph, context, document)


def test_so_is_a_chain_of_small_values():
    graph = shared(readers=6, links=3)
    context, partition, document = chosen(graph)
    assert groups(document) == 1
    assert makers(partition, "exp") == 6
    assert makers(partition, "tanh") == 4
    check(graph, context, document)


def test_a_target_that_joins_nothing_keeps_the_cheapest_sum():
    _, partition, document = chosen(shared(readers=5), CountedTarget(DEVICE))
    assert groups(document) == 2
    assert partition.kernels == partition.solution.kernels
    assert partition.notes == ()


def test_reductions_are_not_done_twice():
    context = context_of(shared(readers=3, size=64, heavy=True), target=JoiningTarget(DEVICE))
    found = [context.kernels.try_add(frozenset((atom,))) for atom in context.space.atom_graph.atoms]
    assert [len(candidate.kernel.inputs) for candidate in found] == [1, 2, 2, 2]
    partition = at_model_prices(context, context.space.atom_graph, tuple(Chosen(c, c.outputs) for c in found))
    assert fewerlaunches.with_fewer_launches(context, partition, lambda: False) is partition


@pytest.mark.parametrize(("launch_ns", "count"), [(30_000, 1), (300, 2)])
def test_what_is_computed_again_is_weighed_against_what_is_saved(launch_ns: int, count: int):
    graph = shared(readers=4, size=200)
    context, partition, document = chosen(graph, JoiningTarget(replace(DEVICE, launch_ns=launch_ns, byte_ns=0)))
    assert groups(document) == count
    assert (makers(partition, "exp") == 4) == (count == 1)
    check(graph, context, document)


def test_what_is_long_runs_alone_and_nothing_is_computed_again_for_it():
    context, _, _ = chosen(shared(readers=5))
    hurried = replace(context, problem=replace(context.problem, small_us=1.0))
    partition = Analytical().partition(hurried)
    assert partition.kernels == partition.solution.kernels


def test_what_the_compiler_says_of_the_new_kernels_counts():
    """Two operations in one kernel spill."""

    def compiler(program):
        spills = 10_000_000 if arithmetic(program) > 1 else 0
        return CompiledFacts((LaunchFacts(registers=32, spill_bytes=spills, private_bytes=spills, shared_bytes=0),))

    _, partition, document = chosen(shared(readers=5), JoiningTarget(DEVICE, compiler=compiler))
    assert groups(document) == 2
    assert partition.kernels == partition.solution.kernels


def test_rules_are_kept():
    _, partition, document = chosen(shared(readers=5), rules=[Forbid("exp", "%multiply_3")])
    assert groups(document) == 2
    assert makers(partition, "exp") < 5


def test_memory_that_is_limited_is_enough():
    graph = shared(readers=5)
    context, _, document = chosen(graph, memory=2000)
    assert groups(document) == 1
    assert context.memory.fits(document)


def test_nothing_is_looked_for_when_it_is_late():
    context, _, _ = chosen(shared(readers=5))
    plain = Analytical().partition(replace(context, problem=replace(context.problem, target=CountedTarget(DEVICE))))
    assert fewerlaunches.with_fewer_launches(context, plain, lambda: True) is plain
    assert fewerlaunches.with_fewer_launches(context, plain, lambda: False).kernels != plain.kernels
