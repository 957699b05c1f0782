"""Short loops that a driver would run are compared with all of their iterations written out, also where nobody asks.

A front end keeps loops as loops, which is right for long ones. Of a few iterations the driver's steps may be most of
the time, and no kernel is of two of them. So that is looked for where it can pay: where the steps are a part of the
plan's price, and the graph with the loops written out is small enough to be searched. The usual graph stays wherever
the model is not sure.
"""

from __future__ import annotations

from autofuse.fusion.regionprograms import control_node
from autofuse.fusion.userrules import NO_RULES
from autofuse.lazydataclass import replace
from autofuse.passes.choices import DEFAULT
from autofuse.passes.pipeline import can_change
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.regionplans import driven_steps
from autofuse.search.variants.variants import Decide, Variant, Variants, late, tried, varied

WRITTEN_OUT = replace(DEFAULT, unrolled="all")
_LEAST_SHARE, _LEAST_US = 0.05, 5.0
"""What the driver's steps must be, of a plan's price and in all. Less is within what prices err by, and not worth
another search, as a call of a plan takes as long by itself."""


def may_write_out(context: Context) -> bool:
    """Whether a program with the usual graph has counted loops that are no kernel and short enough."""
    program = context.program
    if context.limits.iteration_us is None or program.variant is not None or context.control != NO_RULES:
        return False
    return any(driven_steps(node) for node in program.graph.nodes) and can_change(program.to_vary, WRITTEN_OUT)


def short_loops(context: Context, partition: Partition, decide: Decide, has_time: bool = True) -> Variants:
    """The usual graph as it was decided about, and the one with short loops written out, if that could pay."""
    usual = Variant(DEFAULT, context, partition)
    least_us = max(_LEAST_US, _LEAST_SHARE * partition.price_us)
    if _steps_us(context, partition) < least_us or not may_write_out(context):
        return Variants(usual, (), ())
    if not has_time:
        return late(usual, WRITTEN_OUT)
    bounds = context.kernels.bounds
    return tried(usual, WRITTEN_OUT, lambda: decide(context.about(varied(context.program, WRITTEN_OUT), bounds)))


def _steps_us(context: Context, partition: Partition) -> float:
    """What a driver's steps take in the plan."""
    nodes = (control_node(chosen.candidate.kernel) for chosen in partition.kernels)
    return (context.limits.iteration_us or 0.0) * sum(driven_steps(node) for node in nodes if node is not None)
