"""Which variables are read behind a loop or branch before they are bound again."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autofuse.frontend.rolling.comprehensions import CONSUMERS
from autofuse.frontend.rolling.variables import bound_names, own_nodes, reads_of

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)


_CONSUMERS = frozenset(function.__name__ for function in CONSUMERS)


class Liveness:
    """Of a function's variables, behind each of its `for`, `while` and `if` statements."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self._behind: dict[int, set[str]] = {}
        at_once = set(_used_up(body))
        inner = [node for node in own_nodes(body) if isinstance(node, _FUNCTIONS) and id(node) not in at_once]
        self._always = set(reads_of(inner))
        """What functions defined in it read, whenever they run."""
        self._everything = set(reads_of(body))
        self._before(body, set(), set(), set())

    @property
    def elsewhere(self) -> set[str]:
        """The variables that functions defined in it read."""
        return self._always

    def behind(self, statement: ast.stmt) -> set[str]:
        """The variables that may be read behind a statement."""
        return self._behind.get(id(statement), self._everything) | self._always

    def _before(self, statements: Sequence[ast.stmt], live: set[str], left: set[str], again: set[str]) -> set[str]:
        """What is read from the start of statements on.

        `live`: behind them; `left`, `again`: behind the loop around them, and at its start.
        """
        for statement in reversed(statements):
            live = self._through(statement, live, left, again)
        return live

    def _through(  # a case for each statement
        self, node: ast.stmt, live: set[str], left: set[str], again: set[str]
    ) -> set[str]:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self._behind[id(node)] = self._behind.get(id(node), set()) | live
                sides = [self._before(side, live, left, again) for side in (body, orelse)]
                return sides[0] | sides[1] | set(reads_of([test]))
            case ast.For(target=target, iter=items, body=body, orelse=orelse):
                return self._loop(node, body, orelse, set(bound_names([target])), set(), live) | set(reads_of([items]))
            case ast.While(test=test, body=body, orelse=orelse):
                return self._loop(node, body, orelse, set(), set(reads_of([test])), live)
            case ast.Break():
                return left
            case ast.Continue():
                return again
            case ast.Return() | ast.Raise():
                return set(reads_of([node]))
            case ast.With(items=items, body=body):
                inside = self._before(body, live, left, again)
                return (inside - set(bound_names(items))) | set(reads_of(items))
            case ast.Try():
                return self._try(node, live, left, again)
            case ast.TryStar() | ast.Match() | ast.AsyncFor() | ast.AsyncWith():
                return live | self._everything
            case _:
                return (live - set(bound_names([node], augmented=False))) | set(reads_of([node]))

    def _try(self, node: ast.Try, live: set[str], left: set[str], again: set[str]) -> set[str]:
        live = self._before(node.finalbody, live, left, again) | set(reads_of(node.finalbody))
        for handler in node.handlers:
            live = live | self._before(handler.body, live, left, again) | set(reads_of([handler]))
        return self._before([*node.body, *node.orelse], live, left, again) | live  # it may end anywhere

    def _loop(
        self,
        node: ast.stmt,
        body: Sequence[ast.stmt],
        orelse: Sequence[ast.stmt],
        bound: set[str],
        test: set[str],
        live: set[str],
    ) -> set[str]:
        """`bound`: what each iteration binds first; `test`: what it asks before."""
        left = live
        live = self._before(orelse, live, set(), set())
        self._behind[id(node)] = self._behind.get(id(node), set()) | live
        start = live | test
        for _ in range(2):
            start = live | test | (self._before(body, start, left, start) - bound)
        return start


def _used_up(body: Sequence[ast.stmt]) -> Iterator[int]:
    """Generator expressions that run where they stand, as a function of Python's uses them up: their identities."""
    bound = set(bound_names(body))
    for node in own_nodes(body):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp() as given]):
                if name in _CONSUMERS and name not in bound:
                    yield id(given)
            case _:
                pass
