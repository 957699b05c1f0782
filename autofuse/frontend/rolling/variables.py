"""Which variables a piece of code assigns, and which it may read before that."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from autofuse.lazydataclass import dataclass

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

_LIBRARIES = ("np", "numpy", "math")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Variables:
    """What a statement does with the variables of its function."""

    assigned: tuple[str, ...]
    """Those that it binds."""
    first_read: tuple[str, ...]
    """Those of them that it may read before it binds them."""
    after: tuple[str, ...]
    """Those of them that may be read behind it before they are bound again."""
    in_place: tuple[str, ...]
    """Those of them that only statements like `x += y` bind: of an array the same one stays bound."""
    written: tuple[str, ...]
    """Variables whose arrays it writes into, by `x[i] = y` or `x += y`."""
    counted: tuple[tuple[str, int], ...]
    """Variables that a loop's body adds a number to, once in each iteration, and the number."""

    appended: tuple[str, ...] = ()
    """Variables of which it asks nothing but to append and extend, nor do functions defined beside it."""

    grown: tuple[str, ...] = ()
    """Variables that it appends to, and of which it asks elements or the length, and nothing else."""

    tabled: tuple[str, ...] = ()
    """Variables of which it sets elements at places that move, and asks elements or the length, and nothing else."""

    alone: tuple[str, ...] = ()
    """Those that it binds whose arrays no other variable or container is given, as far as the source says."""

    def as_tuple(self) -> tuple[Any, ...]:
        """As a constant of source code; `Variables(*it)` is the same."""
        return (
            self.assigned,
            self.first_read,
            self.after,
            self.in_place,
            self.written,
            self.counted,
            self.appended,
            self.grown,
            self.tabled,
            self.alone,
        )


def variables_of(
    statements: Sequence[ast.AST], live: Set[str], elsewhere: Set[str] = frozenset(), handed: Set[str] | None = None
) -> Variables:
    """Of statements of a function. `live`: variables that may be read behind them; `elsewhere`: by other functions.

    `handed`: those of the function that `handed_on` gives.
    """
    bound = set(bound_names(statements))
    flow = _Flow(bound)
    flow.run(statements, set())
    plain = set(bound_names(statements, augmented=False))
    return Variables(
        tuple(sorted(bound)),
        tuple(sorted(flow.first_read)),
        tuple(sorted(bound & live)),
        tuple(sorted(bound - plain)),
        tuple(sorted(set(_written(statements)))),
        tuple(sorted(_counted(statements))),
        tuple(sorted(_appended(statements) - bound - set(elsewhere))),
        tuple(sorted(_grown(statements) - bound - set(elsewhere))),
        tuple(sorted(_tabled(statements) - bound - set(elsewhere))),
        () if handed is None else tuple(sorted(bound - handed - set(elsewhere))),
    )


