"""Graphs as programs, and plans with the kernels that a test asks for."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.cost_models.base import CostModel
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.userrules import NO_RULES, Control
from autofuse.ir.graph import Graph
from autofuse.ir.tree import Branch, Leaf
from autofuse.plan.document import PlanDocument
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.search.plans.planning import Program, plan_document
from autofuse.search.policies.context import Context
from autofuse.search.policies.problem import Problem
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import USUAL, Bounds
from autofuse.targets.base import Target
from autofuse.targets.cpu.identity import CpuIdentity
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from autofuse.testing.fusions import LIMITS

TARGET = CpuTarget(server(LIMITS.workers), LIMITS)
"""The machine that every test knows, for small kernels."""


def program_of(graph: Graph, writebacks: tuple[int, ...] = ()) -> Program:
    """A graph as a program of its own: arrays to a tuple of arrays; its last outputs are written back to inputs."""
    inputs = tuple(Leaf() for _ in graph.inputs)
    outputs = tuple(Leaf() for _ in graph.outputs[: len(graph.outputs) - len(writebacks)])
    return Program(
        graph.name,
        graph,
        Branch("tuple", tuple(range(len(inputs))), inputs),
        Branch("tuple", tuple(range(len(outputs))), outputs),
        tuple(value.name for value in graph.inputs),
        writebacks,
    )


def context_of(
    graph: Graph,
    control: Control = NO_RULES,
    memory: int | None = None,
    bounds: Bounds = USUAL,
    model: CostModel | None = None,
    target: Target = TARGET,
) -> Context:
    """What a policy is given, on the machine of `autofuse.testing.devices`, so that prices are the same everywhere.

    `control`: rules, by default none. `memory`: most bytes of a plan. `model`: by default the analytical one.
    """
    program = program_of(graph)
    limit = None if memory is None else MemoryLimit(memory, program, target.limits)
    problem = Problem(program, target, control, limit)
    return Context.of(problem, model or target.cost_model(), bounds)


def identity_here() -> CpuIdentity:
    """The identity of plans that `context_of` leads to."""
    return TARGET.identity


def plan_of(
    graph: Graph, groups: Sequence[Sequence[str]] = (), writebacks: tuple[int, ...] = (), target: Target = TARGET
) -> PlanDocument:
    """A plan with one kernel per group of node names, in this order; without groups, one kernel for everything.

    Each op of a group is named. Kernels write what others of the program read, and its outputs.
    """
    atoms = AtomGraph(graph, contract=False)
    builder = SpaceBuilder(atoms, target.limits)
    sets = [frozenset(a for a in atoms.atoms if a.nodes[0].name in group) for group in groups] or [
        frozenset(atoms.atoms)
    ]
    kernels = [Chosen(candidate, candidate.outputs) for candidate in map(builder.require, sets)]
    return plan_document(program_of(graph, writebacks), atoms, kernels, (), target.identity, target.limits)


def unfused_plan(graph: Graph, writebacks: tuple[int, ...] = (), target: Target = TARGET) -> PlanDocument:
    """A plan with a kernel for each node that computes something."""
    atoms = AtomGraph(graph, contract=False).atoms
    return plan_of(graph, [[atom.nodes[0].name] for atom in atoms], writebacks, target)
