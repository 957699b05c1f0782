"""What the study of search quality measures, in which order."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from journal import Record
from once import Once, key
from provenance import commit
from quality_settings import Study
from sameness import compared

from autofuse.measurement.workloads import Workload
from autofuse.search.plugins.registry import MEASURED

REPLAYS = 3
"""The first run makes the records, the others repeat the search from them."""


def searched(study: Study) -> list[Record]:
    """The searches whose plans are held against the best: policy, share of the classes, seed."""
    fixed = [{"policy": policy, "share": None, "tuning_seed": None} for policy in study.policies]
    tuned = [
        {"policy": MEASURED, "share": share, "tuning_seed": seed}
        for share in study.trials
        for seed in study.tuning_seeds
    ]
    return fixed + tuned


def name_of(search: Mapping[str, object]) -> str:
    """What a search's plan is called: `greedy`, or `measured 0.3 seed 7`."""
    if search["share"] is None:
        return str(search["policy"])
    return f"{search['policy']} {search['share']:g} seed {search['tuning_seed']}"


def total(plan: Record) -> float:
    """The sum of the median times of a levelled plan's kernels."""
    return sum(statistics.median(us) for _, us in plan["kernels"])


def median_times(spaces: Sequence[Record]) -> dict[str, float | None]:
    """The median time of every kernel of a space over the rounds that measured it; None for one that ever failed."""
    found: dict[str, float | None] = {}
    for digest in spaces[0]["kernels"]:
        times = [space["kernels"][digest]["us"] for space in spaces]
        found[digest] = None if None in times else statistics.median(times)
    return found


class Steps:
    """The records of one run."""

    def __init__(self, once: Once, study: Study) -> None:
        """Nothing is measured yet."""
        self._once, self._study = once, study
        self._journal = once.journal

    def make_all(self, programs: Sequence[Workload], workloads: Sequence[Workload]) -> None:
        """Everything, in order; what holds is not made again."""
        for program in programs:
            space = self._exhaust(program)
            if space is not None:
                self._search(program, space)
        for index in range(self._study.rounds):
            for program in programs:
                self._race(program, index)
        for program in programs:
            self._replay(program)
        for index in range(self._study.compile_repeats):
            for workload in workloads:
                self._once.step({**key(workload, "compile"), "round": index}, {"file": str(workload.file)})

    def _exhaust(self, program: Workload) -> Record | None:
        """The space, measured whole and its partitions met; None if that could not be done."""
        study = self._study
        spaces: list[Record] = []
        for index, database in enumerate(self._databases(program)):
            what = {**key(program, "space"), "round": index}
            spaces.append(self._once.step(what, {**self._task(program), "db": database}))
            if spaces[-1]["status"] != "ok":
                return None
        us = median_times(spaces)
        bounds = {"most_partitions": study.most_partitions, "repeats": study.repeats, "top": study.top}
        done = self._once.step(key(program, "partitions"), {**self._task(program), **bounds, "us": us})
        return {**spaces[0], "plans": done["plans"]} if done["status"] == "ok" else None

    def _search(self, program: Workload, space: Record) -> None:
        """Every search's plan, then all plans made comparable."""
        plans = dict(space["plans"])
        for search in searched(self._study):
            name = name_of(search)
            plan = f"{self._stem(program)}-{name.replace(' ', '-').replace(':', '-')}.json"
            task = {**self._task(program), "plan": plan, "budget_s": self._study.budget_s}
            if search["share"] is not None:
                task["trials"] = self._trials(search["share"], space)
            if self._once.step({**key(program, "plan"), **search}, task)["status"] == "ok":
                plans[name] = plan
        files = {name: self._once.mark(path) for name, path in plans.items()}
        task = {**self._task(program), "dbs": self._databases(program), "plans": plans}
        self._once.step({**key(program, "level"), "of": files}, task)

    def _race(self, program: Workload, index: int) -> None:
        level = self._journal.latest(**key(program, "level"))
        if not level or level["status"] != "ok" or not level["works"]:
            return
        sums = {plan["work"]: total(plan) for plan in level["plans"].values() if "work" in plan}
        again = min(sums, key=lambda work: sums[work])
        study = self._study
        task = {"works": level["works"], "blocks": study.blocks, "block_seconds": study.block_ms / 1e3}
        what = {**key(program, "round"), "round": index, "again": again, "of": level["files"]}
        self._once.step(what, {**self._task(program), **task})

    def _replay(self, program: Workload) -> None:
        """One search from nothing, and again from its records in other processes; then the plans are compared."""
        space = self._journal.latest(**key(program, "space"), status="ok")
        if space is None:
            return
        records = f"{self._stem(program)}-replay.db"
        plans = [f"{self._stem(program)}-replay-{number}.json" for number in range(REPLAYS)]
        task = {**self._task(program), "policy": MEASURED, "tuning_seed": 0, "budget_s": self._study.budget_s}
        task["trials"] = self._trials(self._study.replay_trials, space)
        first = {**key(program, "replay"), "number": 0}
        if not self._once.holds(self._journal.latest(**first)):
            (self._once.folder / records).unlink(missing_ok=True)
        made = [self._once.step(first, {**task, "db": records, "plan": plans[0]})]
        for number in range(1, REPLAYS):
            if made[-1]["status"] != "ok":
                return
            what = {**key(program, "replay"), "number": number, "of": made[0]["files"]}
            made.append(self._once.step(what, {**task, "records": records, "plan": plans[number]}))
        what = {**key(program, "same"), "of": [record.get("files") for record in made[1:]]}
        if made[-1]["status"] == "ok" and not self._journal.latest(**what):
            one, other = ((self._once.folder / plan).read_text() for plan in plans[1:])
            self._journal.append({**what, "status": "ok", "commit": commit(), **compared(one, other)})

    def _trials(self, share: float, space: Record) -> int:
        """Measurements for a share of the classes."""
        return max(1, round(share * len(space["classes"])))

    def _task(self, program: Workload) -> Record:
        return {"file": str(program.file), "stem": self._stem(program)}

    def _databases(self, program: Workload) -> list[str]:
        """The files of the program's measurements, one of each round, which the steps that are no search share."""
        return [f"{self._stem(program)}-{index}.db" for index in range(self._study.space_rounds)]

    def _stem(self, program: Workload) -> str:
        return f"{program.name}-{self._study.size}"
