"""A module as it is translated: its functions, its text in MLIR's generic form, and what jaxlib reads of that text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autofuse.errors import ParseError
from autofuse.frontend.stablehlo.attributes import Attributes, AttributesInMemory
from autofuse.frontend.stablehlo.bindings import numbered, printed
from autofuse.frontend.stablehlo.genericform import Written, read
from autofuse.frontend.stablehlo.locations import Locations

MAIN = "main"
_FUNCTION = "func.func"
_MOST_PRINTED = 256
"""Elements of an array that are written into the text. Larger ones are asked of jaxlib, which has their bytes."""
_LEFT_OUT = "dense_resource<"
"""What stands in the place of those, and of arrays that stand behind the operations."""


def main_of(module: Any) -> Any:
    """The function that a module of jaxlib's is run by. Raises ParseError."""
    functions = {
        str(one.attributes["sym_name"].value): one for one in module.body.operations if one.operation.name == _FUNCTION
    }
    if MAIN in functions:
        return functions[MAIN]
    public = [name for name, found in functions.items() if "sym_visibility" not in found.attributes]
    if len(public) == 1:
        return functions[public[0]]
    names = ", ".join(f"@{name}" for name in functions) or "no functions"
    raise ParseError(f"from_stablehlo: the module has no @{MAIN}; it has {names:.200}: rename the one to run to {MAIN}")


class Module:
    """One module of jaxlib's. Not safe from several threads."""

    def __init__(self, module: Any, own: str) -> None:
        """`own`: what to call the module's text in locations."""
        self.held = module
        """jaxlib's object."""
        self.own = own
        self._text = printed(
            module, enable_debug_info=True, print_generic_op_form=True, large_elements_limit=_MOST_PRINTED
        )
        top, aliases = read(self._text)
        (self._root,) = top.operations
        self._aliases = {name: text for name, text in aliases.items() if not text.startswith("loc(")}
        self._attributes: dict[str, Attributes] = {}
        self._larger: dict[int, Attributes] | None = None
        self.locations = Locations(aliases, own)
        self.functions: Mapping[str, Written] = {
            str(self.attributes(one)["sym_name"].value): one
            for blocks in self._root.regions
            for block in blocks
            for one in block.operations
            if one.name == _FUNCTION
        }

    @property
    def main(self) -> tuple[str, Written]:
        """The function that the module is run by, and what it is called. Raises ParseError."""
        name = str(main_of(self.held).attributes["sym_name"].value)
        return name, self.functions[name]

    def count(self, attribute: str) -> int:
        """A number that the module's attributes may give; 1 if they do not."""
        held = self.attributes(self._root)
        return int(held[attribute].value) if attribute in held else 1

    def attributes(self, operation: Written) -> Attributes:
        """Those of an operation of the module."""
        text = operation.attributes
        if _LEFT_OUT in text:
            return self._with_larger()[id(operation)]
        found = self._attributes.get(text)
        if found is None:
            found = self._attributes[text] = Attributes(text, self.held.context, self._aliases)
        return found

    def operations(self) -> Iterator[Written]:
        """All of them, each before those in its regions."""
        return _within(self._root)

    def mentions(self, prefixes: Sequence[str]) -> bool:
        """Whether the module may have operations whose names begin so."""
        return any(f'"{prefix}' in self._text for prefix in prefixes)

    def _with_larger(self) -> Mapping[int, Attributes]:
        """By operation: the attributes of those that were not printed in full."""
        if self._larger is None:
            wanted = {number: id(one) for number, one in enumerate(self.operations()) if _LEFT_OUT in one.attributes}
            found = numbered(self.held, wanted)
            self._larger = {wanted[number]: AttributesInMemory(one) for number, one in found.items()}
        return self._larger


def _within(operation: Written) -> Iterator[Written]:
    yield operation
    for blocks in operation.regions:
        for block in blocks:
            for inner in block.operations:
                yield from _within(inner)
