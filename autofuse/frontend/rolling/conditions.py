"""Conditions that only the run knows: `a and b`, `a or b`, `not a`, `a < b <= c`, `a is True`.

Python asks for what follows only if what comes before does not decide. Here all of it is asked for, which is right as
long as it does no more than compute. What also changes something, `x > 0 and stack.pop()`, is a side of a branch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from autofuse.frontend.cells import Cell
from autofuse.frontend.forks import CannotRollError, Fork
from autofuse.frontend.location import OWN_FOLDER, withdrawn
from autofuse.frontend.regions import Region
from autofuse.frontend.rolling.arithmetic import truth
from autofuse.frontend.rolling.nothing import absent_of, with_settled, without_absent
from autofuse.frontend.rolling.numbers import Comparison, Number, Truth, truth_of
from autofuse.frontend.rolling.places import put_back
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray

_Later = Callable[[], Any]
"""An operand, computed when it is asked for."""
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def undecided(test: Any) -> TracerArray | None:
    """The condition, if it is a traced scalar that only the run knows; None if Python can tell."""
    absent = absent_of(test)
    if isinstance(test, Number):
        test = truth(without_absent(test))
    if absent is not None:  # None is false
        found: Any = np.logical_and(np.logical_not(absent), test)
        return with_settled(truth_of(found), frozenset((absent.cell,)), frozenset())
    if not isinstance(test, TracerArray) or test.known is not None or test.size != 1:
        return None
    return test.reshape(()) if test.shape else test


def opposite(test: Any) -> Any:
    """`not a`."""
    traced = undecided(test)
    if traced is None:
        return not test
    turned: Any = np.logical_not(traced)
    return with_settled(_like(truth_of(turned), traced), *traced.settles[::-1])


def is_constant(value: Any, wanted: bool | None) -> Any:
    """`a is None`, `a is True` or `a is False`."""
    absent = absent_of(value)
    if wanted is None and absent is not None:
        return absent
    if isinstance(value, Truth) and wanted is not None:
        return value if wanted else opposite(value)
    return value is wanted


class Conditions:
    """Conditions of the functions of one trace."""

    def __init__(self, branch: Callable[[TracerArray, Sequence[_Later]], Any]) -> None:
        """`branch`: from a condition and what its two sides compute to what the one that is taken does."""
        self._branch = branch
        self._is_trial = False

    def all_of(self, *tests: _Later) -> Any:
        """`a and b and ...` in a condition."""
        return self._several(tests, np.logical_and, stops=False)

    def any_of(self, *tests: _Later) -> Any:
        """`a or b or ...` in a condition."""
        return self._several(tests, np.logical_or, stops=True)

    def _several(self, tests: Sequence[_Later], ufunc: np.ufunc, *, stops: bool) -> Any:
        joined: Any = None
        for number, test in enumerate(tests):
            if joined is not None and self._changes_things(test):
                rest = partial(self._several, tests[number:], ufunc, stops=stops)
                return self._one_of(joined, rest, lambda: stops, stops)
            held = test()
            traced = undecided(held)
            if traced is not None:
                joined = traced if joined is None else _both(ufunc, joined, traced, stops)
            elif bool(held) is stops:
                return stops
        return not stops if joined is None else joined

    def value_of(self, values: Sequence[_Later], *, stops: bool) -> Any:
        """`a and b`, or with `stops` `a or b`, as a value: the first one that decides it."""
        held = values[0]()
        traced = undecided(held) if len(values) > 1 else None
        if len(values) == 1 or (traced is None and bool(held) is stops):
            return held
        if traced is not None and self._changes_things(*values[1:]):
            return self._one_of(traced, lambda: self.value_of(values[1:], stops=stops), lambda: held, stops)
        rest = self.value_of(values[1:], stops=stops)
        if traced is None:
            return rest
        if isinstance(rest, bool | np.bool_) and held is traced and traced.dtype == np.bool_:
            return rest if bool(rest) is stops else traced
        other = undecided(rest)
        if other is not None and held is traced and other is rest and traced.dtype == other.dtype == np.bool_:
            return (self.any_of if stops else self.all_of)(lambda: traced, lambda: other)
        return self._one_of(traced, lambda: rest, lambda: held, stops)

    def compared(self, signs: Sequence[str], left: Any, *others: _Later) -> Any:
        """`a < b <= c`: what follows is asked for as long as Python cannot tell that it is in vain."""
        right = others[0]()
        held = _SIGNS[signs[0]](left, right)
        traced = undecided(held)
        if len(signs) == 1 or (traced is None and not held):
            return held
        if traced is None:
            return self.compared(signs[1:], right, *others[1:])
        if self._changes_things(*others[1:]):
            return self._one_of(traced, lambda: self.compared(signs[1:], right, *others[1:]), lambda: held, False)
        rest = self.compared(signs[1:], right, *others[1:])
        other = undecided(rest)
        if other is None:
            return traced if rest else rest
        both: Any = np.logical_and(traced, other)
        return _like(both, traced, other)

    def _one_of(self, test: TracerArray, rest: _Later, known: _Later, stops: bool) -> Any:
        """What is `known` where the condition is what `stops`; else the rest."""
        return self._branch(test, (known, rest) if stops else (rest, known))

    def _changes_things(self, *operands: _Later) -> bool:
        """Whether operands do more than compute: they are traced on trial, in a region that is dropped.

        In a trial all operands that are inside of it are asked for at once.
        """
        if self._is_trial or not any(_calls(operand.__code__) for operand in operands):
            return False
        fork = Fork()
        region = Region("trial", (), fork=fork)
        left = current().left_to_numpy
        count = len(left)
        self._is_trial = True
        try:
            with withdrawn(), region.entered():
                for operand in operands:
                    operand()
        except (CannotRollError, Exception):  # noqa: BLE001 - as a side of a branch it is raised again, or is right
            return True
        finally:
            self._is_trial = False
            del left[count:]
            put_back(fork)
        return bool(fork.changed() or fork.places or fork.appended)


def _calls(code: CodeType) -> bool:
    """Whether code calls functions, or has others inside that may."""
    inside = any(isinstance(constant, CodeType) for constant in code.co_consts)
    return inside or "_af_call" in code.co_names or code.co_filename.startswith(OWN_FOLDER)


def _both(ufunc: np.ufunc, first: TracerArray, second: TracerArray, stops: bool) -> TracerArray:
    """Both of two conditions, or with `stops` one of them; what each settles, both do, or none does."""
    settled = first.settles[stops] | second.settles[stops]
    sides = (frozenset[Cell](), settled) if stops else (settled, frozenset[Cell]())
    joined: Any = ufunc(first, second)
    return with_settled(_like(joined, first, second), *sides)


def _like(test: TracerArray, *made_of: TracerArray) -> TracerArray:
    """A condition that Python could tell if it could tell those it is made of."""
    if all(isinstance(one, Comparison) for one in made_of):
        return Comparison(test.cell, is_scalar=True)
    return truth_of(test) if all(isinstance(one, Truth) for one in made_of) else test
