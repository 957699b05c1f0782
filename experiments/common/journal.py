"""Raw records of a study as JSON lines: each is on disk before the next measurement starts, so a rerun resumes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Journal:
    """An append-only file of records; one process writes it at a time."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        """Open `path` and read what is there; `fresh` throws that away."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        self.records: list[Record] = _read(path)

    def append(self, record: Record) -> None:
        """Add one record and force it to disk."""
        with self.path.open("a") as stream:
            stream.write(json.dumps(record) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        self.records.append(record)

    def latest(self, **wanted: Any) -> Record | None:
        """The newest record whose entries equal `wanted`; None where there is none."""
        for record in reversed(self.records):
            if all(record.get(key) == value for key, value in wanted.items()):
                return record
        return None


def _read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    text = path.read_text()
    complete, _, torn = text.rpartition("\n")
    if torn:  # killed while appending: that measurement is made again
        path.write_text(complete + "\n" if complete else "")
    return [json.loads(line) for line in complete.splitlines()]
