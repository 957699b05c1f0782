"""The source of a traced function, with its loops and branches as calls.

    for TARGET in ITEMS:        def _af_body(_af_item):
        BODY                        nonlocal ...
                                    TARGET = _af_item
                                    BODY
                                _af_for(ITEMS, _af_body, ...)

and so for `while` and `if`; `a if t else b`, `and`, `or`, `not` in conditions, calls, and targets of assignments go
through functions too, which see what a loop's body does to Python's own objects. Those functions are in `calls`.
What leaves a loop or branch (`yield`), or makes scopes in it, stays as it is; but `return` becomes a value and a flag
(`returns.py`), and in a loop's body `if t: continue` the other side of an `if`, `if t: break` a condition of the loop
(`breaks.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from autofuse.frontend.rolling.breaks import continued, jumps, without_breaks
from autofuse.frontend.rolling.comprehensions import can_be_call, in_parts
from autofuse.frontend.rolling.liveness import Liveness
from autofuse.frontend.rolling.matches import without_matches
from autofuse.frontend.rolling.ownstatements import Statements
from autofuse.frontend.rolling.returns import PREFIX, without_returns
from autofuse.frontend.rolling.variables import Variables, bound_names, handed_on, own_nodes, variables_of

_ITEM = "_af_item"
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_MADE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LEAVES = (
    ast.Return,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.TryStar,
    ast.AsyncFor,
    ast.AsyncWith,
    ast.Import,
    ast.ImportFrom,
    ast.Global,
    ast.Nonlocal,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Match,
)
"""What keeps statements where they are. A `raise` does so in branches, where it would be traced whatever the test."""
_TELLS = frozenset(("print", "warn", "log", "debug", "info", "warning", "error", "critical", "exception", "write"))
"""Functions and methods that tell the user something."""


def rewritten(function: ast.FunctionDef) -> ast.FunctionDef:
    """A function definition with its control flow as calls. The definition given is changed."""
    return _Rewriter(function).function()


class _Rewriter(Statements, ast.NodeTransformer):
    def __init__(self, function: ast.FunctionDef) -> None:
        without_matches(function, PREFIX)
        without_returns(function)
        without_breaks(function, PREFIX)
        self._function = function
        self._live = Liveness(function.body)
        self._handed = handed_on(function.body)
        declarations = [node for node in own_nodes(function.body) if isinstance(node, ast.Global | ast.Nonlocal)]
        self._global = {name for node in declarations if isinstance(node, ast.Global) for name in node.names}
        self._nonlocal = {name for node in declarations if isinstance(node, ast.Nonlocal) for name in node.names}
        self._is_told = False
        self._moved: set[str] = set()
        self._count = 0

    def function(self) -> ast.FunctionDef:
        """The whole definition. A variable that only new functions bind gets a place in this one, and no value."""
        body = [*self._declared(), *self.statements(self._function.body)]
        places = sorted(self._moved - self._nonlocal)
        if places:
            targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in places]
            never = ast.If(ast.Constant(False), [ast.Assign(targets, ast.Constant(None))], [])
            body.append(ast.copy_location(never, self._function))
        self._function.body = body
        return ast.fix_missing_locations(self._function)

    def _declared(self) -> list[ast.stmt]:
        """Calls that say that the function binds variables of others, which no loop may leave out."""
        made: list[ast.stmt] = []
        if self._global:
            made.append(ast.Expr(_call("_af_global", ast.Constant(min(self._global)))))
        if self._nonlocal:
            names: list[ast.expr] = [ast.Name(name, ast.Load()) for name in sorted(self._nonlocal)]
            read = _later(_located(ast.Tuple(names, ast.Load()), self._function))
            made.append(ast.Expr(_call("_af_outer", read)))
        return [ast.fix_missing_locations(ast.copy_location(statement, self._function)) for statement in made]

    # scopes of their own

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        binds = any(isinstance(inner, ast.Nonlocal) for inner in ast.walk(node))
        made = _Rewriter(node).function()
        told = ast.Expr(_call("_af_new", ast.Name(node.name, ast.Load())))
        return [made, ast.fix_missing_locations(ast.copy_location(told, node))] if binds else made

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [_Rewriter(part).function() if isinstance(part, ast.FunctionDef) else part for part in node.body]
        return node

    # loops and branches

    def visit_For(self, node: ast.For) -> Any:
        body = continued(node.body)
        found = variables_of([_bind(node.target), *body], self._live.behind(node), self._live.elsewhere, self._handed)
        items = self.visit(node.iter)
        if not self._can_move([*body, _bind(node.target)], found):
            node.iter, node.body, node.orelse = items, self.statements(node.body), self.statements(node.orelse)
            return node
        store = ast.copy_location(ast.Assign([node.target], ast.Name(_ITEM, ast.Load())), node)
        name = self._name("body")
        moved = self._define(name, [self.visit(store), *self.statements(body)], found, [_ITEM], node)
        run = ast.Expr(_call("_af_for", items, ast.Name(name, ast.Load()), _constant(found), ast.Constant(node.lineno)))
        return [moved, ast.copy_location(run, node), *self.statements(node.orelse)]

    def visit_While(self, node: ast.While) -> Any:
        body = continued(node.body)
        statements = [ast.Expr(node.test), *body]
        found = variables_of(statements, self._live.behind(node), self._live.elsewhere, self._handed)
        if isinstance(node.test, ast.Constant) or not self._can_move(body, found):
            return self.generic_visit(node)
        test, name = self._name("test"), self._name("body")
        own = _bound_in(node.test)
        before, condition = self._tested(node.test, node)
        asked = [*before, ast.copy_location(ast.Return(condition), node)]
        moved = [
            self._define(test, asked, own if own.assigned else None, [], node),
            self._define(name, self.statements(body), found, [], node),
        ]
        names = (ast.Name(test, ast.Load()), ast.Name(name, ast.Load()))
        run = ast.Expr(_call("_af_while", *names, _constant(found), ast.Constant(node.lineno)))
        return [*moved, ast.copy_location(run, node), *self.statements(node.orelse)]

    def visit_If(self, node: ast.If) -> Any:
        found = variables_of([*node.body, *node.orelse], self._live.behind(node), self._live.elsewhere)
        before, test = self._tested(node.test, node)
        sides = [*node.body, *node.orelse]
        raises = any(isinstance(inner, ast.Raise) for inner in own_nodes(sides))
        if raises or not self._can_move(sides, found):
            node.test, node.body, node.orelse = test, self.statements(node.body), self.statements(node.orelse)
            return [*before, node]
        names = [self._name(side) for side in ("then", "else")]
        bodies = zip(names, (node.body, node.orelse), strict=True)
        moved = [self._define(name, self.statements(side) or [ast.Pass()], found, [], node) for name, side in bodies]
        functions = [ast.Name(name, ast.Load()) for name in names]
        run = ast.Expr(_call("_af_if", test, *functions, _constant(found), ast.Constant(node.lineno)))
        return [*before, *moved, ast.copy_location(run, node)]

    def _tested(self, test: ast.expr, node: ast.stmt) -> tuple[list[ast.stmt], ast.expr]:
        """The condition of a statement, and the functions that it needs: of its parts that bind variables."""
        match test:
            case ast.BoolOp(op=op, values=[first, *others]) if _binds(test):
                before, asked = self._tested(first, node)
                rest = others[0] if len(others) == 1 else _located(ast.BoolOp(op, others), test)
                known: ast.expr = _located(_later(_located(ast.Constant(isinstance(op, ast.Or)), test)), test)
                if _binds(rest):
                    found, name = _bound_in(rest), self._name("test")
                    inner, condition = self._tested(rest, node)
                    asks = [*inner, ast.copy_location(ast.Return(condition), node)]
                    before.append(self._define(name, asks, found, [], node))
                    follows, more = ast.Name(name, ast.Load()), [_constant(found)]
                else:
                    follows, more = _later(self._condition(rest)), []
                sides = (follows, known) if isinstance(op, ast.And) else (known, follows)
                return before, _located(_call("_af_choose", asked, *sides, *more), test)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                before, asked = self._tested(operand, node)
                return before, _located(_call("_af_not", asked), test)
            case _:
                return [], self._condition(test)

    def _define(
        self, name: str, body: list[ast.stmt], found: Variables | None, arguments: list[str], node: ast.stmt
    ) -> ast.stmt:
        """A function in place of a part of this one, whose variables it shares."""
        if found is not None and found.assigned:
            self._moved |= set(found.assigned)
            body = [ast.Nonlocal(list(found.assigned)), *body]
        parameters = ast.arguments([], [ast.arg(one) for one in arguments], None, [], [], None, [])
        made = ast.FunctionDef(name, parameters, body, [], None, None)
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{PREFIX}{what}_{self._count}"

    def _can_move(self, statements: Sequence[ast.AST], found: Variables) -> bool:
        inside = list(own_nodes(statements))
        leaves = any(isinstance(node, _LEAVES) or _catches_all(node) for node in inside) or any(jumps(statements))
        return not leaves and self._global.isdisjoint(found.assigned)

    def visit_Try(self, node: ast.Try) -> ast.AST:
        swallowed = [handler for handler in node.handlers if not isinstance(handler.body[-1], ast.Raise)]
        kinds: list[ast.expr] = [handler.type or ast.Name("BaseException", ast.Load()) for handler in swallowed]
        self.generic_visit(node)
        if kinds:
            caught = _call("_af_catching", _later(_located(ast.Tuple(kinds, ast.Load()), node.body[0])))
            inside = ast.With([ast.withitem(caught)], node.body)
            node.body = [ast.fix_missing_locations(ast.copy_location(inside, node.body[0]))]
        return node

    # conditions

    def visit_Assert(self, node: ast.Assert) -> Any:
        node.test = self._condition(node.test)
        if node.msg is not None:
            self._told(node.msg)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        sides = (node.body, node.orelse)
        if any(_binds(side) for side in sides):
            return self.generic_visit(node)
        made = [_later(self.visit(side)) for side in sides]
        return ast.copy_location(_call("_af_choose", self._condition(node.test), *made), node)

    def _condition(self, test: ast.expr) -> ast.expr:
        """A condition with `and`, `or` and `not` as calls."""
        match test:
            case ast.BoolOp(op=op, values=values) if not any(map(_binds, values)):
                name = "_af_all" if isinstance(op, ast.And) else "_af_any"
                made: ast.expr = _call(name, *(_later(self._condition(value)) for value in values))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                made = _call("_af_not", self._condition(operand))
            case _:
                return self.visit(test)
        return ast.fix_missing_locations(ast.copy_location(made, test))

    def visit_Compare(self, node: ast.Compare) -> Any:
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=bool() | None)]):
                found = _located(_call("_af_is", self.visit(node.left), node.comparators[0]), node)
                return found if isinstance(op, ast.Is) else _located(_call("_af_not", found), node)
            case _:
                pass
        signs = [_SIGNS.get(type(op)) for op in node.ops]
        if len(signs) == 1 or None in signs or any(map(_binds, node.comparators)):
            return self.generic_visit(node)
        made: list[ast.expr] = [ast.Constant(sign) for sign in signs]
        others = [_later(self.visit(other)) for other in node.comparators]
        return _located(_call("_af_compare", ast.Tuple(made, ast.Load()), self.visit(node.left), *others), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        if any(map(_binds, node.values)):
            return self.generic_visit(node)
        name = "_af_and" if isinstance(node.op, ast.And) else "_af_or"
        return _located(_call(name, *(_later(self.visit(value)) for value in node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _located(_call("_af_not", node.operand), node) if isinstance(node.op, ast.Not) else node

    # what a loop's body may do to Python's own objects

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._super(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _TELLS:
            self._told(node)
        else:
            self.generic_visit(node)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if isinstance(owner, ast.Name) and owner.id.startswith(PREFIX):
            return node
        node.func = ast.copy_location(_call("_af_call", node.func), node.func)
        is_method = name in ("format", "join")
        makes_text = (is_method or (name in ("str", "repr") and isinstance(owner, ast.Name))) and not self._is_told
        return _located(_call("_af_text", node), node) if makes_text else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target = node.target
        self.generic_visit(node)
        if isinstance(target, ast.Name) and not _is_number(node.value):
            seen = ast.copy_location(ast.Name(target.id, ast.Load()), target)
            node.value = _located(_call("_af_beside", seen, node.value), node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        self.generic_visit(node)
        return node if self._is_told else _located(_call("_af_text", node), node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        node.value = self.visit(node.value)  # what it is to look like is no text of its own
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        makes_list = _may_make_list(node)
        self.generic_visit(node)
        if makes_list:
            return _located(_call("_af_made", node), node)
        is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        return _located(_call("_af_text", node), node) if is_text and not self._is_told else node

    def visit_Raise(self, node: ast.Raise) -> Any:
        return self._told(node)

    def _told(self, node: Any) -> Any:
        """Rewrite what is printed, logged or raised: the text of a traced value in it is no answer."""
        before, self._is_told = self._is_told, True
        self.generic_visit(node)
        self._is_told = before
        return node

    def _super(self, node: ast.Call) -> ast.Call:
        """`super()` with its arguments, which functions inside of this one would not find."""
        given = [*self._function.args.posonlyargs, *self._function.args.args]
        if not node.args and given:
            names = ("__class__", given[0].arg)
            node.args = [ast.copy_location(ast.Name(name, ast.Load()), node) for name in names]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = ast.copy_location(_call("_af_target", node.value), node.value)
        elif isinstance(node.slice, ast.Slice):
            return _located(_call("_af_made", node), node)
        elif not isinstance(node.slice, ast.Constant | ast.Tuple):
            return _located(_call("_af_at", node.value, node.slice), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            node.value = ast.copy_location(_call("_af_target", node.value), node.value)
        elif node.attr == "__class__":
            return _located(_call("_af_class", node.value), node)
        return node

    def visit(self, node: ast.AST) -> Any:
        """Rewrite a node; a container that an expression makes is noted."""
        if not isinstance(node, _MADE) or (isinstance(node, ast.List) and not isinstance(node.ctx, ast.Load)):
            return super().visit(node)
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and can_be_call(node):
            name = "_af_list" if isinstance(node, ast.ListComp) else "_af_generator"
            return _located(_call(name, *in_parts(node, self.visit, self._condition)), node)
        self.generic_visit(node)
        return ast.copy_location(_call("_af_new", node), node)


def _catches_all(node: ast.AST) -> bool:
    """Whether a handler catches what is raised where something cannot be traced."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    names = {inner.id for inner in ast.walk(node.type) if isinstance(inner, ast.Name)} if node.type else set[str]()
    return node.type is None or "BaseException" in names


