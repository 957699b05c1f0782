"""Ufuncs as functions under trace see them."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import numpy as np

from autofuse.frontend.dispatch import tracers_in
from autofuse.frontend.promotion import as_tracer


class UfuncProxy:
    """A ufunc that also takes lists of traced arrays: `np.maximum.reduce([a, b, c])`."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._autofuse_ufunc = ufunc

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]  # nobody assigns it
        """`np.ufunc`, so that isinstance says what the user expects."""
        return np.ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._autofuse_ufunc(*map(_stacked, args), **kwargs)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._autofuse_ufunc, name)
        if name not in ("reduce", "accumulate", "outer", "at", "reduceat"):
            return value
        if name == "at":  # a tuple of indices is one index per dimension, no array
            return lambda a, index, *operands: value(
                a, index if isinstance(index, tuple) else _stacked(index), *map(_stacked, operands)
            )
        return lambda *args, **kwargs: value(*map(_stacked, args), **kwargs)

    def __eq__(self, other: object) -> bool:
        return self._autofuse_ufunc == getattr(other, "_autofuse_ufunc", other)

    def __hash__(self) -> int:
        return hash(self._autofuse_ufunc)

    def __repr__(self) -> str:
        return repr(self._autofuse_ufunc)


def _stacked(value: Any) -> Any:
    """A list with traced arrays in it as one traced array; anything else as it is."""
    if type(value) is deque:
        value = list(cast("deque[Any]", value))
    if isinstance(value, list | tuple) and any(True for _ in tracers_in(value)):
        return as_tracer(value)
    return value
