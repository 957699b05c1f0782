"""Long loops of stencils are compared with several steps in one kernel, also where nobody asks.

A step of a stencil that a driver runs moves its arrays from the last cache or memory and back. Several in one kernel
move them once (`autofuse.lower.overlapped`). So that is looked for where moving is what a loop's steps take.
"""

from __future__ import annotations

from autofuse.errors import LegalityError, SearchError
from autofuse.fusion.regionprograms import control_node
from autofuse.fusion.userrules import NO_RULES
from autofuse.lazydataclass import replace
from autofuse.passes.choices import DEFAULT
from autofuse.passes.pipeline import can_change
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.regionplans import driven_steps
from autofuse.search.variants.variants import Decide, Variant, Variants, varied

TILED = replace(DEFAULT, unrolled="4")
"""Moves a quarter, and computes a sixteenth again. More steps move little less, and need higher tiles."""
_LEAST_US = 500.0
"""What a call takes at least: another search takes some tenths of a second."""


def may_tile(context: Context) -> bool:
    """Whether a program with the usual graph has long loops of stencils, and a target whose kernels are tiles."""
    program = context.program
    if not context.limits.overlaps or context.limits.iteration_us is None:
        return False
    if program.variant is not None or context.control != NO_RULES:
        return False
    return any(driven_steps(node) for node in program.graph.nodes) and can_change(program.to_vary, TILED)


def time_tiles(context: Context, partition: Partition, decide: Decide, has_time: bool = True) -> Variants:
    """The usual graph as it was decided about, and the one with several steps in one, if that could pay."""
    usual = Variant(DEFAULT, context, partition)
    if _moving_us(partition) < _LEAST_US or not may_tile(context):
        return Variants(usual, (), ())
    label = TILED.label
    if not has_time:
        return Variants(usual, (), (f"graph variant {label} was not priced: the time was up",))
    try:
        found = decide(context.about(varied(context.program, TILED), context.kernels.bounds))
    except (LegalityError, SearchError) as error:
        return Variants(usual, (), (f"graph variant {label} cannot be planned: {error}",))
    return Variants(usual, (Variant(TILED, *found),), ())


def _moving_us(partition: Partition) -> float:
    """The price of driven loops that memory bounds."""
    known = [
        partition.known[chosen.candidate.digest]
        for chosen in partition.kernels
        if control_node(chosen.candidate.kernel) is not None
    ]
    return sum(tuned.predicted_us or 0.0 for tuned in known if tuned.bound == "memory")