def _may_make_list(node: ast.expr) -> bool:
    """Whether a sum or product, as it is written, may be that of lists."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
            return _may_make_list(left) or _may_make_list(right)
        case ast.List() | ast.ListComp() | ast.Subscript(slice=ast.Slice()):
            return True
        case ast.Call(func=ast.Name(id="list" | "sorted")):
            return True
        case _:
            return False


def _is_number(value: ast.expr) -> bool:
    """Whether it is a constant that `x += value` takes for numbers and arrays alone; a list may be multiplied."""
    return isinstance(value, ast.Constant) and isinstance(value.value, float | complex)


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _later(value: ast.expr) -> ast.expr:
    parameters = ast.arguments([], [], None, [], [], None, [])
    return ast.copy_location(ast.Lambda(parameters, value), value)


def _located(new: ast.expr, old: ast.AST) -> ast.expr:
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _constant(found: Variables) -> ast.expr:
    """What a statement does with variables, as an argument."""
    written: Any = found.as_tuple()
    return ast.Constant(written)


def _bound_in(test: ast.expr) -> Variables:
    """What a condition does with variables, all of which may be read behind it."""
    statements = [ast.Expr(test)]
    return variables_of(statements, set(bound_names(statements)))


def _bind(target: ast.expr) -> ast.stmt:
    return ast.Assign([target], ast.Constant(None))


def _binds(node: ast.expr) -> bool:
    """Whether an expression must stay in its place: it binds a name, or waits."""
    return any(isinstance(inner, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for inner in ast.walk(node))
