"""What a collection has done: its plan, and its measurements. Whatever is there survives kill -9 and is not done again.

`plan.jsonl` holds the settings, and each program with the kernels that were chosen of it, in the order in which they
were chosen. Measurements are in one database per number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from before import Before
from choosing import BOUNDS, Balance, Chosen, threads_of
from journal import Journal, Record
from programs import Source
from provenance import open_run

from autofuse.lower.schedule import Schedule
from autofuse.measurement.columns import write_columns
from autofuse.measurement.database import Database
from autofuse.measurement.exported import Exported
from autofuse.measurement.observations import pass_number
from autofuse.measurement.records import Measurement, Status, schedule_key
from autofuse.measurement.sources import KernelSource, ProgramSource
from autofuse.targets.base import Target

Key = tuple[str, str, int]
"""Kernel, schedule, pass."""


class State:
    """A folder. One process uses it at a time."""

    def __init__(self, folder: Path, settings: Record, here: Record, targets: Sequence[Target]) -> None:
        """Raises ArgumentError where the folder was begun with other settings or on another machine."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.before = Before.of(folder)
        self.journal = Journal(folder / "plan.jsonl")
        self.run = open_run(self.journal, settings, here)
        self._open = ExitStack()
        self.bases: dict[int | None, Database] = {}
        self.described: dict[int | None, str] = {}
        self._ended: dict[int | None, dict[Key, Status]] = {}
        for target in targets:
            threads = threads_of(target, targets)
            name = f"records-{threads}.db" if threads else "records.db"
            base = self._open.enter_context(Database(folder / name, target.identity))
            self.bases[threads] = base
            self.described[threads] = base.describe(target.fingerprint())
            self._ended[threads] = {_key(m): m.status for m in (record.measurement for record in base.records())}

    def __enter__(self) -> State:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    @property
    def programs(self) -> list[Record]:
        """Those that were tried, in their order."""
        return [record for record in self.journal.records if record["kind"] == "program"]

    @property
    def planned(self) -> int:
        """Passes of all kernels that were chosen."""
        return sum(kernel["passes"] for program in self.programs for kernel in program["kernels"])

    @property
    def ended(self) -> int:
        """Passes that were measured, or failed."""
        return sum(map(len, self._ended.values()))

    def balance(self) -> Balance:
        """Of what was chosen so far."""
        found = Balance()
        self.before.note_in(found)
        for record in self.programs:
            found.note(Chosen(**kernel) for kernel in record["kernels"])
        return found

    def plan(self, number: int, source: Source, **entries: Any) -> None:
        """Note a program with what was chosen of it, or why nothing could be."""
        self.journal.append({"kind": "program", "number": number, **asdict(source), **entries})

    def waits(self, kernel: Chosen, number: int) -> bool:
        """Whether a pass of a kernel is to be made: it was not, and no earlier one failed."""
        ended = self._ended[kernel.threads]
        schedule = schedule_text(kernel)
        before = [ended.get((kernel.kernel, schedule, earlier)) for earlier in range(1, number)]
        return number <= kernel.passes and (kernel.kernel, schedule, number) not in ended and {*before} <= {"ok"}

    def add(self, program: Record, measured: Sequence[tuple[Chosen, int, Measurement]]) -> None:
        """Keep measurements of a program's kernels: (kernel, pass, measurement)."""
        whole = program["whole"]
        about = ProgramSource(
            program["name"],
            program["grouped"],
            program["family"],
            program["text"] if whole else "",
            {"classes": BOUNDS.classes} if whole else {},
        )
        for threads, base in self.bases.items():
            here = [(kernel, number, made) for kernel, number, made in measured if kernel.threads == threads]
            base.keep([KernelSource(k.kernel, k.text, k.kind, program["name"]) for k, _, _ in here], [about])
            base.add_all([made for _, _, made in here])
            self._ended[threads] |= {(k.kernel, schedule_text(k), n): made.status for k, n, made in here}

    def exported(self) -> Iterator[Exported]:
        """All records, those of the file that this carries on from first."""
        yield from self.before.exported()
        for base in self.bases.values():
            yield from base.exported()

    @property
    def counted(self) -> tuple[int, int]:
        """(kernels under a schedule that were chosen, programs that they are of), with those of before."""
        kernels = sum(len(program["kernels"]) for program in self.programs) + len(self.before.seen)
        return kernels, sum(bool(program["kernels"]) for program in self.programs) + len(self.before.programs)

    @property
    def spaces(self) -> int:
        """Programs of which every kernel was chosen, with those of before."""
        return sum(program["whole"] for program in self.programs) + len(self.before.whole)

    def write(self, path: Path) -> int:
        """All records in columns; how many."""
        return write_columns(path, self.exported())


def schedule_text(kernel: Chosen) -> str:
    """As records name a schedule."""
    return schedule_key(Schedule.from_json(kernel.schedule))


def _key(m: Measurement) -> Key:
    return m.kernel, schedule_key(m.schedule), pass_number(m.policy)
