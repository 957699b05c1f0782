"""Dead-code elimination: what no output needs is dropped, in regions too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autofuse.ir.graph import Graph
from autofuse.passes.rewriting import rewrite


@dataclass(frozen=True, slots=True)
class DropDead:
    """Drops nodes whose results reach no output, and captures that a region no longer reads.

    Inputs stay, read or not. Custom calls are values like all others: unread, they are dropped.
    """

    name: ClassVar[str] = "dead-code"

    def apply(self, graph: Graph) -> Graph:
        """The graph without dead nodes; the same object if there are none."""
        return rewrite(graph, dict)
