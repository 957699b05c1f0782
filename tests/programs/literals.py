"""Holes of templates that numbers, dtypes and names of functions fill."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from tests.programs import words
from tests.programs.arguments import DTYPES, SIZES

_METHODS = ("linear", "lower", "higher", "nearest", "midpoint")


class NoFitError(Exception):
    """No array of the program fits a hole."""


class Literals:
    """One method per kind of hole; the first array of the line decides about many.

    `exact`: whether the line must be one that NumPy and autofuse round alike.
    """

    def __init__(self, rng: Random, exact: bool) -> None:
        self._rng = rng
        self._exact = exact
        self._chosen: list[tuple[str, Any]] = []

    @property
    def _first(self) -> Any:
        if not self._chosen:
            raise NoFitError("no array yet")
        return self._chosen[0][1]

    def hole_s(self) -> str:
        """A Python number for the first array, if there is one."""
        rng = self._rng
        kind = self._first.dtype.kind if self._chosen else "f"
        if rng.random() < 0.1:
            kind = rng.choice("fib")
        if kind == "f":
            return rng.choice(("0.5", "2.0", "-1.5", "1.0", "0.0", "3", "-1", "2", "0.25", "1e-3", "np.inf", "np.nan"))
        if kind == "b":
            return rng.choice(("True", "False", "True", "1", "0.5"))
        if kind == "u":
            return rng.choice(("0", "1", "2", "3", "7", "100", "1.5"))
        return rng.choice(("0", "1", "2", "3", "-1", "-2", "7", "100", "1.5", "True"))

    def hole_fs(self) -> str:
        return self._rng.choice(("0.5", "2.0", "-1.0", "1.5", "3.0", "-0.5", "2", "3", "0.0"))

    def hole_lo(self) -> str:
        return self._rng.choice(("-1", "0", "0.5", "1")) if self._first.dtype.kind == "f" else "1"

    def hole_hi(self) -> str:
        return self._rng.choice(("1.5", "2", "3")) if self._first.dtype.kind == "f" else "4"

    def hole_intpos(self) -> str:
        return self._rng.choice(("2", "3", "2.0", "0.5"))

    def hole_power(self) -> str:
        return self._rng.choice(
            ("2", "3", "0", "1", "2.0", "0.5") + (("-1", "-2") if self._first.dtype.kind == "f" else ())
        )

    def hole_bits(self) -> str:
        return "True" if self._first.dtype == np.bool_ else self._rng.choice(("1", "3", "7", "6"))

    def hole_small(self) -> str:
        return self._rng.choice(("0", "1", "2", "3"))

    def hole_count3(self) -> str:
        return self._rng.choice(("1", "2", "3"))

    def hole_size(self) -> str:
        return str(self._rng.choice([size for size in SIZES if size]))

    def hole_off(self) -> str:
        return self._rng.choice(("0", "1", "-1", "2"))

    def hole_shift(self) -> str:
        return self._rng.choice(("1", "-1", "2", "7", "0"))

    def hole_width(self) -> str:
        return self._rng.choice(("1", "2", "(1, 2)", "(0, 1)", "0"))

    def hole_percent(self) -> str:
        return self._rng.choice(("50", "0", "100", "25", "[10, 50, 90]", "33.3"))

    def hole_share(self) -> str:
        return self._rng.choice(("0.5", "0.0", "1.0", "0.25", "[0.1, 0.5]", "0.9"))

    def hole_method(self) -> str:
        return self._rng.choice(_METHODS)

    # dtypes, functions

    def hole_dtype(self) -> str:
        return f"np.{self._rng.choice(tuple(DTYPES))}"

    def hole_fdtype(self) -> str:
        return f"np.{self._rng.choice(('float32', 'float64', 'float64'))}"

    def hole_samewidth(self) -> str:
        width = self._first.dtype.itemsize
        names = [n for n in DTYPES if np.dtype(n).itemsize == width and n != "bool"]
        return f"np.{self._rng.choice(names)}"

    def hole_ufunc1(self) -> str:
        pool = words.UFUNC1.split()
        if not self._exact and self._rng.random() < 0.4:
            pool = words.UFUNC1F.split()
        return self._rng.choice(pool)

    def hole_ufunc1f(self) -> str:
        return self._rng.choice(words.UFUNC1F.split())

    def hole_ufunc1i(self) -> str:
        return self._rng.choice(words.UFUNC1I.split())

    def hole_ufunc2(self) -> str:
        return self._rng.choice(words.UFUNC2.split())

    def hole_ufunc2f(self) -> str:
        return self._rng.choice(words.UFUNC2F.split())

    def hole_ufunc2i(self) -> str:
        return self._rng.choice(words.UFUNC2I.split())

    def hole_ukw(self) -> str:
        rng = self._rng
        choice = rng.random()
        if choice < 0.88:
            return ""
        return rng.choice(
            (f", dtype={self.hole_dtype()}", ", casting='unsafe'", f", dtype={self.hole_dtype()}, casting='unsafe'")
        )
