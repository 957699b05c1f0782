"""`x.flat`: all elements in C order, whatever the memory order. Reading copies, writing reaches the array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from autofuse.frontend.dispatch import FUNCTIONS, call
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.steps import FlatStep
from autofuse.frontend.tracer import TracerArray, view


class Flat(TracerArray):
    """Stands for NumPy's `flatiter`, over a view of rank 1 of the array."""

    __slots__ = ("_position",)

    def __init__(self, array: TracerArray) -> None:
        super().__init__(view(array, FlatStep()).cell)
        self._position = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return found.copy() if isinstance(found, TracerArray) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        """As NumPy: values are repeated, or cut, to as many as there are elements."""
        new = as_tracer(value)
        target = super().__getitem__(index)
        if new.size not in (0, 1) and isinstance(target, TracerArray) and target.size:
            repeated = call(np.tile, call(np.ravel, new), -(-target.size // new.size))
            super().__setitem__(index, repeated[: target.size].reshape(target.shape))
        else:
            super().__setitem__(index, value)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._position == self.size:
            raise StopIteration
        self._position += 1
        return self[self._position - 1]


FUNCTIONS["flat"] = Flat
