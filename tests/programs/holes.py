"""Filling the holes of a template with names, numbers and indices that fit the arrays a program has so far.

Holes for arrays, by what they hold: `x` any, `n` numbers, `f` floats, `i` integers, `b` bools, `ib` integers or bools,
`v` one axis, `m` two, `x3` three, `c` two or more, `w` an array that can be written (`wv`, `w2`, `wf`, `wi` alike).
`{1}`, `{2}` repeat the first and second of them. `y` is an operand that broadcasts to the first array, `like` an array
of its shape or a number, `same` an array of its shape, `similar` one of its rank, `inner` one that it can be multiplied
with; `mask` (`mask0`: of any array) bools of its shape. All others are numbers, axes, shapes, dtypes and indices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from tests.programs.indices import Indices
from tests.programs.literals import Literals, NoFitError

_CHOICE = re.compile("«([^«»]*)»")
_HOLE = re.compile(r"\{(\w+)\}")


def _writable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.flags.writeable


KINDS: Mapping[str, Callable[[Any], bool]] = {
    "x": lambda v: True,
    "n": lambda v: v.dtype != np.bool_,
    "f": lambda v: v.dtype.kind == "f",
    "i": lambda v: v.dtype.kind in "iu",
    "b": lambda v: v.dtype.kind == "b",
    "ib": lambda v: v.dtype.kind in "biu",
    "v": lambda v: v.ndim == 1,
    "m": lambda v: v.ndim == 2,
    "x3": lambda v: v.ndim == 3,
    "c": lambda v: v.ndim >= 2,
    "w": _writable,
    "wv": lambda v: _writable(v) and v.ndim == 1,
    "w2": lambda v: _writable(v) and v.ndim == 2,
    "wf": lambda v: _writable(v) and v.dtype.kind == "f",
    "wi": lambda v: _writable(v) and v.dtype.kind in "iu",
    "out": _writable,
    "three": lambda v: v.ndim >= 1 and v.shape[-1] in (2, 3),
    "count": lambda v: v.ndim == 1 and v.dtype.kind in "iu" and bool(np.all((v >= 0) & (v < 50))),
}
_MADE = {
    "f": "{x}.astype(np.float64)",
    "i": "np.arange({size})",
    "ib": "({x} > {s})",
    "b": "({x} > {s})",
    "v": "{x}.ravel()",
    "m": "{x}.reshape(1, -1)",
    "c": "{x}.reshape(-1, 1)",
    "three": "np.arange(3.0)",
    "count": "np.array([1, 0, 3, 1])",
    "n": "{x}.astype(np.int32)",
}
"""What to write where no array of a kind is there."""


class Holes(Literals):
    """Fills templates for one program. `scope`: the value of every expression that names an array now."""

    def __init__(self, rng: Random, scope: Mapping[str, Any], exact: bool) -> None:
        super().__init__(rng, exact)
        self._scope = scope
        self._new: list[str] = []
        self._axis = "0"

    def fill(self, template: str, new_names: list[str]) -> tuple[str, list[str]]:
        """The line, and the new names it assigns. Raises NoFitError."""
        self._chosen, self._new, self._axis = [], [], "0"
        while "«" in template:
            template = _CHOICE.sub(self._choice, template, count=1)
        return _HOLE.sub(lambda match: self._hole(match[1], new_names), template), self._new

    def _choice(self, match: re.Match[str]) -> str:
        options = match[1].split(";;")
        if len(options) == 1:
            return options[0] if self._rng.random() < 0.4 else ""
        return self._rng.choice(options)

    def _hole(self, kind: str, waiting: list[str]) -> str:
        if kind in ("new", "new2"):
            name = waiting[kind == "new2"]
            self._new.extend([name] if name not in self._new else [])
            return name
        if kind.isdigit():
            if int(kind) > len(self._chosen):
                raise NoFitError(kind)
            return self._chosen[int(kind) - 1][0]
        if kind in KINDS:
            return self._array(kind)
        own = getattr(self, f"hole_{kind}", None)
        if own is not None:
            return str(own())
        array = self._chosen[0][1] if self._chosen else np.zeros(3)
        return str(getattr(Indices(self._rng, array, self._scope), kind)())

    # arrays

    def _array(self, kind: str) -> str:
        fits = KINDS[kind]
        rng = self._rng
        names = [name for name, value in self._scope.items() if fits(value)]
        if not names:
            if kind not in _MADE:
                raise NoFitError(kind)
            text = _HOLE.sub(lambda match: self._hole(match[1], []), _MADE[kind])
            made = self._evaluated(text)
            self._chosen = [*[pair for pair in self._chosen if pair[0] not in text], (text, made)]
            return text
        # what was made last is read most: programs are then chains, not lists
        weights = [1 + position for position in range(len(names))]
        name = rng.choices(names, weights)[0]
        self._chosen.append((name, self._scope[name]))
        return name

    def _evaluated(self, text: str) -> Any:
        names = {name: value for name, value in self._scope.items() if name.isidentifier()}
        roots = {name.split("[")[0] for name in self._scope if not name.isidentifier()}
        if any(root in text for root in roots):
            raise NoFitError(text)
        with np.errstate(all="ignore"):
            return np.asarray(eval(text, {"np": np, **names}))

    def _shaped(self, fits: Callable[[Any], bool]) -> str | None:
        names = [name for name, value in self._scope.items() if fits(value)]
        return self._rng.choice(names) if names else None

    def hole_y(self) -> str:
        if self._rng.random() < 0.3:
            return self.hole_s()
        shape = np.shape(self._first)

        def fits(value: Any) -> bool:
            try:
                return np.broadcast_shapes(shape, np.shape(value)) == shape
            except ValueError:
                return False

        return self._shaped(fits) or self.hole_s()

    def hole_ynz(self) -> str:
        return self._rng.choice(("1", "2", "3", "5"))

    def hole_like(self) -> str:
        if self._rng.random() < 0.2:
            return self.hole_s()
        return self.hole_same()

    def hole_same(self) -> str:
        shape = np.shape(self._first)
        found = self._shaped(lambda value: np.shape(value) == shape)
        text = found or self._chosen[0][0]
        if found is None or self._rng.random() < 0.15:
            text = f"({text} * 2)" if self._first.dtype != np.bool_ else f"(~{text})"
        self._chosen.append((text, self._first))
        return text

    def hole_outlike(self) -> str:
        """An array of the first one's shape that can be written, of any dtype."""
        shape = np.shape(self._first)
        found = self._shaped(lambda value: _writable(value) and value.shape == shape)
        if found is None:
            raise NoFitError("outlike")
        return found

    def hole_similar(self) -> str:
        rank = np.ndim(self._first)
        return self._shaped(lambda value: np.ndim(value) == rank) or self._chosen[0][0]

    def hole_inner(self) -> str:
        depth = self._first.shape[-1] if np.ndim(self._first) else 1
        found = self._shaped(lambda v: (v.ndim == 1 and v.shape[0] == depth) or (v.ndim >= 2 and v.shape[-2] == depth))
        return found or f"{self._chosen[0][0]}.T"

    def hole_part(self) -> str:
        """What is stored to some elements: mostly a number, or an array that may broadcast."""
        choice = self._rng.random()
        if choice < 0.5:
            return self.hole_s()
        name, value = self._chosen[0]
        if choice < 0.65 and np.ndim(value):
            return f"{name}[{self._rng.choice(('0', '-1', '::-1', '...'))}]"
        return self._shaped(lambda v: np.ndim(v) < max(np.ndim(value), 1)) or self.hole_s()

    def hole_part1(self) -> str:
        return self.hole_s() if self._rng.random() < 0.7 else self.hole_part()

    def hole_mask(self) -> str:
        name, value = self._chosen[0]
        return self._mask_of(name, value)

    def hole_mask0(self) -> str:
        if not self._chosen:
            self._array("x")
            name, value = self._chosen.pop(0)
            return self._mask_of(name, value)
        return self.hole_mask()

    def _mask_of(self, name: str, value: Any) -> str:
        shape = np.shape(value)
        # NumPy reads a mask while it writes: what comes of one that shares the target's memory is left open
        found = self._shaped(
            lambda v: v.dtype == np.bool_ and np.shape(v) == shape and not np.may_share_memory(v, value)
        )
        if found and self._rng.random() < 0.7:
            return found
        return self._rng.choice(
            (f"({name} > {self.hole_s()})", f"({name} <= {self.hole_s()})", f"({name} != {self.hole_s()})")
        )

    # axes, shapes and indices of the first array

    def _axis_of(self, value: Any) -> str:
        rank = np.ndim(value)
        axis = self._rng.randrange(max(rank, 1))
        self._axis = str(axis - rank if rank and self._rng.random() < 0.4 else axis)
        return self._axis

    def hole_axis(self) -> str:
        return self._axis_of(self._first if self._chosen else np.zeros(1))

    def hole_axis0(self) -> str:
        return "0"

    def hole_sameaxis(self) -> str:
        return self._axis

    def hole_axes(self) -> str:
        rank = np.ndim(self._first)
        if rank < 2 or self._rng.random() < 0.6:
            return self._axis_of(self._first) if self._rng.random() < 0.8 else "None"
        count = self._rng.randint(1, rank)
        axes = self._rng.sample(range(rank), count)
        return f"({', '.join(map(str, axes))},)"
