"""Where an operation comes from: MLIR's locations as places in source files."""

from __future__ import annotations

from typing import Any

from autofuse.ir.graph import Location

_NESTED = 64
"""Names, call sites and fusions that are looked through, at most."""
_HERE = "-"
"""What MLIR calls the text that it parses."""


def location_of(found: Any, function: str, own: str) -> Location | None:
    """The innermost place of an MLIR location in a file; None where it has none.

    `function`: the function of the module that the operation stands in, where the location names none of the source's.
    `own`: what to call the module's text itself, to which locations point where no others were written.
    """
    name = ""
    for _ in range(_NESTED):
        match type(found).__name__:
            case "FileLineColLoc":
                file = str(found.filename)
                return Location(own if file == _HERE else file, int(found.start_line), name or function)
            case "NameLoc":
                name, found = str(found.name_str), found.child_loc
                if "/" in name or name.endswith(":"):  # a path of scopes, or the name of an operation
                    name = ""
            case "CallSiteLoc":
                name, found = "", found.callee
            case "FusedLoc":
                name, found = "", _first(found)
            case _:
                return None
    return None


def _first(fused: Any) -> Any:
    known = [found for found in fused.locations if type(found).__name__ != "UnknownLoc"]
    return known[0] if known else None


def given_name(found: Any) -> str | None:
    """The name that a location gives to an argument, if it does."""
    return str(found.name_str) if type(found).__name__ == "NameLoc" else None
