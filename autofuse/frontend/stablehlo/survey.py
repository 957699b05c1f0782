"""All operations of a module that have no rule, where the first one was refused already."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.frontend.stablehlo.customcalls import is_known
from autofuse.frontend.stablehlo.highlevel import REWRITTEN
from autofuse.frontend.stablehlo.module import Module
from autofuse.frontend.stablehlo.table import RULES

_STRUCTURE = ("builtin.", "func.", "sdy.")
_REWRITTEN = "chlo."
"""Operations that StableHLO's own passes write as others."""
_CALL, _RETURN = "stablehlo.custom_call", "stablehlo.return"
_MOST = 8


def untranslated(module: Module) -> tuple[str, ...]:
    """Names and source lines of the operations that are not translated, the first few; each once."""
    listed = list(dict.fromkeys(_told(module)))
    more = (f"{len(listed) - _MOST} more",) if len(listed) > _MOST else ()
    return (*listed[:_MOST], *more)


def _told(module: Module) -> Iterator[str]:
    for operation in module.operations():
        name = operation.name
        if name == _CALL:
            target = str(module.attributes(operation)["call_target_name"].value)
            name = "" if is_known(target) else f"{name} @{target}"
        elif name in RULES or name in REWRITTEN or name == _RETURN or name.startswith((*_STRUCTURE, _REWRITTEN)):
            name = ""
        if name:
            location = module.locations.place(operation.location, "")
            yield name if location is None else f"{name} at {location}"
