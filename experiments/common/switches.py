"""Searches without one of their parts, put together from the others, so that a study can tell what each is worth.

A kernel that is ruled out is refused with that reason, like one that is no legal fusion. Kernels of one atom are never
ruled out, so there is always a cover. Policies with rules of their own choose as they always do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from autofuse.errors import LegalityError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.kind import kind_of
from autofuse.ir.graph import Value
from autofuse.search.policies.context import Context
from autofuse.search.policies.pricedkernels import Kernels
from autofuse.search.prices.priced import Priced
from autofuse.search.schedules.scheduletuner import ScheduleTuner
from autofuse.search.solve.coverprogram import MemoryConstraint
from autofuse.search.solve.solver import Chosen, Solution, solve
from autofuse.search.space.candidatebuilder import MakeKernel, SpaceBuilder
from autofuse.search.space.candidates import AtomSet
from autofuse.search.space.enumeration import enumerated
from autofuse.search.space.segments import Segment


def without_recompute(context: Context) -> Context:
    """No two kernels compute the same atom."""

    def kernel(graph: AtomGraph, atoms: AtomSet, outputs: tuple[Value, ...]) -> KernelCandidate:
        if graph.left_to_others(atoms):
            raise LegalityError("switched off: computing a value in several kernels")
        return graph.candidate(atoms, outputs)

    return replace(_of_kernels(context, kernel, leaner=False), solve=_each_atom_once)


def without_stitch(context: Context) -> Context:
    """No kernel has stages that wait for one another, such as all of a softmax."""

    def kernel(graph: AtomGraph, atoms: AtomSet, outputs: tuple[Value, ...]) -> KernelCandidate:
        made = graph.candidate(atoms, outputs)
        if kind_of(made) == "stitch":
            raise LegalityError("switched off: stages that wait for one another in one kernel")
        return made

    return _of_kernels(context, kernel)


def without_multi_output(context: Context) -> Context:
    """A kernel writes one value, the last one only."""

    def kernel(graph: AtomGraph, atoms: AtomSet, outputs: tuple[Value, ...]) -> KernelCandidate:
        last = tuple(v for v in outputs if atoms.isdisjoint(graph.readers.get(v, ()))) if len(outputs) > 1 else outputs
        if len(last) != 1:
            raise LegalityError("switched off: kernels that write several values")
        return graph.candidate(atoms, last)

    return _of_kernels(context, kernel, leaner=False)


def without_horizontal(context: Context) -> Context:
    """Small kernels that do not depend on one another do not share a launch."""
    return replace(context, problem=replace(context.problem, small_us=0.0))


PARTS: Mapping[str, Callable[[Context], Context]] = {
    "recompute": without_recompute,
    "stitch": without_stitch,
    "multi_output": without_multi_output,
    "horizontal": without_horizontal,
}
"""What a search can do without."""


class DefaultSchedules(ScheduleTuner):
    """Every kernel keeps its default schedule."""

    def tune(self, kernels: Sequence[Chosen], share: float) -> None:
        """Try none."""

    def is_done(self, kernels: Sequence[Chosen]) -> bool:
        """Nothing is left to be tried."""
        del kernels
        return True


def _of_kernels(context: Context, kernel: MakeKernel, leaner: bool = True) -> Context:
    """The same question with what `kernel` makes of sets of several atoms. `leaner`: as for `enumerated`."""

    def make(graph: AtomGraph, atoms: AtomSet, outputs: tuple[Value, ...]) -> KernelCandidate:
        return kernel(graph, atoms, outputs) if len(atoms) > 1 else graph.candidate(atoms, outputs)

    def build() -> SpaceBuilder:
        atoms = AtomGraph(context.program.graph, control=context.control)
        builder = SpaceBuilder(atoms, context.limits, make)
        enumerated(builder, context.kernels.bounds, leaner=leaner)
        return builder

    return replace(context, kernels=Kernels(context.kernels.prices, build, context.kernels.bounds))


def _each_atom_once(
    graph: AtomGraph,
    priced: Sequence[Priced],
    deadline_s: float = 60.0,
    *,
    unlike: Sequence[Collection[str]] = (),
    segments: Sequence[Segment] = (),
    constraints: Sequence[MemoryConstraint] = (),
) -> Solution:
    """The cheapest cover of the whole graph in which no atom is in two kernels; the rest is as for `solve`."""
    del segments
    holders = ({p.candidate: 1 for p in priced if atom in p.candidate.atoms} for atom in graph.atoms)
    once = [MemoryConstraint({}, kernels, 1) for kernels in holders]
    return solve(graph, priced, deadline_s, unlike=unlike, constraints=(*constraints, *once))
