"""Attributes of operations: dictionaries in the text of a module, which jaxlib reads when one of them is asked for.

Operations that are written alike share what was read, and what it was converted to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from autofuse.frontend.stablehlo.bindings import bindings
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation

_BETWEEN = "}> {"
"""What stands between an operation's own attributes and those that were added."""
_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|#[\w.$-]+')


class Attributes:
    """The attributes of an operation, by name."""

    def __init__(self, text: str, context: Any, aliases: Mapping[str, str]) -> None:
        """`text`: a dictionary or two, in the context in which the module was read. `aliases`: of attributes."""
        self._text = text.strip()
        self._context, self._aliases = context, aliases
        self._converted: dict[tuple[str, Any], Any] = {}
        self._read: list[Any] | None = None

    def __contains__(self, name: str) -> bool:
        return any(name in part for part in self._parts)

    def __getitem__(self, name: str) -> Any:
        """As jaxlib holds it. Raises KeyError without one, UnsupportedOperation where jaxlib has no class for it."""
        for part in self._parts:
            if name in part:
                try:
                    return part[name]
                except TypeError:
                    problem = f"has an attribute {name} of a kind that jaxlib does not read"
                    raise UnsupportedOperation(problem) from None
        raise KeyError(name)

    def converted(self, name: str, convert: Callable[[Any], Any]) -> Any:
        """What `convert` makes of an attribute, made once. Raises KeyError without one, and what `convert` raises."""
        key = (name, convert)
        found = self._converted.get(key)
        if found is None:
            found = self._converted[key] = convert(self[name])
        return found

    @property
    def text(self) -> str:
        """As written."""
        return self._text

    @property
    def _parts(self) -> list[Any]:
        if self._read is None:
            self._read = list(self._dictionaries())
        return self._read

    def _dictionaries(self) -> Iterator[Any]:
        text = self._text
        if not text:
            return
        if self._aliases:
            text = _WORDS.sub(lambda word: self._aliases.get(word[0], word[0]), text)
        if text.endswith("}>"):
            yield self._parsed(text[1:-1])
        elif text.startswith("{"):
            yield self._parsed(text)
        else:
            yield from self._both(text)

    def _both(self, text: str) -> Iterator[Any]:
        """Two dictionaries. The first one ends where all before is a dictionary, as no part of one is."""
        end = text.find(_BETWEEN)
        while end >= 0:
            try:
                first = self._parsed(text[1 : end + 1])
            except (bindings().ir.MLIRError, ValueError):
                end = text.find(_BETWEEN, end + 1)
                continue
            yield first
            yield self._parsed(text[end + len(_BETWEEN) - 1 :])
            return

    def _parsed(self, text: str) -> Any:
        return bindings().ir.Attribute.parse(text, self._context)


class AttributesInMemory(Attributes):
    """Those of an operation that jaxlib holds, whose arrays are too large to be written."""

    def __init__(self, operation: Any) -> None:
        super().__init__("", operation.context, {})
        self._operation = operation

    @property
    def text(self) -> str:
        return str(self._operation.get_asm(large_elements_limit=None, print_generic_op_form=True, skip_regions=True))

    def _dictionaries(self) -> Iterator[Any]:
        yield self._operation.attributes
