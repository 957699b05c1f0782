"""A file of records that a collection carries on from: on another day, or another machine.

Programs up to the last one of the file are not looked at again, and kernels of it are not measured again. What there is
less of in the file is looked for.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from choosing import Balance, bin_of
from journal import Record
from programs import source_of

from autofuse.measurement.columns import read_columns
from autofuse.measurement.exported import Exported
from autofuse.measurement.observations import Observation, observations
from autofuse.plan.atomic import written_whole
from autofuse.targets.base import Target

_FAR = 1_000_000
"""Programs among which the last one of a file is looked for."""
NAME = "before.npz"
"""In the folder of a collection."""


def begun_with(folder: Path, file: Path) -> None:
    """Keep the file in a folder whose collection begins; a collection that was begun goes on from what it had."""
    if file.exists() and not (folder / "plan.jsonl").exists() and not (folder / NAME).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder) as (copy, place), file.open("rb") as source:
            shutil.copyfileobj(source, copy)
            place(folder / NAME)


@dataclass(frozen=True)
class Before:
    """What the file that a folder carries on from has; nothing where there is none."""

    file: Path

    @staticmethod
    def of(folder: Path) -> Before:
        """Of the folder of a collection."""
        return Before(folder / NAME)

    def exported(self) -> Iterator[Exported]:
        """Its records. Raises MeasureError for a file that is damaged."""
        if self.file.exists():
            yield from read_columns(self.file)

    @cached_property
    def seen(self) -> Sequence[Observation]:
        """Its kernels under their schedules."""
        return observations(self.exported())

    @cached_property
    def programs(self) -> frozenset[str]:
        """The names of those that kernels are of."""
        return frozenset(one.program.name for one in self.seen)

    @cached_property
    def whole(self) -> frozenset[str]:
        """The names of those of which every kernel was measured."""
        return frozenset(one.program.name for one in self.seen if one.program.text)

    def passed(self, seed: int, size: str) -> frozenset[str]:
        """The names of the programs up to its last one: kernels of them were measured, or none could be.

        Workloads that it has nothing of are not among them: they may be new.
        """
        missing, known = set(self.programs), {one.program.grouped for one in self.seen}
        found: set[str] = set()
        for number in range(_FAR if missing else 0):
            source = source_of(number, seed, size)
            if source.grouped in known or not source.workload:
                found.add(source.name)
            missing.discard(source.name)
            if not missing:
                break
        return frozenset(found) if not missing else self.programs

    def note_in(self, balance: Balance) -> None:
        """Count its kernels, by what they took."""
        for one in self.seen:
            balance.count(one.kernel, one.schedule.to_json(), bin_of(one.us))

    def kernels(self, targets: Sequence[Target] = ()) -> Iterator[tuple[str, Record, int | None]]:
        """Kernels, schedules and numbers of threads; where there are `targets`, only of these as they are now."""
        now = {(target.identity, target.fingerprint()) for target in targets}
        for one in self.seen:
            if not now or (one.identity, one.description) in now:
                yield one.kernel, one.schedule.to_json(), one.threads
