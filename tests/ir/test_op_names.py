"""What is no pass and no rule asks for an op's role or for a fact of its record, not for its name."""

import ast
from pathlib import Path

from autofuse.ir.optable import all_ops

ROOT = Path(__file__).parents[2]
NAMES = frozenset(op.name for op in all_ops())
BY_NAME = (
    *("autofuse/passes/", "autofuse/testing/", "search/rules/", "autofuse/measurement/errorbounds/"),
    "autofuse/frontend/stablehlo/",
    "autofuse/measurement/samples.py",
)
"""Passes and rules: what they know of an op is theirs. What reads another table of ops goes by its names, and so does
what makes graphs anew, which needs the attributes of each op."""
REASONED = {
    (
        "autofuse/fusion/atoms.py",
        "convert",
    ),  # no atom ends in a conversion to a wider type: it is made where it is read
    ("autofuse/lower/contraction.py", "add"),  # a sum of products is added up in the products' own memory
    (
        "autofuse/fusion/conditions.py",
        "not",
    ),  # a condition is taken apart as logic: which of its terms are of any element
    ("autofuse/fusion/conditions.py", "broadcast_in_dim"),  # of a scalar: a term that all elements share
    ("autofuse/lower/contraction.py", "convert"),  # operands that are only widened are read as they are
}


def sources():
    files = [path for folder in ("autofuse", "search", "cost_models") for path in (ROOT / folder).rglob("*.py")]
    texts = {path.relative_to(ROOT).as_posix(): path for path in files}
    return {name: path for name, path in sorted(texts.items()) if not name.startswith(BY_NAME)}


def is_op(node):
    return isinstance(node, ast.Attribute) and node.attr == "op"


def names_in(node):
    found = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return {name for name in found if name in NAMES}


def asked(tree):
    """Names of ops that something's `op` is compared with, or matched against."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(is_op, (node.left, *node.comparators))):
            yield from names_in(node)
        if isinstance(node, ast.Match) and is_op(node.subject):
            yield from (name for case in node.cases for name in names_in(case.pattern))


def test_the_ways_to_ask_by_name_are_found():
    text = (
        "a.op == 'reduce' or b.op in ('pad', 'sort') or {'exp': 1}[c.op]\nmatch d.op:\n    case 'gather' | 'if': pass"
    )
    assert sorted(asked(ast.parse(text))) == ["gather", "if", "pad", "reduce", "sort"]


def test_roles_are_asked_for_and_no_names():
    texts = {name: path.read_text(encoding="utf-8") for name, path in sources().items()}
    found = {(name, op) for name, text in texts.items() if ".op" in text for op in asked(ast.parse(text))}
    assert found == REASONED
