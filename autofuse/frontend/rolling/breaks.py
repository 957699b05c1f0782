"""`break` as a condition of its loop: such loops can become loops of the graph.

    for TARGET in ITEMS:            _af_left = False
        A                           _af_walk, _af_place = _af_begin(ITEMS), 0
        if T:                       while not _af_left and _af_walk.has(_af_place):
            B                           TARGET = _af_walk.item(_af_place)
            break                       _af_place += 1
        C                               A
                                        if T: B; _af_left = True
                                        else: C

and so for `while`. A loop stays as it is where a `break` or `continue` is elsewhere than at the end of an `if` of its
body.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from autofuse.frontend.rolling.ownstatements import OwnStatements, placed


def without_breaks(function: ast.FunctionDef, prefix: str) -> None:
    """Rewrite the loops of a function definition. `prefix`: begins names that its source does not have."""
    changer = _Changer(prefix)
    function.body = changer.statements(function.body)
    ast.fix_missing_locations(function)


def jumps(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """`break` and `continue` that belong to a loop outside."""
    for node in statements:
        if isinstance(node, ast.Break | ast.Continue):
            yield node
        elif isinstance(node, ast.For | ast.While):
            yield from jumps(node.orelse)
        else:
            yield from jumps(ast.iter_child_nodes(node))


def continued(body: list[ast.stmt]) -> list[ast.stmt]:
    """A loop's body where `if t: ...; continue` has what follows as its other side."""
    for position, statement in enumerate(body):
        if isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], ast.Continue):
            rest = continued(body[position + 1 :])
            side = statement.body[:-1] or [ast.copy_location(ast.Pass(), statement)]
            made = ast.copy_location(ast.If(statement.test, side, rest or []), statement)
            return [*body[:position], made]
    return body


class _Changer(OwnStatements, ast.NodeTransformer):
    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        left, walk, place = (f"{self._prefix}{what}_{self._count}" for what in ("left", "walk", "place"))
        body = self._body(node.body, left)
        if body is None:
            return node
        begin = ast.Call(ast.Name(f"{self._prefix}begin", ast.Load()), [node.iter], [])
        steps = [
            ast.Assign([node.target], _method(walk, "item", place)),
            ast.AugAssign(ast.Name(place, ast.Store()), ast.Add(), ast.Constant(1)),
        ]
        test = ast.BoolOp(ast.And(), [_not(left), _method(walk, "has", place)])
        loop = ast.While(test, [*steps, *body], [])
        before = [_set(left, ast.Constant(False)), _set(walk, begin), _set(place, ast.Constant(0))]
        return placed([*before, loop, *_else(left, node.orelse)], node)

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        left = f"{self._prefix}left_{self._count}"
        body = self._body(node.body, left)
        if body is None:
            return node
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        test = _not(left) if is_endless else ast.BoolOp(ast.And(), [_not(left), node.test])
        return placed([_set(left, ast.Constant(False)), ast.While(test, body, []), *_else(left, node.orelse)], node)

    def _body(self, body: list[ast.stmt], left: str) -> list[ast.stmt] | None:
        """A loop's body that sets `left` in place of its breaks; None if it has none, or one that is elsewhere."""
        if not any(isinstance(node, ast.Break) for node in jumps(body)):
            return None
        made = _flagged(continued(body), left)
        if any(jumps(made)):
            return None
        self._count += 1
        return made


def _flagged(body: Sequence[ast.stmt], left: str) -> list[ast.stmt]:
    """Statements where an `if` whose side ends with a `break` sets `left` there, and goes on in its other side."""
    for position, statement in enumerate(body):
        if not isinstance(statement, ast.If) or not any(jumps([statement])):
            continue
        rest = body[position + 1 :]
        sides = [_side(side, rest, left) for side in (statement.body, statement.orelse)]
        made = ast.If(statement.test, sides[0] or [ast.Pass()], sides[1])
        return [*body[:position], *placed([made], statement)]
    return list(body)


def _side(side: Sequence[ast.stmt], rest: Sequence[ast.stmt], left: str) -> list[ast.stmt]:
    if side and isinstance(side[-1], ast.Break):
        return [*side[:-1], *placed([_set(left, ast.Constant(True))], side[-1])]
    return _flagged([*side, *rest], left)


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _not(name: str) -> ast.expr:
    return ast.UnaryOp(ast.Not(), ast.Name(name, ast.Load()))


def _method(walk: str, name: str, place: str) -> ast.expr:
    function = ast.Attribute(ast.Name(walk, ast.Load()), name, ast.Load())
    return ast.Call(function, [ast.Name(place, ast.Load())], [])


def _else(left: str, orelse: list[ast.stmt]) -> list[ast.stmt]:
    return [ast.If(_not(left), orelse, [])] if orelse else []
