"""What cannot be translated: errors that name the operation, the line it comes from, and what to do instead."""

from __future__ import annotations

from autofuse.errors import GraphError, TraceError
from autofuse.frontend.location import source_of
from autofuse.ir.graph import Location

OUTSIDE = "compute it outside the function, or run this function through JAX"
"""The remedy for what autofuse does not have."""


class UnsupportedOperation(GraphError):  # noqa: N818 - a rule raises it; `refusal` is what a user sees
    """A rule cannot translate an operation: why, and what to do instead."""

    def __init__(self, problem: str, instead: str = OUTSIDE) -> None:
        super().__init__(problem)
        self.problem = problem
        self.instead = instead


def refusal(operation: str, location: Location | None, problem: str, instead: str = OUTSIDE) -> TraceError:
    """The error for an operation that cannot be translated."""
    where = f"{source_of(location)}: " if location is not None else ""
    return TraceError(f"{where}{operation} {problem}\n  instead: {instead}")
