"""Long loops of stencils are compared with several steps in one kernel, also where nobody asks.

A step of a stencil that a driver runs moves its arrays from the last cache or memory and back. Several in one kernel
move them once (`autofuse.lower.overlapped`). So that is looked for where moving is what a loop's steps take.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.errors import LegalityError
from autofuse.fusion.regionprograms import control_node
from autofuse.fusion.userrules import NO_RULES
from autofuse.ir.graph import Graph, Node
from autofuse.lazydataclass import replace
from autofuse.passes.choices import DEFAULT, Choices
from autofuse.passes.pipeline import can_change
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.regionplans import driven_steps
from autofuse.search.variants.variants import Decide, Variant, Variants, late, tried, varied

TILED = tuple(replace(DEFAULT, unrolled=times) for times in ("4", "2"))
"""Four steps move a quarter, and compute a sixteenth again; more move little less, and need higher tiles. Two are for
loops whose iterations have several steps, or large arrays for each."""
_LEAST_US = 500.0
"""What a call takes at least: another search takes some tenths of a second."""


def may_tile(context: Context) -> bool:
    """Whether a program with the usual graph has long loops of stencils, and a target whose kernels are tiles."""
    program = context.program
    if not context.limits.overlaps or context.limits.iteration_us is None:
        return False
    if program.variant is not None or context.control != NO_RULES:
        return False
    return any(driven_steps(node) for node in program.graph.nodes) and can_change(program.to_vary, TILED[-1])


def time_tiles(context: Context, partition: Partition, decide: Decide, has_time: bool = True) -> Variants:
    """The usual graph as it was decided about, and those with several steps in one, if that could pay.

    The first one of which the model is sure is the last that is tried.
    """
    usual = Variant(DEFAULT, context, partition)
    if _moving_us(partition) < _LEAST_US or not may_tile(context):
        return Variants(usual, (), ())
    if not has_time:
        return late(usual, TILED[0])
    found = Variants(usual, (), ())
    for choices in TILED:
        found = found.joined_with(tried(usual, choices, lambda choices=choices: decide(_joined(context, choices))))
        if found.predicted() is not usual:
            break
    return found


def _joined(context: Context, choices: Choices) -> Context:
    """The question about a graph with joined steps. Raises LegalityError where these cannot share a kernel."""
    found = context.about(varied(context.program, choices), context.kernels.bounds)
    regions = found.kernels.prices.regions
    for node in _nodes(found.program.graph):
        if "unrolled" in node.attrs and (regions is None or not regions.joins(node)):
            raise LegalityError(f"the steps of %{node.name} cannot share a kernel")
    return found


def _nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, and of all regions inside."""
    for node in graph.nodes:
        yield node
        for region in node.regions:
            yield from _nodes(region)


def _moving_us(partition: Partition) -> float:
    """The price of driven loops that memory bounds."""
    known = [
        partition.known[chosen.candidate.digest]
        for chosen in partition.kernels
        if control_node(chosen.candidate.kernel) is not None
    ]
    return sum(tuned.predicted_us or 0.0 for tuned in known if tuned.bound == "memory")
