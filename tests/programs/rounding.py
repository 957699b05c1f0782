"""How much a program's answers depend on rounding: NumPy runs it again, its inexact lines off by some ulps.

The program is run statement by statement. The results of calls that libraries round differently are moved by up to four
ulps at random, inside a statement too, where they may be of a narrower dtype than what it makes; so are the floats that
such a statement made or changed, and the arguments at the start. NaN gets either sign, and calls of
16-bit floats are computed in f32 in half of the runs.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

import autofuse as af
from tests.programs.outcomes import Outcome, outcome_of
from tests.programs.source import Module
from tests.programs.writer import is_inexact

_ULPS = 4.0
_CANCELLING = frozenset({"var", "std", "nanvar", "nanstd", "cov", "corrcoef"})
_MOVED = "_moved_"
_CALLED = "_called_"
_EPSILON = {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}


def shaken_outcomes(module: Module, count: int) -> list[Outcome]:
    """Outcomes of `count` runs, each rounded in its own way; those that fail are left out."""
    return [found for number in range(count) if (found := _shaken(module, number)) is not None]


def _shaken(module: Module, number: int) -> Outcome | None:
    rng = np.random.default_rng(number)
    arguments = module.arguments()
    env: dict[str, Any] = {"np": np, "af": af, "scipy": scipy}
    env.update(zip(module.text.parameters, arguments, strict=True))
    if number % 2:
        for name in module.text.parameters:
            env[name] = _moved(env[name], rng)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for statement in module.text.statements:
                _step(statement, env, rng, number)
            returned = eval(compile(ast.parse(module.text.result, mode="eval"), "<result>", "eval"), env)
    except Exception:  # noqa: BLE001 - an index out of bounds, say, that rounding leads to
        return None
    return outcome_of(returned, arguments)


def _step(statement: str, env: dict[str, Any], rng: np.random.Generator, number: int) -> None:
    if not is_inexact(statement):
        exec(statement, env)
        _turn_nans(env, rng)
        return
    before = {id(root): (root, root.copy()) for root in _roots(env.values())}
    held = [root for root, _ in before.values()]
    calls = _Rounded(held, rng, wide=number % 4 > 1, inner=number % 3 == 2)
    env[_CALLED], env[_MOVED] = calls.called, calls.moved
    exec(compile(_Calls().visit(ast.parse(statement)), "<statement>", "exec"), env)
    del env[_CALLED], env[_MOVED]
    for root in _roots(env.values()):
        known = before.get(id(root))
        _shake(root, None if known is None else known[1], rng)
    _turn_nans(env, rng)
    for name, value in list(env.items()):
        if isinstance(value, np.floating) and name in statement.split("=")[0]:
            env[name] = _moved(value, rng)


def _turn_nans(env: dict[str, Any], rng: np.random.Generator) -> None:
    """NaN of either sign in all arrays and numbers."""
    for name, value in list(env.items()):
        if isinstance(value, np.floating) and np.isnan(value) and rng.random() < 0.5:
            env[name] = -value
    for root in _roots(env.values()):
        turned = np.isnan(root) & (rng.random(root.shape) < 0.5)
        root[turned] = -root[turned]


class _Calls(ast.NodeTransformer):
    """Puts every call that libraries round differently into one that moves its result."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not is_inexact(f"{ast.unparse(node.func)}("):
            return node
        return _call(node, _CALLED, [node.func, *node.args], node.keywords)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _call(node, _MOVED, [node], []) if isinstance(node.op, ast.MatMult | ast.Pow) else node


def _call(place: ast.expr, name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.AST:
    return ast.fix_missing_locations(ast.copy_location(ast.Call(ast.Name(name, ast.Load()), args, keywords), place))


@dataclass(frozen=True, slots=True)
class _Rounded:
    """Calls whose results are rounded otherwise."""

    held: Sequence[NDArray[Any]]
    """Arrays of the program, which are left as they are."""
    rng: np.random.Generator
    wide: bool
    """Whether calls of 16-bit floats compute in f32 and round once, as docs/ops.md says of sums and products."""

    inner: bool
    """Whether the arguments of `_CANCELLING` calls are off too: what such a call subtracts has been rounded inside."""

    def called(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a call returns, moved. What it writes into `out=` by ulps of the dtype that it makes alone."""
        if self.inner and getattr(function, "__name__", "") in _CANCELLING:
            function, args = self._shaken_inside(function, args)
        alone = {name: value for name, value in kwargs.items() if name != "out"}
        wide = _widened(function, args, alone) if self.wide else None
        if self.wide and function is np.prod and "initial" in kwargs:  # products are in any order, as docs/ops.md says
            initial = alone.pop("initial")
            return np.multiply(np.prod(*args, **alone), initial)
        own = function(*args, **alone) if "out" in kwargs else None
        result = function(*args, **kwargs)
        if own is not None:
            known = isinstance(result, np.ndarray) and isinstance(own, np.ndarray | np.generic)
            return _moved(result, self.rng, np.dtype(own.dtype)) if known else result
        if isinstance(result, np.ndarray | np.float16) and result.dtype == np.float16 and wide is not None:
            result = np.asarray(wide).astype(np.float16)[()] if np.shape(wide) == result.shape else result
        return self.moved(result)

    def _shaken_inside(self, function: Any, args: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The call on copies of its arrays whose floats are moved."""
        receiver = getattr(function, "__self__", None)
        if isinstance(receiver, np.ndarray):
            function = getattr(_moved(receiver.copy(), self.rng), function.__name__)
        return function, [_moved(item.copy(), self.rng) if isinstance(item, np.ndarray) else item for item in args]

    def moved(self, value: Any) -> Any:
        """A result, moved; what is an array of the program, or a view, as it is."""
        if isinstance(value, tuple | list):
            return type(value)(self.moved(item) for item in value)
        old = isinstance(value, np.ndarray) and (value.base is not None or any(value is root for root in self.held))
        return value if old else _moved(value, self.rng)


def _widened(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a call makes of f32 in place of 16-bit floats; None if there are none."""
    receiver = getattr(function, "__self__", None)
    operands = [receiver, *args]
    if not any(getattr(item, "dtype", None) == np.float16 for item in operands):
        return None
    first, *rest = (
        item.astype(np.float32) if getattr(item, "dtype", None) == np.float16 else item for item in operands
    )
    method = isinstance(receiver, np.ndarray | np.generic)
    return (getattr(first, function.__name__) if method else function)(*rest, **kwargs)


def _roots(values: Any) -> Sequence[NDArray[Any]]:
    """The arrays that own the memory of all floats."""
    found: dict[int, NDArray[Any]] = {}
    for value in _arrays(values):
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if root.dtype.kind == "f" and root.flags.writeable:
            found[id(root)] = root
    return list(found.values())


def _arrays(values: Any) -> Any:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list | tuple):
            yield from _arrays(value)
        elif isinstance(value, dict) and "__builtins__" not in value:
            yield from _arrays(value.values())


def _shake(root: NDArray[Any], before: NDArray[Any] | None, rng: np.random.Generator) -> None:
    changed = np.ones(root.shape, np.bool_) if before is None else root != before
    if changed.any():
        root[changed] = _moved(root[changed], rng)


def _moved(value: Any, rng: np.random.Generator, dtype: np.dtype[Any] | None = None) -> Any:
    """Floats off by up to some ulps, of their own dtype or another, in place; whatever else as it is."""
    if isinstance(value, dict):
        return {key: _moved(item, rng) for key, item in value.items()}
    if not isinstance(value, np.ndarray | np.floating) or value.dtype.kind != "f" or value.dtype.itemsize > 8:
        return value
    epsilon = _EPSILON[value.dtype.itemsize]
    if dtype is not None and dtype.kind == "f":
        epsilon = max(epsilon, _EPSILON.get(dtype.itemsize, 0.0))
    ulps = rng.uniform(-_ULPS, _ULPS, np.shape(value)) * epsilon
    with np.errstate(all="ignore"):
        moved = (np.asarray(value, np.float64) * (1.0 + ulps)).astype(value.dtype)
    if isinstance(value, np.ndarray):
        value[...] = moved
        return value
    return moved[()]
