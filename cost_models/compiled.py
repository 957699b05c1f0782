"""What only a kernel's compiler knows of it, in neutral terms, and its form as JSON."""

from __future__ import annotations

from typing import Any

from autofuse.lazydataclass import dataclass
from autofuse.strictjson import Item

_MOST_LAUNCHES = 1 << 16
_MOST_DEPTHS = 256
_MOST_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What one launch needs of the place where it runs."""

    registers: int
    """That one thread holds: 32-bit ones of a GPU's, vector registers of a CPU's. Of several functions the most."""
    spill_bytes: int
    """Bytes that a thread stores and loads because registers ran out, each place in the code counted once."""
    private_bytes: int
    """Memory of one thread's own, spills included."""
    shared_bytes: int
    """On-chip memory of one block of threads."""
    vector_spills: tuple[int, ...] | None = None
    """Of `spill_bytes`, those of vectors, by the number of loops of the code around the place, from none on; no zeros
    at the end. None: its compiler tells no places."""
    code_bytes: int | None = None
    """Machine code of its functions; None: not known."""


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    """What compiling a kernel told."""

    launches: tuple[LaunchFacts, ...]
    """In the order in which they run."""


def facts_to_json(facts: CompiledFacts) -> list[dict[str, Any]]:
    """Plain data, one object for each launch; what is not known is left out."""
    return [_launch_to_json(launch) for launch in facts.launches]


def _launch_to_json(launch: LaunchFacts) -> dict[str, Any]:
    data: dict[str, Any] = {
        "registers": launch.registers,
        "spill_bytes": launch.spill_bytes,
        "private_bytes": launch.private_bytes,
        "shared_bytes": launch.shared_bytes,
    }
    if launch.vector_spills is not None:
        data["vector_spills"] = list(launch.vector_spills)
    if launch.code_bytes is not None:
        data["code_bytes"] = launch.code_bytes
    return data


def facts_from(item: Item) -> CompiledFacts:
    """The reverse. Raises the item's error for what is no such data."""
    return CompiledFacts(tuple(map(_launch_from, item.items(_MOST_LAUNCHES))))


def _launch_from(item: Item) -> LaunchFacts:
    required = ("registers", "spill_bytes", "private_bytes", "shared_bytes")
    given = item.fields(required, optional=("vector_spills", "code_bytes"))
    counts = {name: given[name].integer(0, _MOST_BYTES) for name in required}
    by_depth = code_bytes = None
    if "vector_spills" in given:
        places = given["vector_spills"]
        by_depth = tuple(place.integer(0, _MOST_BYTES) for place in places.items(_MOST_DEPTHS))
        if sum(by_depth) > counts["spill_bytes"]:
            places.fail(f"must not add up to more than spill_bytes, {counts['spill_bytes']}; got {sum(by_depth)}")
        if by_depth and not by_depth[-1]:
            places.fail("must not end with 0")
    if "code_bytes" in given:
        code_bytes = given["code_bytes"].integer(0, _MOST_BYTES)
    return LaunchFacts(**counts, vector_spills=by_depth, code_bytes=code_bytes)
