"""Kernels compiled alone, and run on arrays that are at hand."""

import gc
import weakref

import numpy as np
import pytest

from autofuse.errors import LegalityError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import replace
from autofuse.lower.schedule import Schedule
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.runners import cpu_runners
from autofuse.testing.fusions import LIMITS, kernel_inputs, whole_kernel
from autofuse.testing.graphs import random_inputs
from autofuse.testing.sketches import Sketch, softmax_graph

RNG = np.random.default_rng(0)


def outputs_of(runner, kernel, inputs):
    outs = [np.full(value.type.shape, 7, value.type.dtype.numpy) for value in kernel.outputs]
    assert runner.run_into(inputs, outs)
    return outs


def test_a_kernel_runs_under_each_schedule_and_again_as_cheaply_as_can_be():
    graph = softmax_graph(8, 16)
    kernel = whole_kernel(graph)
    inputs = kernel_inputs(kernel, random_inputs(graph, RNG))
    (right,) = interpret(graph, *inputs)
    for runner in cpu_runners(kernel, [Schedule(), cpu_schedule(unroll=2)], LIMITS, 1):
        (out,) = outputs_of(runner, kernel, inputs)
        np.testing.assert_allclose(out, right, rtol=1e-5)
        out[...] = 0
        runner.bound(inputs, [out])()
        np.testing.assert_allclose(out, right, rtol=1e-5)
        assert not runner.run_into(inputs, [out.astype(np.float64)])


def test_a_schedule_that_cannot_be_costs_only_itself():
    """Columns and rows of one array: no kernel has the loops of both."""
    sketch = Sketch("sums")
    x = sketch.arg("f32[16,8]")
    graph = sketch.finish([sketch.reduce(x, 0, name="columns"), sketch.reduce(x, 1, name="rows")])
    atoms = AtomGraph(graph, contract=False)
    (refused,) = cpu_runners(atoms.candidate(frozenset(atoms.atoms), graph.outputs), [Schedule()], LIMITS, 1)
    assert isinstance(refused, LegalityError)
    with pytest.raises(LegalityError, match="columns"):
        raise refused


def test_kernels_that_read_constants_and_call_the_interpreter_run_too():
    sketch = Sketch("sorted")
    x = sketch.arg("f32[64]")
    table = sketch.constant(np.linspace(0, 1, 64, dtype=np.float32), "table")
    shifted = sketch.op("add", x, table, name="shifted")
    graph = sketch.finish([sketch.op("sort", shifted, name="ordered", dimension=0, descending=False, stable=True)])
    inputs = random_inputs(graph, RNG)
    right = interpret(graph, *inputs)[0]
    given = {"x": inputs[0], "table": table_of(graph), "shifted": inputs[0] + table_of(graph)}
    for node in graph.nodes[1:]:
        kernel = KernelCandidate(graph, (node,), node.outputs)
        (runner,) = cpu_runners(kernel, [Schedule()], LIMITS, 1)
        reads = [inputs[0] if value in graph.inputs else given[value.name] for value in kernel.inputs]
        (given[node.output.name],) = outputs_of(runner, kernel, reads)
    np.testing.assert_array_equal(given["ordered"], right)


def table_of(graph):
    return graph.node_by_name["table"].attrs["value"]


def test_what_was_bound_outlives_its_runner():
    """Code of kernels that call back knows no more than addresses."""
    sketch = Sketch("sorted")
    x = sketch.arg("f32[64]")
    graph = sketch.finish([sketch.op("sort", x, name="ordered", dimension=0, descending=False, stable=True)])
    kernel, (given,) = whole_kernel(graph), random_inputs(graph, RNG)

    def bound():
        (runner,) = cpu_runners(kernel, [Schedule()], replace(LIMITS, sorts=False), 1)
        out = np.empty_like(given)
        return weakref.ref(runner.opaque[0]), runner.bound([given], [out]), out

    callback, call, out = bound()
    gc.collect()
    assert callback() is not None
    call()
    np.testing.assert_array_equal(out, np.sort(given))
