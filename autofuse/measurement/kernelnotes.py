"""What the record database keeps of a kernel besides its times: what it is called, and what kernels are like it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.errors import MeasureError
from autofuse.lazydataclass import dataclass
from autofuse.strictjson import Item, parse

KERNELS_TABLE = """
CREATE TABLE kernels (
  device TEXT NOT NULL REFERENCES devices (hash), kernel TEXT NOT NULL, title TEXT NOT NULL, kind TEXT NOT NULL,
  program TEXT NOT NULL, family TEXT NOT NULL, features TEXT NOT NULL, predicted_us REAL,
  PRIMARY KEY (device, kernel))
"""
_COLUMNS = "kernel, title, kind, program, family, features, predicted_us"
_MOST_FEATURES = 10_000
_MOST_US = 1e15


@dataclass(frozen=True, slots=True)
class KernelNote:
    """One kernel whose schedules were searched."""

    kernel: str
    """Structural digest, as in its records."""
    title: str
    """A name to be read, e.g. `loop_exp`."""
    kind: str
    """Kind of fusion."""
    program: str
    """Digest of the graph that it was first tuned for."""
    family: str
    """Equal for kernels that run the same loops with the same operations, whatever their sizes."""
    features: tuple[float, ...]
    """What tells it from others of its family: the row of the cost model's feature matrix."""
    predicted_us: float | None
    """The cost model's price under the default schedule."""


def note_to_json(note: KernelNote) -> dict[str, Any]:
    """What an exported record says of its kernel, the digest left out."""
    return {
        "title": note.title,
        "kind": note.kind,
        "program": note.program,
        "family": note.family,
        "features": list(note.features),
        "predicted_us": note.predicted_us,
    }


def note_from(kernel: str, item: Item) -> KernelNote:
    """The reverse. Raises the item's error for anything else."""
    keys = item.fields(("title", "kind", "program", "family", "features", "predicted_us"))
    return KernelNote(
        kernel=kernel,
        title=keys["title"].text(),
        kind=keys["kind"].text(),
        program=keys["program"].text(),
        family=keys["family"].text(),
        features=tuple(value.number(0, _MOST_US) for value in keys["features"].items(_MOST_FEATURES)),
        predicted_us=keys["predicted_us"].maybe(lambda price: price.number(0, _MOST_US)),
    )


def write_note(connection: sqlite3.Connection, device: str, note: KernelNote) -> None:
    """Store a note, unless there is one of the kernel."""
    # what was not good enough to be read again never gets in
    note_from(note.kernel, Item(note_to_json(note), "note", MeasureError, f"kernel {note.kernel}"))
    features = json.dumps(list(note.features), allow_nan=False)
    values = [device, note.kernel, note.title, note.kind, note.program, note.family, features, note.predicted_us]
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT OR IGNORE INTO kernels (device, {_COLUMNS}) VALUES ({marks})", values)


def read_notes(
    connection: sqlite3.Connection, what: str, where: Mapping[str, str] | None = None
) -> dict[tuple[str, str], KernelNote]:
    """Notes by (device, kernel), in order of both. `where`: values that columns must have. `what`: the file."""
    given = where or {}
    clause = f"WHERE {' AND '.join(f'{column} = ?' for column in given)}" if given else ""
    query = f"SELECT device, {_COLUMNS} FROM kernels {clause} ORDER BY device, kernel"
    rows: list[Sequence[Any]] = connection.execute(query, list(given.values())).fetchall()
    return {(row[0], row[1]): _from_row(row, what) for row in rows}


def _from_row(row: Sequence[Any], what: str) -> KernelNote:
    _, kernel, title, kind, program, family, features, predicted_us = row
    where = f"{what}: kernel {kernel}"
    data = {
        "title": title,
        "kind": kind,
        "program": program,
        "family": family,
        "features": parse(features, MeasureError, where).value,
        "predicted_us": predicted_us,
    }
    return note_from(kernel, Item(data, "", MeasureError, where))
