"""Any set of nodes as a kernel: run by the reference executor and natively, and compared with the interpreter.

For tests of lowering and code generation: `check_kernel` for one kernel, `random_plan` and `check_plan` for a whole
graph cut into random kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError, LegalityError
from autofuse.frontend.traced import trace
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret
from autofuse.ir.tree import Branch, Leaf
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.lowering import Limits, lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, Space, TileProgram
from autofuse.measurement.checks import check, poisoned
from autofuse.measurement.errorbounds import bounds_of
from autofuse.passes.outputs import MaterialiseOutputs
from autofuse.passes.pipeline import clean
from autofuse.plan.document import PlanDocument
from autofuse.runtime.kernels import lower_as_scheduled
from autofuse.search.plans.planning import Program, Tuned, plan_document
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.builder import SpaceBuilder
from autofuse.search.space.candidates import Candidate
from autofuse.targets.cpu.decisions import CPU_DECISIONS, cpu_schedule
from autofuse.targets.cpu.executable import CpuExecutable, build_executable
from autofuse.targets.cpu.identity import host_cpu_identity
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.passes.prepare import CpuPasses
from autofuse.targets.cpu.runners import cpu_runners
from autofuse.testing.devices import server

Array = NDArray[Any]
LIMITS = Limits(256 << 10, 2, tile_columns=True, decisions=CPU_DECISIONS, passes=CpuPasses(host_machine().vector_bits))
"""Of no machine in particular, so that tests lower the same everywhere."""
DEFAULT = Schedule()


def whole_kernel(graph: Graph, contract: bool = True) -> KernelCandidate:
    """The graph as one kernel."""
    atoms = AtomGraph(graph, contract)
    return atoms.candidate(frozenset(atoms.atoms), graph.outputs)


def fused(fn: Callable[..., Any], *arrays: Array) -> KernelCandidate:
    """A NumPy function as one kernel."""
    return whole_kernel(clean(trace(fn, *arrays).graph))


def check_fused(
    fn: Callable[..., Any], *arrays: Array, schedule: Schedule = DEFAULT, limits: Limits = LIMITS, native: bool = True
) -> TileProgram:
    """Check a NumPy function as one kernel of generated code, and return the kernel lowered. Raises LegalityError."""
    kernel = fused(fn, *arrays)
    check_kernel(kernel, kernel_inputs(kernel, arrays), schedule, limits=limits, native=native)
    program = lower(kernel, schedule, "kernel", limits)
    assert isinstance(program, TileProgram), "the kernel is a call of the interpreter"
    return program


def kernel_inputs(kernel: KernelCandidate, arrays: Sequence[Array]) -> list[Array]:
    """What a kernel reads, given the arguments of its graph: arguments and constants."""
    given = dict(zip(kernel.graph.inputs, arrays, strict=True))
    return [given[value] if value in given else kernel.graph.producers[value].attrs["value"] for value in kernel.inputs]


def run_reference(
    kernel: KernelCandidate, inputs: Sequence[Array], schedule: Schedule = DEFAULT, limits: Limits = LIMITS
) -> tuple[Array, ...]:
    """A kernel's outputs by the reference executor, which checks every access."""
    program = lower(kernel, schedule, "kernel", limits)
    if isinstance(program, OpaqueProgram):
        return interpret(program.graph, *inputs)
    names = [buffer.name for buffer in program.buffers if buffer.space is Space.INPUT]
    found = evaluate_program(program, dict(zip(names, inputs, strict=True)))
    return tuple(found.values())


def run_native(
    kernel: KernelCandidate, inputs: Sequence[Array], schedule: Schedule = DEFAULT, limits: Limits = LIMITS
) -> tuple[Array, ...]:
    """A kernel's outputs by generated code that finds poison in their memory."""
    (runner,) = cpu_runners(kernel, [schedule], limits, limits.workers)
    if isinstance(runner, AutofuseError):
        raise runner
    outs = tuple(poisoned(value.type.shape, value.type.dtype) for value in kernel.outputs)
    taken = runner.run_into([np.require(array, requirements=["C", "A"]) for array in inputs], outs)
    assert taken, "the kernel refuses its own inputs"
    return outs


