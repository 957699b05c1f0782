"""Loops made simpler: fewer iterations that nobody knows of, less state, less work in the body."""

from __future__ import annotations

from collections.abc import Set
from typing import ClassVar

from autofuse.ir.graph import Graph, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.loopediting import Loop, with_loops
from autofuse.passes.loopinvariants import move_invariants
from autofuse.passes.looprows import decide_comparisons, repeated_rows, slices_to_rows
from autofuse.passes.loopstate import count_iterations, counters_to_rows, drop_dead, drop_unchanged
from autofuse.passes.loopwrites import writes_to_stacks


@dataclass(frozen=True, slots=True)
class SimplifyLoops:
    """Rewrites loops so that later stages see what an iteration depends on.

    - A `while` that a counter ends becomes a `scan`; one that never runs goes.
    - What an iteration hands on as it came, and what no result needs, leaves the state; counters become rows.
    - Slices that move with the counter become rows. An array written position by position becomes a stack.
    - What is the same in all iterations is computed before the loop.

    Exact: the same scalars are computed, in the same order. Work that is moved out of a `while` is done though it may
    run no iteration.
    """

    name: ClassVar[str] = "loops"

    def apply(self, graph: Graph) -> Graph:
        """The graph with simpler loops; the same object if there is nothing to do."""
        return with_loops(graph, _simplify)


def _simplify(loop: Loop, read: Set[Value]) -> None:
    count_iterations(loop)
    if loop.length == 0:
        return
    drop_unchanged(loop)
    drop_dead(loop, read)
    move_invariants(loop)
    if loop.length is not None:
        counters_to_rows(loop)
        repeated_rows(loop)
        decide_comparisons(loop)
        slices_to_rows(loop)
        writes_to_stacks(loop)
