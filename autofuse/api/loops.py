"""The warning for Python loops that were unrolled into a program."""

from __future__ import annotations

import warnings

from autofuse.api.callers import outside
from autofuse.errors import UnrolledLoopWarning
from autofuse.ir.graph import Graph


def warn_of_loops(traced: Graph) -> tuple[str, ...]:
    """An UnrolledLoopWarning if a program holds a loop step by step, and the notes that its plan is to have then.

    `traced`: the graph as it was traced, with the source lines of all operations.
    """
    from autofuse.frontend.unrolled import unrolled_loop

    loop = unrolled_loop(traced)
    if loop is None:
        return ()
    warnings.warn(f"autofuse: {loop}", UnrolledLoopWarning, stacklevel=outside())
    return (f"unrolled loop: {loop}",)
