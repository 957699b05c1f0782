"""Where an operation comes from: MLIR's locations, as text, become places in source files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autofuse.ir.graph import Location

_NESTED = 64
"""Names, call sites and fusions that are looked through, at most."""
_HERE = "-"
"""What MLIR calls the text that it parses."""
_STRING = r'"((?:[^"\\]|\\.)*)"'
_FILE = re.compile(_STRING + r":(\d+):")
_NAME = re.compile(_STRING + r"(\(?)")
_CALL = re.compile(r"callsite\(")
_FUSED = re.compile(r"fused(?:<.*?>)?\[(?:unknown, )*")
_UNKNOWN = "unknown"
_ALIAS = re.compile(r"#\w+")
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)")


class Locations:
    """The locations of one module."""

    def __init__(self, aliases: Mapping[str, str], own: str) -> None:
        """`own`: what to call the module's text itself, to which locations point where no others were written."""
        self._aliases = aliases
        self._own = own
        self._places: dict[tuple[str, str], Location | None] = {}

    def place(self, text: str, function: str) -> Location | None:
        """The innermost place of a location in a file; None where it has none.

        `function`: of the module, which the operation stands in, where the location names none of the source's.
        """
        key = (text, function)
        if key not in self._places:
            self._places[key] = self._found(text, function)
        return self._places[key]

    def name(self, text: str) -> str | None:
        """The name that a location gives to an argument, if it does."""
        text = self._written_out(text)
        found = None if _FILE.match(text) else _NAME.match(text)
        return None if found is None else _unescaped(found[1])

    def _found(self, text: str, function: str) -> Location | None:
        name = ""
        for _ in range(_NESTED):
            text = self._written_out(text)
            if (found := _FILE.match(text)) is not None:
                file = _unescaped(found[1])
                return Location(self._own if file == _HERE else file, int(found[2]), name or function)
            if (found := _NAME.match(text)) is not None:
                name = _unescaped(found[1])
                if "/" in name or name.endswith(":"):  # a path of scopes, or the name of an operation
                    name = ""
                if not found[2]:
                    return None
            elif (found := _CALL.match(text) or _FUSED.match(text)) is not None:
                name = ""
            else:
                return None
            text = self._known(text[found.end() :])  # what is named, the callee, the first of several
        return None

    def _known(self, text: str) -> str:
        """A list of locations from the first one on that is known."""
        while (found := _ALIAS.match(text)) is not None and self._written_out(text).startswith(_UNKNOWN):
            text = text[found.end() :].removeprefix(", ")
        return text

    def _written_out(self, text: str) -> str:
        """A location that is no alias."""
        for _ in range(_NESTED):
            found = _ALIAS.match(text)
            if found is None:
                break
            text = self._aliases.get(found[0], _UNKNOWN).removeprefix("loc(")
        return text


def given_name(text: str) -> str | None:
    """The name that a location, as jaxlib writes it alone, gives to an argument, if it does."""
    return Locations({}, "").name(text.removeprefix("loc("))


def _unescaped(text: str) -> str:
    """A string of MLIR's: bytes that are no printable ASCII stand as two digits."""
    if "\\" not in text:
        return text

    def byte(found: re.Match[bytes]) -> bytes:
        return bytes.fromhex(found[1].decode()) if len(found[1]) == 2 else found[1]

    return _ESCAPE.sub(byte, text.encode()).decode(errors="replace")
