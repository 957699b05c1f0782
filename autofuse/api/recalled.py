"""Programs that are known by what was read: what `compile` decided about one is found before it is translated.

A function that stands for a program from elsewhere may have a `source_digest`, of all that decides what it computes and
how its results are arranged. With the types of its arguments and the options it leads to the decision that an earlier
process kept (`keptdecisions.py`). The program is translated and traced where somebody looks into the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autofuse.api.keptdecisions import KeptDecision, kept_decision, may_keep, question
from autofuse.api.numpyonly import traced_by
from autofuse.api.plan import Plan
from autofuse.errors import PlanError
from autofuse.frontend.spec import Spec
from autofuse.host.objectcache import ObjectCache, cache_directory
from autofuse.lazydataclass import dataclass

if TYPE_CHECKING:  # what is recalled is not traced
    from autofuse.frontend.tracedprogram import Traced

_VERSION = 1
_TRANSLATING = ("frontend", "jax")
"""Packages that decide what a program becomes before it is planned, beside those that decide about plans."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A program by its source, with one question to `compile` about it."""

    key: str
    trace: Callable[[], Traced]
    options: Mapping[str, Any]

    def find(self) -> Plan | None:
        """The plan that an earlier process decided on; None if there is none, or none that is of use."""
        data = ObjectCache(cache_directory()).get(self.key)
        if data is None:
            return None
        try:
            decision = str(json.loads(data)["decision"])
        except (LookupError, TypeError, ValueError):
            return None
        return KeptDecision(decision, lambda: self._traced(decision), self.options["target"], None).find(())

    def keep(self, decision: KeptDecision) -> None:
        """Have the source lead to a decision. What a trace warns of is to be said each time, so that is not kept."""
        ObjectCache(cache_directory()).put(self.key, json.dumps({"decision": decision.key}).encode())

    def _traced(self, decision: str) -> Traced:
        """The program. Raises PlanError if it is not the one that was decided about."""
        traced = self.trace()
        kept = kept_decision(traced, self.options)
        if kept is None or kept.key != decision:
            raise PlanError("a kept decision is of another program")
        return traced


def recalled(
    fn: Callable[..., Any],
    args: Sequence[object],
    options: Mapping[str, Any],
    tracing: Mapping[str, Any],
) -> Recalled | None:
    """The question of a program by its source; None for functions without one, and where nothing is kept.

    `options`: as for `kept_decision`. `tracing`: those of `trace`.
    """
    source = getattr(fn, "source_digest", None)
    specs = [str(arg) for arg in args if isinstance(arg, Spec)]
    if source is None or len(specs) != len(args) or not may_keep(options):
        return None
    key = question(options, ("source", str(_VERSION), source, *specs, repr(sorted(tracing.items()))), _TRANSLATING)

    def traced() -> Traced:
        return traced_by(fn, args, {}, tracing)

    return None if key is None else Recalled(key, traced, options)
