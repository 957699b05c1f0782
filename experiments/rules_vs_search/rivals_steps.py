"""What the study of rules against search measures, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from cells import MEASURED, SCHEDULES, Cell
from journal import Record
from once import Once, key
from rivals_settings import Study

from autofuse.measurement.workloads import Workload


class Steps:
    """The records of one run."""

    def __init__(self, once: Once, study: Study) -> None:
        """Nothing is measured yet."""
        self._once, self._study = once, study

    def make_all(self, programs: Sequence[Workload]) -> None:
        """One program after the other, whole: its facts, its plans, and the rounds that time them.

        A program whose rounds are recorded is done, even where the files of its plans are gone.
        """
        for program in programs:
            if self._is_done(program):
                continue
            facts = self._once.step(key(program, "facts"), {"file": str(program.file)})
            if facts["status"] != "ok":
                continue
            if not any(self._once.holds(self._journal(program, cell)) for cell in self._study.cells):
                (self._once.folder / self._database(program)).unlink(missing_ok=True)  # of another run
            for cell in self._study.cells:
                self._plan(program, cell, facts["operations"])
            for task, what in self._races(program):
                self._once.step(what, task)

    def _is_done(self, program: Workload) -> bool:
        """Whether every cell has a plan, and all rounds have timed these."""
        made = [self._once.journal.latest(**key(program, "facts"))]
        made += [self._journal(program, cell) for cell in self._study.cells]
        if not all(record and record["status"] == "ok" for record in made):
            return False
        rounds = [self._once.journal.latest(**what) for _, what in self._races(program)]
        return all(record and record["status"] == "ok" for record in rounds)

    def _journal(self, program: Workload, cell: Cell) -> Record | None:
        """The newest record of a cell's plans."""
        return self._once.journal.latest(**plan_key(program, cell))

    def _database(self, program: Workload) -> str:
        """The file of the program's measurements, which its plans share."""
        return f"{program.name}-{self._study.size}.db"

    def _plan(self, program: Workload, cell: Cell, operations: int) -> None:
        study = self._study
        stem = f"{program.name}-{study.size}-{cell.name.replace(', ', '-').replace(' ', '-').replace(':', '-')}"
        task: Record = {"file": str(program.file), "as": asdict(cell), "rules": study.rules, "budget_s": study.budget_s}
        task["max_trials"] = study.max_trials + round(study.trials_per_operation * operations)
        task["tuning_seed"], task["db"] = study.tuning_seed, self._database(program)
        task["made"] = self._made(program, cell)
        task["plans"] = {schedules: f"{stem}-{schedules}.json" for schedules in SCHEDULES}
        self._once.step(plan_key(program, cell), task)

    def _made(self, program: Workload, until: Cell) -> Record:
        """The records of the cells before one, by mark; of those with the same mark the first."""
        found: Record = {}
        for cell in self._study.cells:
            if cell == until:
                break
            made = self._journal(program, cell)
            if self._once.holds(made) and made and made.get("mark"):
                found.setdefault(made["mark"], made)
        return found

    def _races(self, program: Workload) -> list[tuple[Record, Record]]:
        """Task and key of each round: every distinct plan once, and the measured one again."""
        works: dict[str, str] = {}
        marks: dict[str, str] = {}
        again = None
        for cell in self._study.cells:
            made = self._journal(program, cell)
            if not made or made["status"] != "ok":
                continue
            for schedules, (path, mark) in zip(SCHEDULES, made["files"].items(), strict=True):
                if works.setdefault(made["works"][schedules], path) == path:
                    marks[made["works"][schedules]] = mark
            if cell.name == MEASURED or again is None:
                again = made["works"]["tuned"]
        if again is None:
            return []
        study = self._study
        task = {"file": str(program.file), "works": works, "blocks": study.blocks}
        task["block_seconds"] = study.block_ms / 1e3
        what: Record = {**key(program, "round"), "again": again, "of": marks}
        return [(task, {**what, "round": index}) for index in range(study.rounds)]


def plan_key(program: Workload, cell: Cell) -> Record:
    """What tells the record of a cell's plans from others."""
    return {**key(program, "plan"), "cell": cell.name}
