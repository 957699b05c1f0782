"""Makes a failing program small: lines, results and parameters go while it still fails in the same way."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.programs.checking import Verdict, check_program
from tests.programs.source import ProgramText


def shrink(text: ProgramText, folder: Path, verdict: Verdict, policies: Sequence[str]) -> ProgramText:
    """The smallest program found that fails as `verdict` says."""
    policy = verdict.where.removesuffix(", out=")
    only = (policy,) if policy in policies else tuple(policies)[:1]
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(text):
            if _fails_alike(smaller, folder, verdict, only):
                text, changed = smaller, True
                break
    return text


def _fails_alike(text: ProgramText, folder: Path, verdict: Verdict, policies: Sequence[str]) -> bool:
    try:
        found = check_program(text, folder, policies)
    except Exception:  # noqa: BLE001 - the arguments cannot be made any more
        return False
    if found.kind != verdict.kind:
        return False
    if found.kind == "raw":
        return found.message.split(":")[0] == verdict.message.split(":")[0]
    if found.kind == "accepted":
        return found.message.split(":")[1] == verdict.message.split(":")[1]
    interpreted = found.where == "interpreted"
    return interpreted == (verdict.where == "interpreted") and ("returns" in found.message) == (
        "returns" in verdict.message
    )


def _smaller(text: ProgramText) -> Iterator[ProgramText]:
    for number in reversed(range(len(text.statements))):
        yield replace(text, statements=_without(text.statements, number))
    yield from _fewer_results(text)
    yield from _fewer_arguments(text)
    for number, statement in enumerate(text.statements):
        for simpler in _simpler(statement):
            yield replace(text, statements=(*text.statements[:number], simpler, *text.statements[number + 1 :]))


def _fewer_results(text: ProgramText) -> Iterator[ProgramText]:
    if text.returned != "({})":
        yield replace(text, returned="({})")
    if len(text.results) > 1:
        for number, result in enumerate(text.results):
            yield replace(text, results=(result,))
            yield replace(text, results=_without(text.results, number))


def _fewer_arguments(text: ProgramText) -> Iterator[ProgramText]:
    for number, name in enumerate(text.parameters):
        made = [line for line in text.inputs if _assigns(line, name)]
        if len(text.parameters) > 1:
            kept = tuple(line for line in text.inputs if line not in made)
            yield replace(text, inputs=kept, parameters=_without(text.parameters, number))
        for line in made[1:]:
            yield replace(text, inputs=tuple(other for other in text.inputs if other != line))


def _without(items: tuple[str, ...], number: int) -> tuple[str, ...]:
    return items[:number] + items[number + 1 :]


def _assigns(line: str, name: str) -> bool:
    return line.startswith((f"{name} =", f"{name}.flat"))


def _simpler(statement: str) -> Iterator[str]:
    """The statement with one keyword argument less, or with a part of an expression in its place."""
    for node in ast.walk(ast.parse(statement)):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                yield _cut(statement, node, keyword)
    module = ast.parse(statement)
    if len(module.body) == 1 and isinstance(module.body[0], ast.Assign):
        target, value = module.body[0].targets[0], module.body[0].value
        for child in ast.iter_child_nodes(value):
            if isinstance(child, ast.Call | ast.BinOp | ast.Subscript | ast.Name):
                yield f"{ast.unparse(target)} = {ast.unparse(child)}"


def _cut(statement: str, call: ast.Call, keyword: ast.keyword) -> str:
    module = ast.parse(statement)
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and (node.lineno, node.col_offset, node.end_col_offset) == (
            call.lineno,
            call.col_offset,
            call.end_col_offset,
        ):
            node.keywords = [kept for kept in node.keywords if kept.arg != keyword.arg]
    return ast.unparse(module)
