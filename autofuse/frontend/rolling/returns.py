"""`return` inside of a branch or loop as a value and a flag: such branches and loops can become ones of the graph.

    if T:                       if T:
        A                           A
        return X                    _af_value_0 = X
    B                           else:
    return Y                        B
                                    _af_value_0 = Y
                                return _af_value_0

    for TARGET in ITEMS:        _af_done = False
        A                       for TARGET in ITEMS:
        if T:                       A
            return X                if T:
    return Y                            _af_value_0 = X; _af_done = True
                                        break
                                if not _af_done:
                                    _af_value_0 = Y
                                return _af_value_0

Functions that return tuples of one length, written out, have a variable for each element. A function stays as it is
where it returns from inside of `try` or `match`, or where returns follow one another so often that what is
left would be nested too deep.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any

from autofuse.frontend.rolling.breaks import jumps

PREFIX = "_af_"
"""Begins every name that rewritten functions have and their source has not."""
_OPAQUE = (ast.Try, ast.TryStar, ast.Match, ast.AsyncFor, ast.AsyncWith)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_DEEPEST = 24
"""Most branches inside of one another that are made."""


def without_returns(function: ast.FunctionDef) -> None:
    """Rewrite a function definition."""
    returns = [node for statement in function.body for node in _returns(statement)]
    at_top = [statement for statement in function.body if isinstance(statement, ast.Return)]
    if len(returns) == len(at_top) or any(map(_returns_from_opaque, function.body)):
        return
    changer = _Changer(returns, _ends_with_return(function.body))
    function.body = changer.body(copy.deepcopy(function.body), function) or function.body
    ast.fix_missing_locations(function)


def is_returned(name: object) -> bool:
    """Whether a variable holds what is returned, or an element of it: it is read only where something was returned."""
    return isinstance(name, str) and name.startswith(f"{PREFIX}value_")


class _TooDeepError(Exception):
    pass


class _Changer:
    def __init__(self, returns: Sequence[ast.Return], at_end: bool) -> None:
        """`at_end`: whether the function surely ends by one of its returns."""
        self._done = f"{PREFIX}done"
        given = [node.value for node in returns]
        lengths = {len(value.elts) if _is_display(value) else -1 for value in given}  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        (length,) = lengths if len(lengths) == 1 else (-1,)
        self._is_tuple = at_end and length > 0
        self._is_bare = all(value is None for value in given)
        self._names = [f"{PREFIX}value_{number}" for number in range(length if self._is_tuple else 1)]

    def body(self, statements: list[ast.stmt], function: ast.FunctionDef) -> list[ast.stmt] | None:
        """A function's statements, changed; None where they are nested too deep."""
        try:
            made, returns = self.block(statements, in_loop=False, depth=0)
        except _TooDeepError:
            return None
        if returns != "always" and not self._is_bare:
            nothing = ast.Assign([ast.Name(self._names[0], ast.Store())], ast.Constant(None))
            made += _placed([ast.If(_not(self._done), [nothing], [])], function)
        last = [] if self._is_bare else [self._result()]
        return [*_placed([_set(self._done, ast.Constant(False))], function), *made, *_placed(last, function)]

    def _result(self) -> ast.stmt:
        names: list[ast.expr] = [ast.Name(name, ast.Load()) for name in self._names]
        return ast.Return(ast.Tuple(names, ast.Load()) if self._is_tuple else names[0])

    def block(self, statements: Sequence[ast.stmt], *, in_loop: bool, depth: int) -> tuple[list[ast.stmt], str]:
        """Statements without returns, and whether they return: never, maybe or always.

        `in_loop`: whether they are a loop's, which `break` leaves.
        """
        if depth > _DEEPEST:
            raise _TooDeepError
        made: list[ast.stmt] = []
        found = "never"
        for position, statement in enumerate(statements):
            if isinstance(statement, ast.Return):
                return [*made, *self._returned(statement, in_loop)], "always"
            if not any(True for _ in _returns(statement)):
                made.append(statement)
                continue
            found = "maybe"
            sides = self._sides(statement, in_loop, depth)
            made.append(statement)
            if sides == ("always", "always"):
                return made, "always"
            if in_loop:
                if isinstance(statement, ast.For | ast.While):
                    made += _placed([ast.If(ast.Name(self._done, ast.Load()), [ast.Break()], [])], statement)
                continue
            rest, returns = self.block(statements[position + 1 :], in_loop=False, depth=depth + 1)
            self._append(statement, sides, rest, made)
            return made, "always" if returns == "always" else "maybe"
        return made, found

    def _append(self, statement: ast.stmt, sides: tuple[str, str], rest: list[ast.stmt], made: list[ast.stmt]) -> None:
        """Have `rest` run where `statement`, the last one that was made, has not returned."""
        if not rest:
            return
        if isinstance(statement, ast.If) and sides == ("always", "never"):
            statement.orelse = [*statement.orelse, *rest]
        elif isinstance(statement, ast.If) and sides == ("never", "always"):
            statement.body = [*statement.body, *rest]
        else:
            made += _placed([ast.If(_not(self._done), rest, [])], statement)

    def _sides(self, statement: ast.stmt, in_loop: bool, depth: int) -> tuple[str, str]:
        """Rewrite what is inside of a statement; whether its two parts return."""
        if isinstance(statement, ast.With):
            statement.body, found = self.block(statement.body, in_loop=in_loop, depth=depth + 1)
            return found, found
        assert isinstance(statement, ast.If | ast.For | ast.While)
        loops, is_endless = not isinstance(statement, ast.If), _is_endless(statement)
        statement.body, first = self.block(statement.body, in_loop=in_loop or loops, depth=depth + 1)
        statement.orelse, second = self.block(statement.orelse, in_loop=in_loop, depth=depth + 1)
        if loops:
            return ("always", "always") if is_endless and first != "never" else ("maybe", second)
        return first, second

    def _returned(self, node: ast.Return, in_loop: bool) -> list[ast.stmt]:
        leave: list[ast.stmt] = [_set(self._done, ast.Constant(True)), *([ast.Break()] if in_loop else [])]
        if self._is_bare:
            return _placed(leave, node)
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in self._names]
        if self._is_tuple:
            values: list[Any] = node.value.elts  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
            target = ast.Tuple(targets, ast.Store())
            set_: ast.stmt = ast.Assign([target], ast.Tuple(values, ast.Load()))  # pyright: ignore[reportUnknownArgumentType]
        else:
            set_ = ast.Assign(targets, node.value or ast.Constant(None))
        return _placed([set_, *leave], node)


