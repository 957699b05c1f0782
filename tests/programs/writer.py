"""Programs from seeds: line by line, each tried with NumPy before it is kept.

The writer runs what it writes: the arrays that exist after a line, their shapes, dtypes and values, and which share
memory, are those of NumPy itself. A line that NumPy refuses is dropped; now and then one is kept as the last, and the
program must then be refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import scipy.special

import autofuse as af
from tests.programs import arguments, words
from tests.programs.expressions import EXPRESSIONS
from tests.programs.holes import Holes, NoFitError
from tests.programs.source import ProgramText
from tests.programs.statements import STATEMENTS

MOST_ELEMENTS = 6000
_REFUSALS = (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError)
_LIBRARIES = {"np": np, "af": af, "scipy": scipy}
_KINDS = "biuf"


class _LineError(Exception):
    """A line that is of no use; `refusal` if NumPy itself refuses it."""

    def __init__(self, refusal: Exception | None = None) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def write_program(seed: int) -> ProgramText:
    """The program of a seed: the same text in every process."""
    return _Writer(seed).program()


class _Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = Random(seed)
        self._exact = self._rng.random() < 0.35
        """Whether only lines are written whose results NumPy and autofuse must round alike."""
        self._inputs: list[str] = []
        self._parameters: list[str] = []
        self._env: dict[str, Any] = dict(_LIBRARIES)
        self._scope: dict[str, Any] = {}
        self._statements: list[str] = []
        self._made: list[str] = []
        self._count = 0

    def program(self) -> ProgramText:
        self._write_arguments()
        wanted = self._rng.choice((1, 2, 3, 4, 5, 5, 6, 6, 7, 8, 9, 12, 16, 20))
        tries = 0
        while len(self._statements) < wanted and tries < wanted * 12:
            tries += 1
            if self._try_line():
                break
        return ProgramText(
            title=f"Program of seed {self._seed}.",
            inputs=tuple(self._inputs),
            parameters=tuple(self._parameters),
            statements=tuple(self._statements),
            results=(results := self._results()),
            returned=self._container(len(results)),
        )

    # arguments

    def _write_arguments(self) -> None:
        rng = self._rng
        extents = arguments.Extents(rng)
        common = arguments.dtype_name(rng) if rng.random() < 0.5 else None
        for name in ("x", "y", "z", "w")[: rng.choice((1, 2, 2, 3, 3, 4))]:
            dtype = common if common and rng.random() < 0.6 else arguments.dtype_name(rng)
            self._add(name, arguments.statements(rng, name, dtype, extents.shape()))
        if rng.random() < 0.35:
            dtype = rng.choice(("int64", "int64", "int32", "uint8"))
            self._add(
                "k",
                [
                    f"k = np.random.default_rng({rng.randrange(1000)}).integers(0, 5, {rng.choice((3, 4, 8))})"
                    f".astype(np.{dtype})"
                ],
            )
        if rng.random() < 0.2:
            self._add("p", [f"p = {rng.choice(('2', '-1', '0.5', 'True', '1.5', '3'))}"])
        if rng.random() < 0.12:
            self._add("q", [f"q = np.{arguments.dtype_name(rng).replace('bool', 'bool_')}({rng.choice((0, 1, 3))})"])
        if rng.random() < 0.08:
            pair = '{"a": np.arange(3.0), "b": np.ones((3, 2), np.float32)}'
            self._add("d", [f"d = {pair}"])
            self._scope |= {f'd["{key}"]': self._env["d"][key] for key in "ab"}

    def _add(self, name: str, made: Sequence[str]) -> None:
        exec("\n".join(made), self._env)
        self._inputs.extend(made)
        self._parameters.append(name)
        value = self._env[name]
        if isinstance(value, np.ndarray | np.generic):
            self._scope[name] = value
        elif not isinstance(value, dict):
            self._scope[name] = np.asarray(value)

    # lines

    def _try_line(self) -> bool:
        """Add a line, if it is one; whether it is the last because NumPy refuses it."""
        rng = self._rng
        statement = rng.random() < 0.34
        table = STATEMENTS if statement else EXPRESSIONS
        weights = [weight for weight, _ in table.values()]
        _, templates = rng.choices(list(table.values()), weights)[0]
        template = rng.choice(templates)
        fresh = [f"t{self._count}", f"t{self._count + 1}"]
        try:
            line, new = Holes(rng, self._scope, self._exact).fill(template, fresh)
            if self._exact and is_inexact(line):
                return False
            if not statement:
                line, new = self._named(line), []
            else:
                self._run(line)
        except (NoFitError, _LineError) as error:
            refusal = getattr(error, "refusal", None)
            if refusal is not None and isinstance(refusal, _REFUSALS) and rng.random() < 0.012:
                self._statements.append(line if statement else f"{fresh[0]} = {line}")
                return True
            return False
        self._count += len(new)
        self._statements.append(line)
        for name in new:
            self._keep(name)
        self._refresh()
        return False

    def _named(self, line: str) -> str:
        """The expression with names for what it makes."""
        value = self._run(line, evaluate=True)
        many = isinstance(value, tuple | list)
        items = list(value) if many else [value]
        if not 1 <= len(items) <= 4 or not all(map(_is_useful, items)):
            raise _LineError
        names = [f"t{self._count + number}" for number in range(len(items))]
        self._count += len(items)
        for name, item in zip(names, items, strict=True):
            self._env[name] = item
            self._keep(name)
        target = ", ".join(names) + ("," if many and len(names) == 1 else "")
        return f"{target} = {line}"

    def _run(self, line: str, evaluate: bool = False) -> Any:
        with warnings.catch_warnings(record=True) as found, np.errstate(all="warn"):
            warnings.simplefilter("always")
            try:
                result = eval(line, self._env) if evaluate else exec(line, self._env)
            except Exception as error:
                raise _LineError(error) from error
        if any(_casts(line) or "encountered in cast" in str(warning.message) for warning in found):
            raise _LineError  # what C leaves open
        return result

    def _keep(self, name: str) -> None:
        value = self._env.get(name)
        if value is not None and _is_useful(value):
            self._made.append(name)
            if not isinstance(value, bool):  # a number that may depend on data: NumPy's is a Python bool
                self._scope[name] = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value)

    def _refresh(self) -> None:
        """Names may mean other arrays after a line."""
        for name in [name for name in self._scope if name in self._env]:
            value = self._env[name]
            if _is_useful(value):
                self._scope[name] = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value)
            else:
                del self._scope[name]

    # results

    def _results(self) -> tuple[str, ...]:
        rng = self._rng
        names = [name for name in self._made if _is_useful(self._env[name])]
        text = "\n".join(self._statements)
        unread = [name for name in names if text.count(name) == 1]
        results = [name for name in names if name in unread or rng.random() < 0.2][-8:]
        if not results:
            results = rng.sample(list(self._scope), min(len(self._scope), 2))
        if rng.random() < 0.1:
            results.append(rng.choice(results))
        if rng.random() < 0.1:
            results.append(rng.choice(self._parameters))
        if rng.random() < 0.04:
            results.append(rng.choice(("np.arange(3)", "1.5", "np.float32(2)", "None", "np.zeros((2, 0))")))
        return tuple(results)

    def _container(self, count: int) -> str:
        rng = self._rng
        if rng.random() < 0.85:
            return "({})"
        return rng.choice(
            ("[{}]", "({},)", "{{'a': ({},), 'b': 1}}".replace("{{", "{").replace("}}", "}"), "([{}], 2)")
        )


def _is_useful(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return True
    if not isinstance(value, np.ndarray | np.generic):
        return False
    return value.dtype.kind in _KINDS and value.dtype.itemsize <= 8 and value.size <= MOST_ELEMENTS


def _casts(line: str) -> bool:
    """Whether a line may cast inside of a ufunc, where what goes wrong is a warning of the ufunc's own."""
    return "casting='unsafe'" in line or "dtype=np." in line or ".at(" in line


def is_inexact(line: str) -> bool:
    """Whether autofuse may round float results of a line otherwise than NumPy."""
    return any(word in line for word in words.INEXACT.split())
