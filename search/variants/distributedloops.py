"""Loops whose iterations need nothing of one another are compared with their work done for all at once, unasked.

`for i in range(n): out[i] = a[i] @ x` is a loop to a front end, which a driver runs product by product. One kernel does
it where what moves out of loops (`autofuse.passes.distribution`) leaves nothing, or little, inside.
"""

from __future__ import annotations

from autofuse.fusion.regionprograms import control_node
from autofuse.fusion.userrules import NO_RULES
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import replace
from autofuse.passes.choices import DEFAULT
from autofuse.passes.pipeline import can_change
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.variants.variants import Decide, Variant, Variants, late, tried, varied

DISTRIBUTED = replace(DEFAULT, loops="distributed")
_LEAST_US = 100.0
"""What driven loops of a call take at least: another search takes some hundredths of a second."""
_MOST_BYTES = 64 << 20
"""Arrays of all iterations, beside the results: a program that nobody asked to take memory takes at most so much, or as
much again as its arguments and results."""


def may_distribute(context: Context) -> bool:
    """Whether a program with the usual graph has counted loops with work that can move out, and a driver for them."""
    program = context.program
    if context.limits.iteration_us is None or program.variant is not None or context.control != NO_RULES:
        return False
    has_loops = any(role_of(node) is Role.COUNTED_LOOP for node in program.graph.nodes)
    return has_loops and can_change(program.to_vary, DISTRIBUTED)


def distributed_loops(context: Context, partition: Partition, decide: Decide, has_time: bool = True) -> Variants:
    """The usual graph as it was decided about, and the one with loops distributed, if that could pay."""
    usual = Variant(DEFAULT, context, partition)
    if _driven_us(partition) < _LEAST_US or not may_distribute(context):
        return Variants(usual, (), ())
    if not has_time:
        return late(usual, DISTRIBUTED)
    found = tried(
        usual, DISTRIBUTED, lambda: decide(context.about(varied(context.program, DISTRIBUTED), context.kernels.bounds))
    )
    if not found.others:
        return found
    taken, graph = _stored_bytes(found.others[0].partition), context.program.graph
    given = sum(value.type.nbytes for value in (*graph.inputs, *graph.outputs))
    if taken > max(_MOST_BYTES, given) + given:
        note = f"graph variant {DISTRIBUTED.label} was left out: its arrays of all iterations take {taken} bytes"
        return Variants(usual, (), (note,))
    return found


def _driven_us(partition: Partition) -> float:
    """The price of loops and branches that a driver runs."""
    return sum(
        partition.known[chosen.candidate.digest].predicted_us or 0.0
        for chosen in partition.kernels
        if control_node(chosen.candidate.kernel) is not None
    )


def _stored_bytes(partition: Partition) -> int:
    """What kernels write in all."""
    return sum(value.type.nbytes for chosen in partition.kernels for value in chosen.outputs)
