"""What JAX traces and no plan has: effects, named axes. Errors that name the operation, its line, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax.extend import source_info_util
from jax.extend.core import jaxprs_in_params

from autofuse.errors import TraceError

_CALLBACK = 'move it outside of the function, or say on_unsupported="xla"'
_COLLECTIVE = (
    'give the function arrays without a mapped axis and reduce along an axis of theirs, or say on_unsupported="xla"'
)


def refusal(closed: Any, name: str) -> TraceError:
    """The error for a traced function with effects, which a plan has not."""
    found = list(_effectful(closed.jaxpr))
    told = ", ".join(dict.fromkeys(f"{equation.primitive.name} at {_line(equation)}" for equation in found))
    named = any("NamedAxis" in type(effect).__name__ for equation in found for effect in equation.effects)
    what = "communicates along a named axis" if named else "has effects beside its results"
    return TraceError(
        f"{name}: {told} {what}, and a plan only computes\n  instead: {_COLLECTIVE if named else _CALLBACK}"
    )


def _effectful(jaxpr: Any) -> Iterator[Any]:
    """The innermost equations with effects."""
    for equation in jaxpr.eqns:
        if equation.effects:
            inner = [one for part in jaxprs_in_params(equation.params) for one in _effectful(part)]
            yield from inner or [equation]


def _line(equation: Any) -> str:
    return source_info_util.summarize(equation.source_info)
