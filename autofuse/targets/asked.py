"""Targets as all else has them: what a piece of one raises, or gives that it must not, is an error that names both."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from autofuse.errors import AutofuseError, BackendError
from autofuse.lazydataclass import replace
from autofuse.targets.registry import asking

_OF_ITS_OWN = {
    "Backend.target": "Target",
    "Backend.target_of": "Target",
    "Backend.decisions": "Decisions",
    "Target.executable": "Executable",
}
"""Pieces whose answers are asked in this way too, and what is said in messages for these."""
_KINDS = {
    "Backend.decisions": "autofuse.lower.decisions:Decisions",
    "Backend.identity_type": "builtins:type",
    "Target.threads": "builtins:int",
    "Target.identity": "autofuse.plan.identity:Identity",
    "Target.limits": "autofuse.lower.limits:Limits",
    "Target.features": "autofuse.cost_models.features:KernelFeatures",
    "Target.fingerprint": "builtins:str",
    "Limits.decisions": "autofuse.lower.decisions:Decisions",
    "Limits.passes": "autofuse.lower.tile:TileProgram",
    "Limits.workspaces": "autofuse.lower.tile:LoweredProgram",
}
"""What pieces must give, where what comes of it would not say whose fault it is. Imported when it was given."""
_REWRITES = ("passes", "workspaces")
"""Of programs, by limits."""
_AS_IT_IS = ("Target.clock",)
"""Read too often, and too fast, to be asked in any way but directly: who times with it says whose it is."""


class Asked:
    """Stands for a target, or for what one gave. What is no method is asked once: targets do not change."""

    def __init__(self, own: Any, target: object, kind: str) -> None:
        """`target`: its name. `kind`: the protocol of `autofuse.targets.base` that `own` keeps."""
        self.own, self._target, self._kind = own, target, kind

    def __getattr__(self, piece: str) -> Any:
        if piece.startswith("__"):  # of Python's protocols
            raise AttributeError(piece)
        where = f"{self._kind}.{piece}"
        if piece not in dir(self.own):
            raise BackendError(f"target {self._target!r} lacks {where}: see autofuse.targets.base")
        with asking(self._target, where):
            found = getattr(self.own, piece)
        if where not in _AS_IT_IS:
            is_asked = callable(found) and not isinstance(found, type)
            found = _asked_call(found, self._target, where) if is_asked else _sound(found, self._target, where)
        self.__dict__[piece] = found
        return found

    def __repr__(self) -> str:
        return repr(self.own)


def _asked_call(call: Callable[..., Any], target: object, where: str) -> Callable[..., Any]:
    is_checked = where in {*_KINDS, *_OF_ITS_OWN}

    @functools.wraps(call)
    def ask(*args: Any, **kwargs: Any) -> Any:
        try:  # and not `asking`, which takes longer than some calls
            found = call(*args, **kwargs)
        except (AutofuseError, MemoryError):
            raise
        except Exception:
            with asking(target, where):
                raise
        return _sound(found, target, where) if is_checked else found

    return ask


def _sound(found: Any, target: object, where: str) -> Any:
    """What a piece gave, to be asked in turn. Raises BackendError for what it must not give."""
    if where in _KINDS:
        module, _, name = _KINDS[where].partition(":")
        kind = getattr(importlib.import_module(module), name)
        if not isinstance(found, kind) or not found:
            raise BackendError(
                f"target {target!r}: {where} gave {found!r:.60}; it must be a {name}: see autofuse.targets.base"
            )
    if where in _OF_ITS_OWN:
        return Asked(found, target, _OF_ITS_OWN[where])
    if where == "Target.limits":
        decisions: Any = Asked(_sound(found.decisions, target, "Limits.decisions"), target, "Decisions")
        rewrites = {name: _asked_call(getattr(found, name), target, f"Limits.{name}") for name in _REWRITES}
        return replace(found, decisions=decisions, **rewrites)
    return found
