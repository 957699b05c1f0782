"""For which machine and toolchain a plan was made, and whether this one is the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, cast

from autofuse.errors import PlanError
from autofuse.lazydataclass import MISSING, dataclass, fields
from autofuse.strictjson import Item
from autofuse.targets.registry import asking, backend_named, names, offered

MEASUREMENT_POLICY = "warm-fastest/2"
"""How times in a plan and in the record database are taken; raised when they stop being comparable with older ones.

A certificate notes it, and each record has it; what a plan is for does not depend on it."""
COLD_POLICY = "cold-fastest/2"
"""The same of times that are taken with operands in memory, in place of caches. The two are not comparable."""

RECORDED = {"compared": False}
"""Metadata of a field of an identity that is not compared."""


class Identity:
    """For what a plan was made: base of the targets' own frozen dataclasses.

    Fields are texts, whole numbers and tuples of texts. All are compared, but those whose metadata are `RECORDED`.
    """

    __slots__ = ()
    backend: ClassVar[str]
    """Name of the target."""
    product: str
    """Product name of the device."""
    generator: str
    """Version of its code generator. Raised whenever an unchanged plan would compile to other code."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One compared field that differs."""

    field: str
    plan: Any
    here: Any

    def __str__(self) -> str:
        if isinstance(self.plan, tuple) and isinstance(self.here, tuple):
            lost = sorted({*self.plan} - {*self.here})
            extra = sorted({*self.here} - {*self.plan})
            parts = [f"missing here: {' '.join(lost)}"] * bool(lost) + [f"only here: {' '.join(extra)}"] * bool(extra)
            return f"{self.field} ({'; '.join(parts)})"
        return f"{self.field} (plan: {self.plan}, here: {self.here})"


def compare(plan: Identity, here: Identity) -> list[Difference]:
    """The compared fields in which the two differ, in declaration order; none = the plan is at home here.

    A field that is an empty text in the plan was unknown when the plan was made, and is not compared.
    """
    if plan.backend != here.backend:
        return [Difference("backend", plan.backend, here.backend)]
    return [
        Difference(name, getattr(plan, name), getattr(here, name))
        for name in _compared(plan)
        if getattr(plan, name) not in ("", getattr(here, name))
    ]


def require_same(plan: Identity, here: Identity, what: str = "the plan") -> None:
    """Raise PlanError naming each differing field, both values and the way out; return if there are none."""
    differences = compare(plan, here)
    if differences:
        refuse(differences, what)


def refuse(differences: list[Difference], what: str = "the plan") -> NoReturn:
    """Raise the PlanError for these differences."""
    raise PlanError(
        f"{what} was made for another device or toolchain; different: {'; '.join(map(str, differences))}. "
        'Load it with on_mismatch="retune" to tune again here, or on_mismatch="run" to run it as it is'
    )


def identity_hash(identity: Identity) -> str:
    """A digest of the compared fields: equal for two machines that may share plans and measurements."""
    compared = {name: getattr(identity, name) for name in _compared(identity)}
    text = json.dumps({"backend": identity.backend, **compared}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _compared(identity: Identity) -> list[str]:
    return [f.name for f in fields(cast("Any", identity)) if f.metadata.get("compared", True)]


def identity_to_json(identity: Identity) -> dict[str, Any]:
    """Plain data, without what is empty and may be; `identity_from` reads it back."""
    own = fields(cast("Any", identity))
    given = {f.name: getattr(identity, f.name) for f in own}
    empty = {f.name for f in own if given[f.name] == f.default}
    data = {"backend": identity.backend, **{name: value for name, value in given.items() if name not in empty}}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}


def identity_from(item: Item) -> Identity:
    """Read `identity_to_json` back; raises the item's error with the path of the first unfit value."""
    backend = item.members(at_most=100).get("backend")
    if backend is None:
        item.fail("the key 'backend' is missing")
    name = backend.choice(*names(), told=offered())
    found = backend_named(name)
    with asking(name, "Backend.identity_type"):
        kind = found.identity_type
    later = [f.name for f in fields(kind) if f.default is not MISSING]
    keys = item.fields(["backend", *(f.name for f in fields(kind) if f.name not in later)], later)
    read: dict[str, Any] = {f.name: _FIELD_READERS[str(f.type)](keys[f.name]) for f in fields(kind) if f.name in keys}
    return kind(**read)


_FIELD_READERS: dict[str, Callable[[Item], Any]] = {
    "str": Item.text,
    "int": lambda item: item.integer(0, 1 << 60),
    "tuple[str, ...]": lambda item: tuple(feature.text(40) for feature in item.items(1000)),
}