def run_executable(executable: CpuExecutable, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of a plan, written into poisoned arrays."""
    outs = tuple(poisoned(value.type.shape, value.type.dtype) for value in executable.document.graph.outputs)
    exact = [np.require(array, requirements=["C", "A"]) for array in inputs]
    taken = executable.run_into(exact, outs)
    assert taken, "the program refuses its own arguments"
    return outs


def check_kernel(
    kernel: KernelCandidate | Graph,
    inputs: Sequence[Array],
    schedule: Schedule = DEFAULT,
    *,
    limits: Limits = LIMITS,
    native: bool = True,
) -> None:
    """Raise WrongAnswerError unless reference executor and generated code agree with the interpreter.

    `inputs`: what a kernel reads, or the arguments of a graph that is checked as one kernel.
    """
    if isinstance(kernel, Graph):
        kernel = whole_kernel(kernel)
        inputs = kernel_inputs(kernel, inputs)
    graph = Graph("kernel", kernel.inputs, kernel.nodes, kernel.outputs)
    expected, bounds = interpret(graph, *inputs), bounds_of(graph, inputs)
    runs = {"reference": run_reference(kernel, inputs, schedule, limits)}
    if native:
        runs["native"] = run_native(kernel, inputs, schedule, limits)
    for way, results in runs.items():
        for value, result, right, bound in zip(kernel.outputs, results, expected, bounds, strict=True):
            check(f"{way} %{value.name}", result, right, bound)


def random_schedule(rng: np.random.Generator) -> Schedule:
    """Decisions that small kernels can tell apart: narrow panels, odd splits, either lane."""
    return cpu_schedule(
        lane=("auto", "auto", "grid", "stream")[int(rng.integers(4))],
        vector_bits=(128, 256, 512)[int(rng.integers(3))],
        unroll=int(rng.integers(1, 5)),
        panel_rows=(0, 1, 2, 3, 5, 256)[int(rng.integers(6))],
        dots=("auto", "library", "generated")[int(rng.integers(3))],
        placement=("scratch", "recompute")[int(rng.integers(2))],
        split=int(rng.integers(0, 5)),
    )


def random_plan(graph: Graph, rng: np.random.Generator, limits: Limits = LIMITS) -> PlanDocument:
    """The graph cut into random legal kernels with random schedules; each output is made distinct, as by clean-up."""
    graph = MaterialiseOutputs().apply(graph)
    atoms = AtomGraph(graph, contract=bool(rng.integers(2)))
    kernels = random_partition(atoms, rng, limits)
    known = [Tuned(random_schedule(rng)) for _ in kernels]
    return _document(graph, atoms, kernels, known, limits)


def random_partition(atoms: AtomGraph, rng: np.random.Generator, limits: Limits = LIMITS) -> tuple[Chosen, ...]:
    """Random legal kernels that together compute a graph, in running order."""
    groups = _random_groups(atoms, SpaceBuilder(atoms, limits), rng)
    return _in_order(atoms, [Chosen(candidate, candidate.outputs) for candidate in groups])


def unfused_plan(graph: Graph, limits: Limits = LIMITS) -> PlanDocument:
    """Each node that computes something as a kernel of its own."""
    atoms = AtomGraph(graph, contract=False)
    builder = SpaceBuilder(atoms, limits)
    candidates = [builder.require(frozenset((atom,))) for atom in atoms.atoms]
    return _document(graph, atoms, tuple(Chosen(c, c.outputs) for c in candidates), (), limits)


def _document(
    graph: Graph, atoms: AtomGraph, kernels: tuple[Chosen, ...], known: Sequence[Tuned], limits: Limits
) -> PlanDocument:
    inputs, outputs = (tuple(Leaf() for _ in values) for values in (graph.inputs, graph.outputs))
    program = Program(
        graph.name,
        graph,
        Branch("tuple", tuple(range(len(inputs))), inputs),
        Branch("tuple", tuple(range(len(outputs))), outputs),
        tuple(value.name for value in graph.inputs),
        (),
    )
    return plan_document(program, atoms, kernels, known, host_cpu_identity(server(limits.workers)))


def _random_groups(atoms: AtomGraph, builder: SpaceBuilder, rng: np.random.Generator) -> list[Candidate]:
    """Start with singletons; merge neighbours at random as long as the result is legal and can be ordered."""
    home = {atom: builder.require(frozenset((atom,))) for atom in atoms.atoms}
    edges = [(a, b) for a in atoms.atoms for b in atoms.successors[a]]
    edges += [(a, b) for readers in atoms.readers.values() for a, b in itertools.pairwise(readers)]
    share = rng.random()
    for number in rng.permutation(len(edges)):
        a, b = (home[atom] for atom in edges[number])
        if a is b or rng.random() > 2 * share:
            continue
        merged = builder.try_add(a.atoms | b.atoms)
        if merged is None:
            continue
        trial = {atom: merged if atom in merged.atoms else candidate for atom, candidate in home.items()}
        if _can_be_ordered(atoms, trial):
            home = trial
    return list(dict.fromkeys(home.values()))


def _can_be_ordered(atoms: AtomGraph, home: dict[FusionAtom, Candidate]) -> bool:
    try:
        _in_order(atoms, [Chosen(c, c.outputs) for c in dict.fromkeys(home.values())])
    except LegalityError:
        return False
    return True


def _in_order(atoms: AtomGraph, kernels: Sequence[Chosen]) -> tuple[Chosen, ...]:
    waiting, ready, ordered = list(kernels), set[Value](), list[Chosen]()
    while waiting:
        runnable = [k for k in waiting if all(v in ready or atoms.maker(v) is None for v in k.candidate.kernel.inputs)]
        if not runnable:
            raise LegalityError("the kernels wait for one another")
        for kernel in runnable:
            waiting.remove(kernel)
            ready.update(kernel.outputs)
            ordered.append(kernel)
    return tuple(ordered)


def check_plan(document: PlanDocument, inputs: Sequence[Array], limits: Limits = LIMITS) -> tuple[Array, ...]:
    """Run a plan natively, raise WrongAnswerError unless it agrees with the interpreter, return its outputs."""
    graph = document.graph
    results = run_executable(build_executable(document, limits, kernels=lower_as_scheduled(document, limits)), inputs)
    answers = zip(graph.outputs, results, interpret(graph, *inputs), bounds_of(graph, inputs), strict=True)
    for value, result, right, bound in answers:
        check(f"%{value.name}", result, right, bound)
    return results
