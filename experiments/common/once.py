"""Steps of a study, each run once: in a process of its own, its record on disk before the next begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from children import in_child, tell
from journal import Journal, Record
from provenance import commit, digest

from autofuse.measurement.workloads import Workload

NAMED = ("kind", "program", "policy", "cell", "share", "tuning_seed", "round", "number")
"""Entries that name a step in a line of progress."""


def key(program: Workload, kind: str) -> Record:
    """What tells a program's records of one kind from others."""
    return {"kind": kind, "program": program.name, "source": digest(program.file)}


@dataclass(frozen=True, slots=True)
class Once:
    """What is there holds where it is ok and the files that it made are as they were; all else is made."""

    journal: Journal
    child: Path
    """The script that does a step: its outcome names the files that it made in `folder` as `paths`."""
    folder: Path
    common: Record
    """Entries of every task."""
    limit_s: float = 7200.0
    """No step takes longer."""

    def step(self, what: Record, task: Record) -> Record:
        """The record of exactly `what`: found, or made now by a task of these entries."""
        known = self.journal.latest(**what)
        if known and self.holds(known):
            return known
        self.folder.mkdir(parents=True, exist_ok=True)
        outcome = in_child(self.child, {**self.common, "folder": str(self.folder), **what, **task}, self.limit_s)
        files = {path: digest(self.folder / path) for path in outcome.pop("paths", [])}
        record = {**what, "commit": commit(), **outcome, "files": files}
        self.journal.append(record)
        tell(" ".join(str(what[entry]) for entry in NAMED if what.get(entry) is not None), record)
        return record

    def holds(self, record: Record | None) -> bool:
        """Whether a record is there and need not be made again."""
        if record is None or record["status"] != "ok":
            return False
        return all(self.mark(path) == mark for path, mark in record["files"].items())

    def mark(self, path: str) -> str | None:
        """The digest of a file in the folder; None if it is not there."""
        file = self.folder / path
        return digest(file) if file.exists() else None
