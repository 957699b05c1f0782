"""A partition given by name: the policy behind `autofuse.compile(partition=...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from autofuse.errors import ArgumentError, LegalityError, did_you_mean
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Node, Value
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, at_model_prices
from autofuse.search.solve.solver import Chosen
from autofuse.search.solve.topological_order import Run, in_topological_order, trimmed
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import AtomSet, Candidate


def fixed(partition: object) -> Fixed:
    """The policy of a partition given by a user. Raises ArgumentError unless it is lists of names of nodes."""
    if not _is_list(partition):
        raise ArgumentError(f"partition={partition!r:.80}: must be a list of kernels, each a list of names of nodes")
    for number, kernel in enumerate(cast("Sequence[object]", partition)):
        if not _is_list(kernel) or not all(isinstance(name, str) for name in cast("Sequence[object]", kernel)):
            raise ArgumentError(f"partition: kernel {number} must be a list of names of nodes; got {kernel!r:.80}")
    return Fixed(tuple(tuple(kernel) for kernel in cast("Sequence[Sequence[str]]", partition)))


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Kernels that someone else decided on, each as names of the nodes it computes.

    A node may be in several kernels, which then all compute it. Views and constants may be named or left out. The first
    kernel that can write a value writes it; where a kernel computes once more what another one makes, the other writes
    what that takes instead.
    """

    kernels: tuple[tuple[str, ...], ...]
    name: str = "partition"

    def partition(self, context: Context) -> Partition:
        """The kernels, checked.

        Raises ArgumentError for unknown names, kernels that compute nothing, nodes that no kernel computes and kernels
        that wait for one another; LegalityError for a kernel that cannot be one.
        """
        atoms = AtomGraph(context.program.graph, contract=False, control=context.control)
        builder = SpaceBuilder(atoms, context.limits)
        sets = [self._atoms(atoms, number) for number in range(len(self.kernels))]
        candidates = [self._candidate(builder, number, chosen) for number, chosen in enumerate(sets)]
        self._check_cover(atoms, sets)
        written = {value for candidate in candidates for value in candidate.outputs}
        wanted = {value for candidate in candidates for value in _reads(atoms, candidate)} - written
        for number, candidate in enumerate(candidates):
            more = {value for value in wanted if atoms.maker(value) in candidate.atoms}
            if more:
                outputs = tuple(atoms.value_order(more.union(candidate.outputs)))
                candidates[number] = builder.try_add(candidate.atoms, outputs) or candidate
        runs = [Run(n, _reads(atoms, c), c.outputs) for n, c in enumerate(candidates)]
        order, stuck = in_topological_order(runs, range(len(runs)))
        if stuck:
            raise ArgumentError(self._waiting(runs, [run.number for run in order]))
        kernels = tuple(Chosen(candidates[run.number], run.writes) for run in trimmed(order, _made(atoms)))
        return at_model_prices(context, atoms, kernels)

    def _atoms(self, atoms: AtomGraph, number: int) -> AtomSet:
        graph = atoms.graph
        found: set[Node] = set()
        for name in self.kernels[number]:
            node = graph.node_by_name.get(name.removeprefix("%"))
            if node is None:
                hint = did_you_mean(name, graph.node_by_name)
                raise ArgumentError(f"partition: kernel {number}: {name!r:.80} is no node of the program{hint}")
            if node in atoms.atom_of:
                found.add(node)
            elif role_of(node).computes:
                raise ArgumentError(f"partition: kernel {number}: nothing needs {name}")
        if not found:
            raise ArgumentError(
                f"partition: kernel {number} computes nothing: {', '.join(self.kernels[number]) or 'it has no nodes'}"
            )
        return frozenset(atoms.atom_of[node] for node in found)

    def _candidate(self, builder: SpaceBuilder, number: int, chosen: AtomSet) -> Candidate:
        try:
            return builder.require(chosen)
        except LegalityError as error:
            raise LegalityError(f"partition: kernel {number} ({', '.join(self.kernels[number])}): {error}") from None

    def _check_cover(self, atoms: AtomGraph, sets: Sequence[AtomSet]) -> None:
        covered = frozenset[FusionAtom]().union(*sets)
        left = [node.name for atom in atoms.atoms if atom not in covered for node in atom.nodes]
        if left:
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            raise ArgumentError(f"partition: no kernel computes {', '.join(left[:5])}{more}")

    def _waiting(self, runs: Sequence[Run], done: Sequence[int]) -> str:
        """Which kernels wait for what, in words."""
        there = {value for number in done for value in runs[number].writes}
        left = [run for run in runs if run.number not in done]
        for run in left:
            nobody = [v.name for v in run.reads if not any(v in other.writes for other in runs)]
            if nobody:
                return f"partition: kernel {run.number} reads {nobody[0]}, which no kernel here can write"
        words = [
            f"kernel {run.number} waits for {', '.join(v.name for v in run.reads if v not in there)}" for run in left
        ]
        return f"partition: these kernels wait for one another: {'; '.join(words)}"


def _reads(atoms: AtomGraph, candidate: Candidate) -> tuple[Value, ...]:
    """The values a kernel reads that another kernel must write."""
    read = dict.fromkeys(value for atom in candidate.atoms for value in atoms.reads[atom])
    outside = (value for value in read if (maker := atoms.maker(value)) is not None and maker not in candidate.atoms)
    return tuple(atoms.value_order(outside))


def _made(atoms: AtomGraph) -> tuple[Value, ...]:
    """The results of the program that a kernel writes."""
    return tuple(value for value in atoms.graph.outputs if atoms.maker(value) is not None)
