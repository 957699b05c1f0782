"""Indices into an array, and shapes it can take, as text."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np


class Indices:
    """Of one array. `scope`: the arrays of the program, for indices that are not known while tracing."""

    def __init__(self, rng: Random, array: Any, scope: Mapping[str, Any]) -> None:
        self._rng = rng
        self._shape = np.shape(array)
        self._scope = scope

    def _position(self, extent: int) -> str:
        extent = max(extent, 1)
        return str(self._rng.choice((self._rng.randrange(extent), -self._rng.randrange(extent) - 1)))

    def whole(self) -> str:
        """One element."""
        return ", ".join(self._position(extent) for extent in self._shape) or "()"

    def before(self) -> str:
        return self.whole()

    def last(self) -> str:
        return ", ".join("-1" for _ in self._shape) or "()"

    def whole1(self) -> str:
        """One element of the raveled array."""
        return self._position(int(np.prod(self._shape)))

    def basic(self) -> str:
        """Integers, slices, new axes and an ellipsis."""
        items = [self._item(extent) for extent in self._shape]
        if self._rng.random() < 0.35:
            items = items[: self._rng.randint(0, len(items))]
        if self._rng.random() < 0.2:
            items.insert(self._rng.randint(0, len(items)), self._rng.choice(("None", "...")))
        return ", ".join(items) or "..."

    def _item(self, extent: int) -> str:
        rng = self._rng
        if rng.random() < 0.35:
            return self._position(extent)
        return rng.choice(
            (":", "::-1", "1:", ":-1", "::2", "1::2", "::-2", ":2", "-2:", "1:-1", ":0", "-1:0:-1", "2:1")
        )

    def fancy(self) -> str:
        """Integer arrays, with repeated and negative positions, among other items."""
        rng = self._rng
        if not self._shape:
            return "..."
        axis = rng.randrange(len(self._shape))
        items = [self._item(extent) if rng.random() < 0.4 else ":" for extent in self._shape]
        items[axis] = self._array(self._shape[axis])
        if len(items) > 1 and rng.random() < 0.25:
            other = (axis + 1) % len(items)
            items[other] = self._array(self._shape[other], 3)
        while len(items) > 1 and items[-1] == ":" and rng.random() < 0.8:
            items.pop()
        return ", ".join(items)

    def _array(self, extent: int, count: int | None = None) -> str:
        rng = self._rng
        count = rng.randint(1, 4) if count is None else count
        listed = "[" + ", ".join(self._position(extent) for _ in range(count)) + "]"
        choice = rng.random()
        if choice < 0.4:
            return listed
        if choice < 0.6:
            return f"np.array({listed})"
        if choice < 0.7:
            return f"np.array([{listed}, {listed}])"
        names = self._whole_numbers(rank=1)
        if names and extent:
            return f"{rng.choice(names)} % {extent}"
        return listed

    def _whole_numbers(self, rank: int) -> list[str]:
        return [n for n, v in self._scope.items() if np.ndim(v) == rank and v.dtype.kind in "iu" and v.size]

    def dynamic(self) -> str:
        """An index that is a value of the program."""
        names = self._whole_numbers(rank=1)
        extent = self._shape[0] if self._shape else 0
        if not names or not extent:
            return f"np.int64({self._position(extent)})" if self._shape else "..."
        name = self._rng.choice(names)
        return self._rng.choice((f"{name}[0] % {extent}", f"{name}[-1] % {extent}", f"{name}.max() % {extent}"))

    def places(self) -> str:
        """Positions along the shortest axis, as an array."""
        return self._array(min(self._shape, default=1) or 1)

    def places0(self) -> str:
        """Numbers below three, as an array."""
        names = self._whole_numbers(rank=1)
        if names and self._rng.random() < 0.7:
            return f"{self._rng.choice(names)} % 3"
        return "np.array([2, 0, 1, 1])"

    def shape(self) -> str:
        """A shape of as many elements."""
        size = int(np.prod(self._shape))
        rng = self._rng
        divisors = [d for d in range(1, min(size, 64) + 1) if size % d == 0] or [1]
        first = rng.choice(divisors)
        options = ["-1", f"({first}, -1)", f"(-1, {first})", f"({size},)", "(1, -1)", f"({first}, 1, {size // first})"]
        return rng.choice(options)

    def newshape(self) -> str:
        rng = self._rng
        return rng.choice(("3", "(2, 3)", "(3,)", "(0, 2)", "(4, 1, 2)", "()", "7"))

    def bshape(self) -> str:
        """A shape that the array can be broadcast to."""
        wide = tuple(3 if extent == 1 else extent for extent in self._shape)
        return str(self._rng.choice((wide, (2, *wide), (1, 2, *self._shape))))

    def perm(self) -> str:
        axes = list(range(len(self._shape)))
        self._rng.shuffle(axes)
        return str(tuple(axes)) if axes else "()"
