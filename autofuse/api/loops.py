"""The warning for Python loops that were unrolled into a program."""

from __future__ import annotations

import warnings
from dataclasses import replace

from autofuse.api.callers import outside
from autofuse.errors import UnrolledLoopWarning
from autofuse.frontend.unrolled import unrolled_loop
from autofuse.ir.graph import Graph
from autofuse.plan.document import PlanDocument


def warned_of_loops(document: PlanDocument, traced: Graph) -> PlanDocument:
    """The plan, with a note and an UnrolledLoopWarning if its program holds a loop step by step.

    `traced`: the graph as it was traced, with the source lines of all operations.
    """
    loop = unrolled_loop(traced)
    if loop is None:
        return document
    warnings.warn(f"autofuse: {loop}", UnrolledLoopWarning, stacklevel=outside())
    return replace(document, notes=(*document.notes, f"unrolled loop: {loop}"))
