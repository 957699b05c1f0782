"""Rewriting the statements of a function."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any


class Statements(ast.NodeTransformer):
    """A rewriter that may make several statements of one."""

    def statements(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements, each rewritten."""
        made: list[ast.stmt] = []
        for statement in body:
            new: Any = self.visit(statement)
            made += new if isinstance(new, list) else [new]
        return made


class OwnStatements(Statements, ast.NodeTransformer):
    """A rewriter of one function's own statements: functions in it are rewritten by themselves."""

    def __init__(self, prefix: str) -> None:
        """`prefix`: begins names that the function's source does not have."""
        self._prefix = prefix
        self._count = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


def placed(statements: Sequence[ast.stmt], node: ast.stmt | ast.pattern) -> list[ast.stmt]:
    """New statements, as of the line of a node."""
    return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements]