def handed_on(body: Sequence[ast.stmt]) -> set[str]:
    """Variables of a function whose arrays may get another name: `y = x`, `f(x)`, `[x]`; not those that it returns."""
    found: set[str] = set()
    returned = {id(node.value) for node in own_nodes(body) if isinstance(node, ast.Return)}
    for node in own_nodes(body):
        if id(node) in returned:
            continue
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.NamedExpr(value=value):
                parts = [value]
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
                pass
            case ast.IfExp(body=first, orelse=second):
                parts = [first, second]
            case ast.BoolOp(values=parts):
                pass
            case ast.Call(func=function, args=parts, keywords=named) if _root(function) not in _LIBRARIES:
                parts = [*parts, *(one.value for one in named)]
            case ast.Starred(value=value) | ast.keyword(value=value) | ast.Yield(value=value):
                parts = [value]
            case _:
                parts = []
        found |= {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    return found


def _root(function: ast.AST) -> str:
    """The variable that an attribute is of."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def _appended(statements: Sequence[ast.AST]) -> set[str]:
    appends: dict[str, int] = {}
    for node in own_nodes(statements):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend")):
                appends[name] = appends.get(name, 0) + 1
            case _:
                pass
    reads = reads_of(statements)
    return {name for name, count in appends.items() if reads[name] == count}


def _grown(statements: Sequence[ast.AST]) -> set[str]:
    appends: dict[str, int] = {}
    reads_: dict[str, int] = {}
    for node in own_nodes(statements):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
                appends[name] = appends.get(name, 0) + 1
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Load()):
                reads_[name] = reads_.get(name, 0) + 1
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                reads_[name] = reads_.get(name, 0) + 1
            case _:
                pass
    every = reads_of(statements)
    return {name for name, count in appends.items() if reads_.get(name) and every[name] == count + reads_[name]}


def _tabled(statements: Sequence[ast.AST]) -> set[str]:
    asked: dict[str, int] = {}
    stored: set[str] = set()
    for node in own_nodes(statements):
        match node:
            case ast.Subscript(value=ast.Name(id=name)) | ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                asked[name] = asked.get(name, 0) + 1
            case _:
                pass
        base, is_moving = node, False
        while isinstance(base, ast.Subscript):
            is_moving = is_moving or not isinstance(base.slice, ast.Constant)
            base = base.value
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(base, ast.Name)
            and is_moving
        ):
            stored.add(base.id)
    every = reads_of(statements)
    return {name for name in stored if every.get(name) == asked.get(name)}


def own_nodes(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a piece of code, without those of functions and classes defined in it."""
    for node in statements:
        yield node
        if not isinstance(node, _SCOPES):
            yield from own_nodes(ast.iter_child_nodes(node))


def bound_names(statements: Iterable[ast.AST], *, augmented: bool = True) -> Iterator[str]:
    """Names that code binds in its own scope."""
    for node in statements:
        yield from _bound_by(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield from (node.target.id,) if augmented else ()
            yield from bound_names([node.value], augmented=augmented)
        elif isinstance(node, _COMPREHENSIONS):
            walrus = [inner.target for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
            yield from bound_names(walrus, augmented=augmented)
        elif not isinstance(node, _SCOPES):
            yield from bound_names(ast.iter_child_nodes(node), augmented=augmented)


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The name that a node binds itself, if it does."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.alias(name=name, asname=other):
            yield (other or name).split(".")[0]
        case _:
            pass


def reads_of(statements: Iterable[ast.AST]) -> dict[str, int]:
    """How often code reads each name, functions defined in it included."""
    counts: dict[str, int] = {}
    for name in _read_names(statements):
        counts[name] = counts.get(name, 0) + 1
    return counts


def _read_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, _COMPREHENSIONS):  # has variables of its own
            own = set(bound_names([walk.target for walk in node.generators]))
            yield from _read_names([node.generators[0].iter])
            yield from (name for name in _read_names(ast.iter_child_nodes(node)) if name not in own)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        yield from _read_names(ast.iter_child_nodes(node))


def _written(statements: Iterable[ast.AST]) -> Iterator[str]:
    for node in own_nodes(statements):
        match node:
            case ast.AugAssign(target=ast.Name(id=name)):
                yield name
            case ast.Subscript(ctx=ast.Store()):
                base = node.value
                while isinstance(base, ast.Subscript):
                    base = base.value
                if isinstance(base, ast.Name):
                    yield base.id
            case _:
                pass


def _counted(statements: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    bound = list(bound_names(statements))
    for statement in statements:
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub(), value=ast.Constant(value=value)):
                if type(value) is int and bound.count(name) == 1:
                    yield name, value if isinstance(statement.op, ast.Add) else -value
            case _:
                pass


class _Flow:
    """Walks code in the order in which it runs, and finds names that are read while they may not be bound."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self.first_read: set[str] = set()

    def run(self, statements: Sequence[ast.AST], bound: set[str]) -> None:
        """Go through statements; `bound` grows by what they surely bind."""
        for statement in statements:
            self._statement(statement, bound)

    def _read(self, node: ast.AST, bound: set[str]) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self._use(inner.id, bound)

    def _use(self, name: str, bound: set[str]) -> None:
        if name in self._names and name not in bound:
            self.first_read.add(name)

    def _statement(self, node: ast.AST, bound: set[str]) -> None:  # a case for each statement
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self._read(test, bound)
                self._sides([body, orelse], bound)
            case ast.For(target=target, iter=items, body=body, orelse=orelse):
                # a loop that runs no iteration is found when it does: what it binds is then missing
                self._read(items, bound)
                bound |= set(bound_names([target]))
                self.run([*body, *orelse], bound)
            case ast.While(test=test, body=body, orelse=orelse):
                self._read(test, bound)
                self._sides([[*body, *orelse], []], bound)
            case ast.Try():
                self._try(node, bound)
            case ast.Match():
                self._read(node, bound)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                self._read(value, bound)
                self._use(name, bound)
                bound.add(name)
            case ast.With(body=body):
                for item in node.items:
                    self._read(item, bound)
                    bound |= set(bound_names([item]))
                self.run(body, bound)
            case _:
                self._read(node, bound)
                bound |= set(bound_names([node]))

    def _try(self, node: ast.Try, bound: set[str]) -> None:
        before = set(bound)
        self.run([*node.body, *node.orelse], bound)
        for handler in node.handlers:
            self._read(handler, before)
        if node.handlers:  # any part of what comes before may not have run
            for name in bound - before:
                self._use(name, before)
            bound.intersection_update(before)
        self.run(node.finalbody, bound)

    def _sides(self, sides: Sequence[Sequence[ast.AST]], bound: set[str]) -> None:
        """Of which one runs: a name that only some bind keeps what it was in the others."""
        found: list[set[str]] = []
        for side in sides:
            mine = set(bound)
            self.run(side, mine)
            found.append(mine)
        sure = set[str].intersection(*found)
        for name in set[str].union(*found) - sure:
            self._use(name, bound)
        bound |= sure
