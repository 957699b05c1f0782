"""All operations of a module that have no rule, where the first one was refused already."""

from __future__ import annotations

from typing import Any

from autofuse.frontend.stablehlo.bindings import bindings
from autofuse.frontend.stablehlo.customcalls import is_known
from autofuse.frontend.stablehlo.highlevel import REWRITTEN
from autofuse.frontend.stablehlo.locations import location_of
from autofuse.frontend.stablehlo.source import TEXT
from autofuse.frontend.stablehlo.table import RULES

_STRUCTURE = ("builtin.", "func.", "sdy.")
_REWRITTEN = "chlo."
"""Operations that StableHLO's own passes write as others."""
_CALL, _RETURN = "stablehlo.custom_call", "stablehlo.return"
_MOST = 8


def untranslated(module: Any) -> tuple[str, ...]:
    """Names and source lines of the operations that are not translated, the first few; each once."""
    found: dict[str, None] = {}

    def look(operation: Any) -> Any:
        name = _unknown(operation)
        if name is not None:
            location = location_of(operation.location, "", TEXT)
            found[name if location is None else f"{name} at {location}"] = None
        return bindings().ir.WalkResult.ADVANCE

    module.operation.walk(look)
    listed = list(found)
    more = (f"{len(listed) - _MOST} more",) if len(listed) > _MOST else ()
    return (*listed[:_MOST], *more)


def _unknown(operation: Any) -> str | None:
    """What to call an operation without a rule; None for any other."""
    name = str(operation.name)
    if name == _CALL:
        target = str(operation.attributes["call_target_name"].value)
        return None if is_known(target) else f"{name} @{target}"
    is_read = name in RULES or name in REWRITTEN or name == _RETURN
    return None if is_read or name.startswith((*_STRUCTURE, _REWRITTEN)) else name