def _ends_with_return(statements: Sequence[ast.stmt]) -> bool:
    last = statements[-1] if statements else None
    if last is not None and _is_endless(last):
        return bool(_returns(last))
    if isinstance(last, ast.With):
        return _ends_with_return(last.body)
    if isinstance(last, ast.If):
        return _ends_with_return(last.body) and _ends_with_return(last.orelse)
    return isinstance(last, ast.Return)


def _is_endless(statement: ast.stmt) -> bool:
    """Whether only a return leaves a loop."""
    if not isinstance(statement, ast.While) or not isinstance(statement.test, ast.Constant) or not statement.test.value:
        return False
    return not any(isinstance(node, ast.Break) for node in jumps(statement.body))


def _is_display(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in value.elts)


def _returns(node: ast.AST) -> list[ast.Return]:
    """The returns of a function that stand in a part of it."""
    if isinstance(node, ast.Return):
        return [node]
    if isinstance(node, _SCOPES):
        return []
    return [found for child in ast.iter_child_nodes(node) for found in _returns(child)]


def _returns_from_opaque(node: ast.AST) -> bool:
    if isinstance(node, _SCOPES):
        return False
    if isinstance(node, _OPAQUE):
        return bool(_returns(node))
    return any(map(_returns_from_opaque, ast.iter_child_nodes(node)))


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _not(name: str) -> ast.expr:
    return ast.UnaryOp(ast.Not(), ast.Name(name, ast.Load()))


def _placed(statements: Sequence[ast.stmt], node: ast.AST) -> list[ast.stmt]:
    return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements]
