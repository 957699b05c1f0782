"""The policy `unfused`: one kernel per operation, as an eager library would run them."""

from __future__ import annotations

from autofuse.fusion.atoms import AtomGraph
from autofuse.lazydataclass import dataclass
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, at_model_prices
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.candidatebuilder import SpaceBuilder


@dataclass(frozen=True, slots=True)
class Unfused:
    """One kernel per operation; views cost nothing here either."""

    name: str = "unfused"

    def partition(self, context: Context) -> Partition:
        atoms = AtomGraph(context.program.graph, contract=False, control=context.control)
        builder = SpaceBuilder(atoms, context.limits)
        candidates = [builder.require(frozenset((atom,))) for atom in atoms.atoms]
        return at_model_prices(context, atoms, tuple(Chosen(c, c.outputs) for c in candidates))
