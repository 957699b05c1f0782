"""The warning for Python loops that were unrolled into a program."""

from __future__ import annotations

import warnings
from dataclasses import replace

from autofuse.api.callers import outside
from autofuse.errors import UnrolledLoopWarning
from autofuse.frontend.unrolled import MANY, unrolled_loop
from autofuse.ir.graph import Graph
from autofuse.plan.document import PlanDocument
from autofuse.search.deadline import DECIDED

_HURRIED = 8
"""Steps that are worth a warning where the deadline decided."""


def warned_of_loops(document: PlanDocument, traced: Graph) -> PlanDocument:
    """The plan, with a note and an UnrolledLoopWarning if its program holds a loop step by step.

    `traced`: the graph as it was traced, with the source lines of all operations.
    """
    hurried = any(note.startswith(DECIDED) for note in document.notes)
    loop = unrolled_loop(traced, _HURRIED if hurried else MANY)
    if loop is None:
        return document
    warnings.warn(f"autofuse: {loop}", UnrolledLoopWarning, stacklevel=outside())
    return replace(document, notes=(*document.notes, f"unrolled loop: {loop}"))
