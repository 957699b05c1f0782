"""`match` on numbers and text as `if`s, which can become branches of the graph.

    match S:                    _af_subject_0 = S
        case 0:                 if _af_subject_0 == 0:
            A                       A
        case 1 | -1:            elif _af_subject_0 == 1 or _af_subject_0 == -1:
            B                       B
        case n if n > 5:        else:
            C                       n = _af_subject_0
        case _:                     if n > 5: C
            D                       else: D

A `match` with other patterns (sequences, mappings, classes) stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from autofuse.frontend.rolling.ownstatements import OwnStatements, placed


def without_matches(function: ast.FunctionDef, prefix: str) -> None:
    """Rewrite a function definition. `prefix`: begins names that its source does not have."""
    function.body = _Changer(prefix).statements(function.body)
    ast.fix_missing_locations(function)


class _Changer(OwnStatements, ast.NodeTransformer):
    def visit_Match(self, node: ast.Match) -> Any:
        self.generic_visit(node)
        if not all(_is_simple(case.pattern) for case in node.cases):
            return node
        name = f"{self._prefix}subject_{self._count}"
        self._count += 1
        subject = ast.Assign([ast.Name(name, ast.Store())], node.subject)
        made = [subject, *_chain(node.cases, name)]
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in made]


def _is_simple(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchValue() | ast.MatchSingleton() | ast.MatchAs(pattern=None):
            return True
        case ast.MatchOr(patterns=patterns):
            return all(isinstance(each, ast.MatchValue | ast.MatchSingleton) for each in patterns)
        case _:
            return False


def _chain(cases: Sequence[ast.match_case], subject: str) -> list[ast.stmt]:
    """What the first of the cases that fits does."""
    if not cases:
        return []
    case, others = cases[0], _chain(cases[1:], subject)
    name = case.pattern.name if isinstance(case.pattern, ast.MatchAs) else None
    bound: list[ast.stmt] = []
    if name is not None:
        bound = [ast.Assign([ast.Name(name, ast.Store())], _asked(subject))]
    tests = [test for test in (_test(case.pattern, subject), case.guard) if test is not None]
    if not tests:
        return [*placed(bound, case.pattern), *case.body]
    test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
    return placed([*bound, ast.If(test, case.body, others)], case.pattern)


def _test(pattern: ast.pattern, subject: str) -> ast.expr | None:
    match pattern:
        case ast.MatchValue(value=value):
            return ast.Compare(_asked(subject), [ast.Eq()], [value])
        case ast.MatchSingleton(value=value):
            return ast.Compare(_asked(subject), [ast.Is()], [ast.Constant(value)])
        case ast.MatchOr(patterns=patterns):
            return ast.BoolOp(ast.Or(), [test for each in patterns if (test := _test(each, subject)) is not None])
        case _:
            return None


def _asked(subject: str) -> ast.expr:
    return ast.Name(subject, ast.Load())
