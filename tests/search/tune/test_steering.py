"""Kernels that do the same work at other places of memory: each has a time and a verdict of its own."""

import numpy as np

from autofuse.frontend.traced import trace
from autofuse.fusion.candidate import work_of
from autofuse.measurement.inputvalues import InputValues
from autofuse.passes.pipeline import clean
from autofuse.search.budget.budget import Clock
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.testing.counted.nearworker import DeathError
from tests.fixtures.benches import CountedBench
from tests.fixtures.tuning import PLENTY, counted, tuned

TABLE = np.ones((64, 64), np.float32)
PLACES = np.arange(64, dtype=np.uint32)


def layers(table, near, far):
    """Two alike, each with indices of its own."""
    return np.exp(np.take(table, near, axis=0)), np.exp(np.take(table, far, axis=0))


GRAPH = clean(trace(layers, TABLE, PLACES, PLACES).graph)


def reads_far(kernel):
    return any(value.name == "far" for value in kernel.inputs)


def gathers(kernel):
    return any(node.op == "gather" for node in kernel.nodes)


def test_a_time_is_that_of_the_indices_it_was_taken_with():
    bench = CountedBench(GRAPH, lambda kernel, schedule, ns: ns * (50 if reads_far(kernel) else 1))
    context = counted(GRAPH).steered(bench.values)
    times = KernelTimes(context, bench, Clock(PLENTY, bench, bench.clock))
    times.measure(context.space.candidates, 1.0)
    near, far = (c for c in context.space.candidates if [node.op for node in c.kernel.nodes] == ["gather"])
    assert times.us[far.digest] > 40 * times.us[near.digest]
    assert near.program is far.program
    assert times.prices()[near.digest] == times.prices()[far.digest]


def test_a_kernel_that_fails_with_some_indices_is_not_refused_with_others():
    def fails_with_far(kernel, schedule, ns):
        if reads_far(kernel) and gathers(kernel) and len(kernel.nodes) > 1:
            raise DeathError("crash")
        return ns

    bench = CountedBench(GRAPH, fails_with_far)
    kernels = [set(kernel.nodes) for kernel in tuned(GRAPH, bench).kernels]
    near, far = (node.name for node in GRAPH.nodes if node.op == "gather")
    assert any(near in nodes and len(nodes) > 1 for nodes in kernels)
    assert {far} in kernels


def test_records_name_the_work_and_answer_a_second_run():
    first = CountedBench(GRAPH)
    plan = tuned(GRAPH, first)
    records = first.database.records()
    assert records
    assert all(work_of(record.measurement.kernel) == record.measurement.kernel for record in records)
    second = CountedBench(GRAPH, database=first.database)
    assert tuned(GRAPH, second).kernels == plan.kernels
    assert second.counts.measured == 0


def test_plain_data_tells_no_kernels_apart():
    def plain(x, y):
        return np.power(x, 3).sum(axis=1), np.power(y, 3).sum(axis=1)

    graph = clean(trace(plain, TABLE, TABLE).graph)
    context = counted(graph)
    assert context.steered(InputValues(graph, (TABLE, -TABLE))) is context
