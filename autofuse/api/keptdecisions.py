"""What `compile` decided in an earlier process, kept beside compiled objects, so that this one searches nothing.

A record holds kernels, their order and schedules by the names of nodes, and no graph: that is traced and cleaned up
anew where somebody looks into the plan. Its key is a digest of all that decides: the traced graph with its names, the
arguments of `compile`, the device with its calibration, and the sources of this package. Options without a lasting
name (objects of the user's, plug-ins, rules in a file) are not kept, nor is anything while plans are dumped. What a
deadline decided holds for a day: a less busy machine may find a better plan. `AUTOFUSE_DECISIONS=off` keeps none.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autofuse.api.plan import Plan
from autofuse.errors import AutofuseError, PlanError
from autofuse.host.objectcache import ObjectCache, cache_directory
from autofuse.ir import tree
from autofuse.ir.digest import digest, in_order
from autofuse.lazydataclass import dataclass, fields, is_dataclass, replace
from autofuse.runtime.environment import fingerprint
from autofuse.targets.base import Target, find_backend

if TYPE_CHECKING:  # where a decision is found, none of these is needed
    from autofuse.frontend.tracedprogram import Traced
    from autofuse.plan.document import PlanDocument

_VERSION = 1
_DECIDING = ("cost_models", "passes", "search")
"""Packages that decide, beside those that generate code."""
_HURRIED_HOLDS_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """One question to `compile`, which an earlier process may have answered."""

    key: str
    trace: Callable[[], Traced]
    """Gives the program."""
    target: Target
    policy: object

    def find(self, notes: Sequence[str]) -> Plan | None:
        """The plan that was decided; None if there is none, or none that is of use. `notes`: more for the plan."""
        data = ObjectCache(cache_directory()).get(self.key)
        if data is None:
            return None
        try:
            until = json.loads(data)["until"]
            if until is not None and not 0 <= until - time.time() <= _HURRIED_HOLDS_S:
                return None
            ready = find_backend(self.target.backend).ready(self.key.encode())
            plan = Plan(lambda: self._document(data, notes), ready=ready)
            if ready is None:
                _ = plan.document
        except (AutofuseError, LookupError, TypeError, ValueError):
            return None
        return self.kept(plan)

    def keep(self, document: PlanDocument) -> None:
        """Keep what a plan decides, unless a policy did that others install."""
        from autofuse.plan.codec import decisions_to_json
        from autofuse.search.plugins.registry import HERE
        from autofuse.search.policies.deadline import DECIDED
        from autofuse.search.variants.variants import LATE

        if isinstance(self.policy, str) and self.policy not in HERE:
            return
        hurried = any(note.startswith(DECIDED) or note.endswith(LATE) for note in document.notes)
        until = time.time() + _HURRIED_HOLDS_S if hurried else None
        own = replace(document, notes=document.notes[len(self.trace().notes) :])
        record = {"until": until, "decisions": decisions_to_json(own)}
        ObjectCache(cache_directory()).put(self.key, json.dumps(record).encode())

    def kept(self, plan: Plan) -> Plan:
        """The plan, whose native program will be kept too."""
        plan.keep = self.key.encode()
        return plan

    def _document(self, data: bytes, notes: Sequence[str]) -> PlanDocument:
        """The document of a record. Raises PlanError if it does not fit the program."""
        from autofuse.api.programs import traced_program
        from autofuse.passes.choices import DEFAULT, read_choices
        from autofuse.plan.codec import decisions_from
        from autofuse.plan.verify import verify
        from autofuse.strictjson import parse

        what = "a kept decision"
        decided = decisions_from(parse(data, PlanError, what).fields(["until", "decisions"])["decisions"])
        choices = DEFAULT if decided.variant is None else read_choices(decided.variant.choices)
        traced = self.trace()
        program = replace(traced_program(traced, choices, decided.numerics), notes=traced.notes)
        identity = self.target.identity
        document = program.document(decided.kernels, decided.order, identity, notes=(*decided.notes, *notes))
        if document.graph_digest != decided.graph_digest:
            raise PlanError(f"{what} is of another graph")
        verify(document)
        return document


def kept_decision(traced: Traced, options: Mapping[str, Any]) -> KeptDecision | None:
    """The question whether `compile` has decided about a program; None for one whose answer is not kept.

    `options`: all arguments of `compile` that are not the function's.
    """
    if not may_keep(options):
        return None
    try:
        described = _described(traced)
    except PlanError:  # arguments with keys that JSON cannot hold
        return None
    key = question(options, ("decision", str(_VERSION), *described))
    return None if key is None else KeptDecision(key, lambda: traced, options["target"], options["policy"])


def question(options: Mapping[str, Any], about: Sequence[str], packages: Sequence[str] = ()) -> str | None:
    """A digest of a question to `compile`; None for one with options without a lasting name.

    `about`: what is asked about. `packages`: others of autofuse that decide what that means.
    """
    target: Target = options["target"]
    words = _words(tuple(sorted((name, value) for name, value in options.items() if name != "target")))
    if words is None:
        return None
    parts = (*about, fingerprint(*_DECIDING, *packages), words, target.backend, target.fingerprint())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def may_keep(options: Mapping[str, Any]) -> bool:
    """Whether what is decided under these options is kept for other processes."""
    return _lasts(options) and not _is_off()


def _is_off() -> bool:
    env = os.environ
    return cache_directory() is None or env.get("AUTOFUSE_DECISIONS") == "off" or bool(env.get("AUTOFUSE_DUMP"))


def _lasts(options: Mapping[str, Any]) -> bool:
    """Whether the options mean the same in another process: files and what others install may change."""
    named = isinstance(options["policy"], str) and ":" in options["policy"].removeprefix("rule:")
    return not (
        named
        or options["policy"] == "learned"  # its trained model is a file
        or isinstance(options["rules"], str)
        or options["model"] != "analytical"
        or options["legality"] is not None
    )


def _described(traced: Traced) -> list[str]:
    """The graph and its names but no source lines, and the form of calls."""
    graph = traced.graph
    names = [[graph.positions[node], *(value.name for value in node.outputs)] for node in in_order(graph)]
    form = {
        "name": graph.name,
        "inputs": [value.name for value in graph.inputs],
        "nodes": names,
        "in_tree": tree.to_json(traced.in_tree),
        "out_tree": tree.to_json(traced.out_tree),
        "writebacks": traced.writebacks,
        "parameters": traced.parameters,
        "contiguous": traced.contiguous,
    }
    return [digest(graph), json.dumps(form)]


def _words(value: object) -> str | None:
    """An option as text that is equal for options that mean the same; None for one without a lasting name."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple | list):
        parts = [_words(part) for part in value]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    if is_dataclass(value) and type(value).__module__.startswith("autofuse."):
        inside = _words(tuple((f.name, getattr(value, f.name)) for f in fields(value)))
        return None if inside is None else f"{type(value).__qualname__}{inside}"
    return None
