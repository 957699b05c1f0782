"""Spaces made of the kernels of given partitions: what is left of a search if it may only choose among those.

So a study can tell what better kernels are worth from what a better choice among the same kernels is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autofuse.fusion.atoms import AtomGraph
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.pricedkernels import Kernels
from autofuse.search.space.candidatebuilder import SpaceBuilder


def limited_to(context: Context, partitions: Sequence[Partition]) -> Context:
    """The same program, with no kernels to choose among but those of the partitions and the single operations.

    Every operation is an atom of its own, as for the policies that follow another compiler's rules.
    """

    def build() -> SpaceBuilder:
        atoms = AtomGraph(context.program.graph, contract=False, control=context.control)
        builder = SpaceBuilder(atoms, context.limits)
        for atom in atoms.atoms:
            builder.require(frozenset((atom,)))
        for chosen in (kernel for partition in partitions for kernel in partition.kernels):
            members = frozenset(atoms.atom_of[node] for atom in chosen.candidate.atoms for node in atom.nodes)
            if len(members) > 1:
                builder.try_add(members, chosen.outputs)
        return builder

    return replace(context, kernels=Kernels(context.kernels.prices, build))
