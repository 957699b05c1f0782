"""Which operations of StableHLO are read, as a page of Markdown made from the rules.

python -m autofuse.frontend.stablehlo.coverage > docs/stablehlo.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

from autofuse.frontend.stablehlo.bindings import bindings
from autofuse.frontend.stablehlo.highlevel import REWRITTEN
from autofuse.frontend.stablehlo.rules import Refused
from autofuse.frontend.stablehlo.table import FAMILIES, RULES
from autofuse.frontend.stablehlo.tensortypes import ELEMENTS

_HEAD = """# What is read of StableHLO

Made from the importer's rules by `python -m autofuse.frontend.stablehlo.coverage`, with the operations that jaxlib's
dialect has; a test compares. [The how-to](howto.md#take-a-program-from-jax) says how a program is given, and
[0097](decisions/0097-stablehlo-is-read-by-jaxlib.md) how it is read.
"""
_PREFIX = "stablehlo."
_STRUCTURE = frozenset(("return",))


def page() -> str:
    """The page."""
    return "\n".join((_HEAD, *_lines())) + "\n"


def _lines() -> Iterator[str]:
    yield f"Elements: {', '.join(f'`{name}`' for name in ELEMENTS)}."
    yield "\n## Translated\n\n| rules | operations |\n|---|---|"
    for family in FAMILIES:
        read = [name for name, rule in family.RULES.items() if not isinstance(rule, Refused)]
        if read:
            yield f"| {(inspect.getdoc(family) or '').splitlines()[0].rstrip('.')} | {_listed(read)} |"
    yield f"| Written as others by StableHLO's own pass, where their operands are constants | {_listed(REWRITTEN)} |"
    yield "\nOther operations of CHLO are written as these by StableHLO's own passes.\n"
    yield "## Refused by name, with the source line\n\n| operations | why | instead |\n|---|---|---|"
    refused: dict[Refused, list[str]] = {}
    for name, rule in RULES.items():
        if isinstance(rule, Refused):
            refused.setdefault(rule, []).append(name)
    for rule, names in refused.items():
        yield f"| {_listed(names)} | {rule.why} | {rule.instead} |"
    yield f"| {_listed(_without_rule())} | has no rule | compute it outside the function, or run it by JAX |"


def _without_rule() -> Sequence[str]:
    """The operations of jaxlib's dialect that have no rule."""
    classes = vars(bindings().stablehlo).values()
    names = {str(found.OPERATION_NAME) for found in classes if hasattr(found, "OPERATION_NAME")}
    names = {name for name in names if name.startswith(_PREFIX)}
    return sorted(names - RULES.keys() - REWRITTEN - {_PREFIX + name for name in _STRUCTURE})


def _listed(names: Sequence[str] | frozenset[str]) -> str:
    return " ".join(f"`{name.removeprefix(_PREFIX)}`" for name in sorted(names))


if __name__ == "__main__":
    print(page(), end="")
