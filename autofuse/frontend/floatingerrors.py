"""Floating-point errors, under trace: kernels raise none, so a function that asks to hear of them is NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.errors import NumpyOnlyError
from autofuse.frontend.location import trace_error

_HEARD = ("raise", "call", "log")
"""Modes in which a program may go on in another way after an error."""


def errstate(**modes: Any) -> np.errstate:
    """`np.errstate` in a traced function. Raises NumpyOnlyError where errors are to be heard of."""
    _require_silent(modes, "np.errstate")
    return np.errstate(**modes)


def seterr(*modes: Any, **named: Any) -> Any:
    """`np.seterr` in a traced function: the same."""
    _require_silent({"all": modes[0]} if modes else named, "np.seterr")
    return np.seterr(*modes, **named)


def made_outside(state: np.errstate) -> np.errstate:
    """A context manager, or the decorator of a helper function, that the traced function did not make."""
    around, inside = np.geterr(), state(np.geterr)()  # as a decorator: such an object can be entered once only
    _require_silent({name: mode for name, mode in inside.items() if mode != around[name]}, "np.errstate")
    return state


def _require_silent(modes: dict[str, Any], what: str) -> None:
    heard = [f"{name}={mode!r}" for name, mode in modes.items() if mode in _HEARD]
    if heard:
        raise trace_error(
            f"{what}({', '.join(heard)}) cannot be traced: kernels raise no floating-point errors",
            "look at the values: np.isfinite(y), x == 0",
            NumpyOnlyError,
        )
