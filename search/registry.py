"""Policies by name: those here, those that installed packages offer, and `module:Class`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from autofuse.errors import SearchError
from autofuse.search.policy import SearchPolicy

ENTRY_POINTS = "autofuse.policies"
"""Group of entry points: each names a class, or a function, that gives a SearchPolicy when called."""

MEASURED = "measured"
"""Not a policy of its own but the tuner's loop over the whole space."""

HERE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "unfused": ("autofuse.search.policy", "Unfused", {}),
    "analytical": ("autofuse.search.policy", "Analytical", {}),
    "greedy": ("autofuse.search.greedy", "Greedy", {}),
    "beam": ("autofuse.search.greedy", "Beam", {}),
    "rule:xla": ("autofuse.search.rules.xla", "XlaClassic", {}),
    "rule:xla-cpu": ("autofuse.search.rules.xla_cpu", "XlaCpu", {}),
    "rule:xla-priority": ("autofuse.search.rules.priority", "XlaPriority", {}),
    "rule:xla-priority-calibrated": ("autofuse.search.rules.priority", "XlaPriorityCalibrated", {}),
    "rule:grappler": ("autofuse.search.rules.grappler", "Grappler", {}),
    "rule:grappler-eigen": (
        "autofuse.search.rules.grappler",
        "Grappler",
        {"name": "rule:grappler-eigen", "build": "eigen"},
    ),
    "rule:inductor": ("autofuse.search.rules.inductor", "Inductor", {}),
    "rule:inductor-triton": (
        "autofuse.search.rules.inductor",
        "Inductor",
        {"name": "rule:inductor-triton", "backend": "triton"},
    ),
}
"""Module, class and arguments, so that a policy is imported when it is asked for."""


def policy_names() -> Sequence[str]:
    """All policies: the tuner's, those here, then those that installed packages offer."""
    offered = sorted(entry.name for entry in metadata.entry_points(group=ENTRY_POINTS))
    return (*HERE, MEASURED, *(name for name in offered if name not in HERE))


def policy_by_name(name: str) -> SearchPolicy:
    """A policy that decides without measuring: a name of `policy_names`, or `module:Class`.

    Raises SearchError for a name that there is not, and for what gives no policy when called.
    """
    if name in HERE:
        module, made, arguments = HERE[name]
        return getattr(importlib.import_module(module), made)(**arguments)
    offered = next(iter(metadata.entry_points(group=ENTRY_POINTS, name=name)), None)
    if offered is not None:
        return _made(name, offered.load)
    if ":" in name and not name.startswith("rule:"):
        return _made(name, lambda: _attribute(name))
    near = difflib.get_close_matches(name, policy_names(), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"choose one of: {', '.join(policy_names())}; or module:Class"
    raise SearchError(f"policy={name!r} is unknown; {hint}")


def _attribute(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _made(name: str, load: Callable[[], Any]) -> SearchPolicy:
    """The policy that a loaded class gives. Errors of foreign code keep their cause."""
    try:
        policy = load()()
    except Exception as error:
        raise SearchError(f"policy={name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not callable(getattr(policy, "partition", None)) or not isinstance(getattr(policy, "name", None), str):
        raise SearchError(f"policy={name!r} gives a {type(policy).__name__}, which has no name and partition()")
    return policy
