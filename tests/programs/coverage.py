"""Which of the functions that autofuse traces a program calls."""

from __future__ import annotations

import ast
from functools import lru_cache

import numpy as np

from autofuse.frontend import implementations
from autofuse.frontend.dispatch import FUNCTIONS, NAMED, describe
from autofuse.frontend.ufunc_rules import RULES
from tests.programs.source import ProgramText

implementations.load()
_OPERATORS = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "power",
    ast.MatMult: "matmul",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "left_shift",
    ast.RShift: "right_shift",
    ast.USub: "negative",
    ast.UAdd: "positive",
    ast.Invert: "invert",
}
_SCIPY = ("entr", "erf", "expit", "log_expit", "logit", "xlog1py", "xlogy")


@lru_cache(maxsize=1)
def supported_functions() -> frozenset[str]:
    """Names of everything that autofuse traces, as users write it."""
    functions = {_canonical(f) for f in FUNCTIONS if not isinstance(f, str)}
    ufuncs = {f"scipy.special.{name}" if name in _SCIPY else f"np.{name}" for name in RULES}
    named = {f"{prefix}.{name}" for prefix, name in NAMED}
    return frozenset({*functions, *ufuncs, *named})


@lru_cache(maxsize=512)
def _canonical(function: object) -> str:
    name = describe(function)
    return "np.lib.stride_tricks.sliding_window_view" if name == "np.sliding_window_view" else name


def functions_in(text: ProgramText) -> frozenset[str]:
    """The supported functions that a program calls: as functions, methods or operators."""
    found: set[str] = set()
    for node in ast.walk(ast.parse("\n".join([*text.statements, text.result]))):
        if isinstance(node, ast.Attribute):
            found.update(_called(ast.unparse(node), node.attr))
        elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.AugAssign):
            found.add(f"np.{_OPERATORS.get(type(node.op), '')}")
    return frozenset(found & supported_functions())


def _called(path: str, name: str) -> set[str]:
    if path.startswith("scipy."):
        return {path}
    if not path.startswith("np."):
        return {f"np.{name}"}
    found: object = np
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    known = found is not None and callable(found) and getattr(found, "__hash__", None) is not None
    return {path, *({_canonical(found)} if known else set())}
