"""Records as they travel: each with all that is needed to learn from it, as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from autofuse.errors import MeasureError
from autofuse.lazydataclass import dataclass, fields
from autofuse.measurement.kernelnotes import KernelNote, note_from, note_to_json
from autofuse.measurement.records import (
    UNKNOWN_VALUES,
    UNSAID,
    Measurement,
    Record,
    measurement_from,
    record_to_json,
    stamped,
)
from autofuse.measurement.sources import (
    MOST_DESCRIPTION,
    KernelSource,
    ProgramSource,
    kernel_source_from,
    kernel_to_json,
    program_source_from,
    program_to_json,
    text_hash,
)
from autofuse.plan.identity import Identity, identity_from, identity_hash, identity_to_json
from autofuse.strictjson import Item, parse

_MAX_LINE = 64 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """A record, and what it is about. What is None or empty is not known."""

    record: Record
    identity: Identity
    """Of the machine and its toolchain: for how many threads, too."""
    note: KernelNote | None = None
    kernel: KernelSource | None = None
    program: ProgramSource | None = None
    """That the kernel was first measured in."""
    description: str = ""
    """Of the device (`Target.fingerprint`): all that prices depend on, its calibration included."""


def to_line(exported: Exported) -> str:
    """JSON without newline, complete by itself."""
    data: dict[str, Any] = {**record_to_json(exported.record), "identity": identity_to_json(exported.identity)}
    if exported.note is not None:
        data["note"] = note_to_json(exported.note)
    if exported.kernel is not None:
        data["source"] = kernel_to_json(exported.kernel)
    if exported.program is not None:
        data["program"] = program_to_json(exported.program)
    if exported.description:
        data["description"] = exported.description
    return json.dumps(data, allow_nan=False)


def from_line(line: str, what: str) -> Exported:
    """The reverse. Raises MeasureError that begins with `what` for a line that is no record."""
    if len(line) > _MAX_LINE:
        raise MeasureError(f"{what}: longer than {_MAX_LINE} characters")
    # lines of older versions have a cache state, always the same one, and do not say for which values they hold
    older = {**UNSAID, "input_values": UNKNOWN_VALUES}
    measured = [f.name for f in fields(Measurement)]
    required = [*(name for name in measured if name not in older), "created_ns", "identity"]
    given = parse(line, MeasureError, what).fields(
        required, optional=(*older, "cache_state", "note", "source", "program", "description")
    )
    identity = identity_from(given["identity"])
    measurement = measurement_from({**{k: Item(value, k, MeasureError, what) for k, value in older.items()}, **given})
    description = given["description"].text(MOST_DESCRIPTION) if "description" in given else ""
    if description and text_hash(description) != measurement.described:
        given["description"].fail("is not the one that `described` names")
    return Exported(
        stamped(measurement, identity_hash(identity), given["created_ns"].integer(0, (1 << 63) - 1)),
        identity,
        note_from(measurement.kernel, given["note"]) if "note" in given else None,
        kernel_source_from(measurement.kernel, given["source"]) if "source" in given else None,
        program_source_from(given["program"]) if "program" in given else None,
        description,
    )


def from_lines(lines: Iterable[str], what: str) -> Iterator[Exported]:
    """The records of a file of lines; empty ones are passed over. Raises as `from_line` does, and names the line."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield from_line(line, f"{what}, line {number}")
