"""A graph as one kernel, and plans run by the CPU target and compared with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.lower.limits import Limits
from autofuse.measurement.checks import check, poisoned
from autofuse.measurement.errorbounds import bounds_of
from autofuse.plan.document import PlanDocument
from autofuse.runtime.planlowering import lower_as_scheduled
from autofuse.targets.cpu.decisions import CPU_DECISIONS
from autofuse.targets.cpu.executable import CpuExecutable, build_executable
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.passes.prepare import CpuPasses
from autofuse.targets.cpu.workspaces import CpuWorkspaces

Array = NDArray[Any]
LIMITS = Limits(
    256 << 10,
    2,
    tile_columns=True,
    joins_rows=True,
    decisions=CPU_DECISIONS,
    passes=CpuPasses(host_machine().vector_bits),
    workspaces=CpuWorkspaces(host_machine().vector_bits),
    sorts=True,
    prologues=True,
)
"""Of no machine in particular, so that tests lower the same everywhere."""


def whole_kernel(graph: Graph, contract: bool = True) -> KernelCandidate:
    """The graph as one kernel."""
    atoms = AtomGraph(graph, contract)
    return atoms.candidate(frozenset(atoms.atoms), graph.outputs)


def kernel_inputs(kernel: KernelCandidate, arrays: Sequence[Array]) -> list[Array]:
    """What a kernel reads, given the arguments of its graph: arguments and constants."""
    given = dict(zip(kernel.graph.inputs, arrays, strict=True))
    return [given[value] if value in given else kernel.graph.producers[value].attrs["value"] for value in kernel.inputs]


def run_executable(executable: CpuExecutable, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of a plan, written into poisoned arrays."""
    outs = tuple(poisoned(value.type.shape, value.type.dtype) for value in executable.document.graph.outputs)
    exact = [np.require(array, requirements=["C", "A"]) for array in inputs]
    taken = executable.run_into(exact, outs)
    assert taken, "the program refuses its own arguments"
    return outs


def check_plan(document: PlanDocument, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Run a plan natively, raise WrongAnswerError unless it agrees with the interpreter, return its outputs."""
    graph = document.graph
    kernels = lower_as_scheduled(document, LIMITS)
    results = run_executable(build_executable(document, LIMITS, kernels=kernels), inputs)
    answers = zip(graph.outputs, results, interpret(graph, *inputs), bounds_of(graph, inputs), strict=True)
    for value, result, right, bound in answers:
        check(f"%{value.name}", result, right, bound)
    return results
