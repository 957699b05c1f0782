"""Whether a plan that was made earlier keeps what a user asks for now."""

from __future__ import annotations

from autofuse.errors import PlanError
from autofuse.fusion.userrules import Control, is_real
from autofuse.ir.digest import in_order
from autofuse.ir.graph import Graph
from autofuse.lower.decisions import Decisions
from autofuse.lower.schedule import Schedule
from autofuse.plan.document import PlanDocument
from autofuse.search.plans.memorylimit import MemoryLimit


def broken_wish(
    document: PlanDocument, graph: Graph, control: Control, memory: MemoryLimit | None, decisions: Decisions
) -> str | None:
    """The first rule or limit that a plan does not keep, in words; None if it keeps all.

    `graph`: of the program at hand, with the digest of the plan's, but with names and source lines of its own. Rules
    are bound to it. `memory`: the limit for the plan's own graph. `decisions`: the target's.
    """
    twins = zip(in_order(document.graph), in_order(graph), strict=True)
    twin = {theirs.name: ours for theirs, ours in twins}
    for kernel in document.kernels:
        nodes = frozenset(node for name in kernel.nodes if is_real(node := twin[name], graph))
        broken = control.refusal(nodes)
        if broken is not None:
            return broken
        wanted = control.schedule_of(nodes)
        if wanted is not None and not _is_schedule(kernel.schedule, wanted, decisions):
            return f"a rule pins another schedule for kernel {kernel.name}"
    if memory is not None and not memory.fits(document):
        return f"it takes more than max_memory={memory.nbytes} bytes"
    return None


def _is_schedule(schedule: Schedule, wanted: object, decisions: Decisions) -> bool:
    try:
        return schedule == decisions.read(wanted)
    except PlanError:  # what is wrong with it is said when a plan is made by it
        return False
