"""Exceptions that a traced function catches: where data decide whether they are raised, a graph cannot follow.

`try: s = math.sqrt(v)` with an `except ValueError` goes one way or the other in each call. A plan has one way only: it
raises nothing that elements decide (NaN is the root, an index is clipped). So that is an error inside of such a `try`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from autofuse.frontend.location import trace_error
from autofuse.frontend.tracecontext import current


@contextmanager
def catching(kinds: Callable[[], Any]) -> Generator[None]:
    """Around the body of a `try`. `kinds`: gives the exceptions, and tuples of them, that its handlers go on after."""
    caught = current().caught
    caught.append(kinds)
    try:
        yield
    finally:
        caught.remove(kinds)


def require_uncaught(what: str, instead: str, *kinds: type[Exception]) -> None:
    """Raise TraceError where a handler around catches one of the exceptions that NumPy or Python raises of `what`."""
    for kind in kinds:
        if any(issubclass(kind, each) for given in current().caught for each in _flat(given())):
            article = "an" if kind.__name__[0] in "AIO" else "a"
            problem = f"{article} {kind.__name__} of {what} is caught, and only the run knows if it is raised"
            raise trace_error(problem, instead)


def _flat(given: Any) -> list[type]:
    return [each for part in given for each in _flat(part)] if isinstance(given, tuple) else [given]
