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
        """Facts and plans of all programs, then rounds of processes, so that slow drifts meet all programs."""
        for program in programs:
            self._once.step(key(program, "facts"), {"file": str(program.file)})
            for cell in self._study.cells:
                self._plan(program, cell)
        for index in range(self._study.rounds):
            for program in programs:
                self._race(program, index)

    def _plan(self, program: Workload, cell: Cell) -> None:
        study = self._study
        stem = f"{program.name}-{study.size}-{cell.name.replace(', ', '-').replace(' ', '-').replace(':', '-')}"
        task = {"file": str(program.file), "as": asdict(cell), "rules": study.rules, "budget_s": study.budget_s}
        task |= {"max_trials": study.max_trials, "tuning_seed": study.tuning_seed}
        task["made"] = self._made(program, cell)
        task["plans"] = {schedules: f"{stem}-{schedules}.json" for schedules in SCHEDULES}
        self._once.step(plan_key(program, cell), task)

    def _made(self, program: Workload, until: Cell) -> Record:
        """The records of the cells before one, by mark; of those with the same mark the first."""
        found: Record = {}
        for cell in self._study.cells:
            if cell == until:
                break
            made = self._once.journal.latest(**plan_key(program, cell))
            if self._once.holds(made) and made and made.get("mark"):
                found.setdefault(made["mark"], made)
        return found

    def _race(self, program: Workload, index: int) -> None:
        """Every distinct plan once, and the measured one again."""
        works: dict[str, str] = {}
        again = None
        for cell in self._study.cells:
            made = self._once.journal.latest(**plan_key(program, cell))
            if not made or made["status"] != "ok":
                continue
            for schedules, path in zip(SCHEDULES, made["files"], strict=True):
                works.setdefault(made["works"][schedules], path)
            if cell.name == MEASURED or again is None:
                again = made["works"]["tuned"]
        if again is None:
            return
        marks = {work: self._once.mark(path) for work, path in works.items()}
        what: Record = {**key(program, "round"), "round": index, "again": again, "of": marks}
        study = self._study
        task = {"file": str(program.file), "works": works, "blocks": study.blocks}
        self._once.step(what, {**task, "block_seconds": study.block_ms / 1e3})


def plan_key(program: Workload, cell: Cell) -> Record:
    """What tells the record of a cell's plans from others."""
    return {**key(program, "plan"), "cell": cell.name}
