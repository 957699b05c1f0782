"""Data-movement simplification: views and slices that cancel, merge, or turn into simpler ones."""

from __future__ import annotations

from typing import ClassVar

from autofuse.ir.graph import Graph
from autofuse.lazydataclass import dataclass
from autofuse.passes import knownindices, slicerules, viewrules
from autofuse.passes.matching import joined
from autofuse.passes.rewriting import rewrite

_RULES = joined(viewrules.RULES, slicerules.RULES, knownindices.RULES)


@dataclass(frozen=True, slots=True)
class SimplifyMovement:
    """Merges ops that only move elements, in one direction, so that it ends.

    Going from inputs to outputs the canonical order is: slice, reverse, reshape, transpose, broadcast. Slices go
    before everything, broadcasts absorb transposes and unit axes, numbers are scalars broadcast. Identities vanish;
    dynamic slices and gathers at known places become slices. Values are copied, never computed: exact. A
    dynamic_update_slice stays one op.
    """

    name: ClassVar[str] = "data-movement"

    def apply(self, graph: Graph) -> Graph:
        """The graph with simpler movement; the same object if nothing applied."""
        return rewrite(graph, lambda: _RULES)
