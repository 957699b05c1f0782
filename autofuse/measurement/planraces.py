"""Whole plans timed against one another in the worker process, every race recorded at once."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from autofuse.ir.graph import Graph
from autofuse.lazydataclass import asdict, dataclass, replace
from autofuse.lower.schedule import Schedule
from autofuse.measurement.database import Database
from autofuse.measurement.inputvalues import InputValues
from autofuse.measurement.racing import NO_TIME, Terms
from autofuse.measurement.records import UNKNOWN_VALUES, Measurement
from autofuse.measurement.workerpool import Outcome
from autofuse.plan import codec
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import COLD_POLICY, MEASUREMENT_POLICY

RACE = "race-"
RACE_POLICIES = {MEASUREMENT_POLICY: f"{RACE}fastest/1", COLD_POLICY: f"{RACE}{COLD_POLICY}"}
"""Of samples of whole plans that ran against each other, by how kernels are timed beside them."""

_BUILD_S = 120.0
"""Most time for building one plan."""


@dataclass(frozen=True, slots=True)
class PlanTime:
    """What timing one whole plan beside others gave."""

    samples_us: tuple[float, ...]
    """Microseconds of the fastest call of each block that the plan was in; empty if it could not be run."""
    problem: str = ""
    """Why it could not be run, or what is wrong with its answer."""

    @property
    def is_unrun(self) -> bool:
        """Whether there was no time to run it."""
        return not self.samples_us and self.problem == NO_TIME

    @property
    def us(self) -> float:
        """Microseconds of the fastest call of all, which the more blocks, the less it is; infinite without one."""
        return min(self.samples_us, default=math.inf)


class Runner(Protocol):
    """Runs plans in the worker."""

    def __call__(self, payload: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], build_s: float) -> Outcome:
        """`arrays`: constants of the plans. `build_s`: most time for building them."""
        ...


class PlanRaces:
    """Races of plans for one program on given arguments."""

    def __init__(
        self,
        graph: Graph,
        values: InputValues,
        database: Database,
        code_version: str,
        run: Runner,
        policy: str = MEASUREMENT_POLICY,
    ) -> None:
        """`graph`: the one whose constants the worker has. `values`: of its arguments, which decide the answers.

        `policy`: how `run` takes times.
        """
        self._graph, self._values = graph, values
        self._database, self._code_version = database, code_version
        self._run, self._policy = run, RACE_POLICIES[policy]

    def times(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime]:
        """Time whole plans in interleaved blocks: the n-th samples of all plans were taken one right after another.

        The graphs of plans may differ from the worker's, if they compute the same results of the same arguments. A race
        is recorded, and not run again on the same terms and arguments. A plan that crashes or hangs is found by running
        each alone; the others are then timed without it. Plans that fail only together, perhaps for want of memory, are
        timed one after another. Neither is recorded, nor is a race that its limit cut short.
        """
        entries = _entries(plans, terms, self._values.of_arguments())
        records = [self._find(entry) for entry in entries]
        if all(records):
            return [PlanTime(found[0].samples_us, found[0].message) for found in records]
        outcome = self._time_plans(plans, terms)
        if outcome.status != "ok":
            return self._race_apart(plans, terms)
        together = _plan_times(outcome)
        if not outcome.data["cut_short"]:
            self._record_race(entries, together)
        return together

    def _find(self, entry: str) -> list[Measurement]:
        records = self._database.find(entry, policy=self._policy, code_version=self._code_version)
        measured = [record.measurement for record in records]
        return [m for m in measured if m.input_values != UNKNOWN_VALUES]

    def _record_race(self, entries: Sequence[str], times: Sequence[PlanTime]) -> None:
        records = [
            Measurement(
                kernel=entry,
                schedule=Schedule(),
                signature=f"plan {number} of {len(times)}",
                policy=self._policy,
                code_version=self._code_version,
                status="ok",
                message=time.problem,
                samples_us=time.samples_us,
            )
            for number, (entry, time) in enumerate(zip(entries, times, strict=True), 1)
        ]
        self._database.add_all(records)

    def _race(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime] | None:
        """All plans together; None if one of them crashes or hangs so."""
        outcome = self._time_plans(plans, terms)
        return _plan_times(outcome) if outcome.status == "ok" else None

    def _race_apart(self, plans: Sequence[PlanDocument], terms: Terms) -> list[PlanTime]:
        """What is to blame for a race that failed is found by running each plan alone; the others run again."""
        alone = [self._alone(plan, replace(terms, blocks=1)) for plan in plans]
        sound = [plan for plan, time in zip(plans, alone, strict=True) if time.samples_us]
        together = self._race(sound, terms) if 0 < len(sound) < len(plans) else None
        timed = iter(together or [self._alone(plan, terms) for plan in sound])
        return [next(timed) if time.samples_us else time for time in alone]

    def _alone(self, plan: PlanDocument, terms: Terms) -> PlanTime:
        outcome = self._time_plans([plan], terms)
        if outcome.status == "ok":
            return _plan_times(outcome)[0]
        return PlanTime((), f"{outcome.status}: {outcome.message}")

    def _time_plans(self, plans: Sequence[PlanDocument], terms: Terms) -> Outcome:
        encoded = [codec.encode(plan) for plan in plans]
        foreign = [one for plan, one in zip(plans, encoded, strict=True) if plan.graph is not self._graph]
        arrays = {f"@{name}": array for one in foreign for name, array in one.constants.items()}
        texts = [codec.to_text(one, None) for one in encoded]
        payload = {"plans": texts, **asdict(terms)}
        return self._run(payload, arrays, _BUILD_S * len(plans))


def _plan_times(outcome: Outcome) -> list[PlanTime]:
    pairs = zip(outcome.data["samples_us"], outcome.data["problems"], strict=True)
    return [PlanTime(tuple(float(s) for s in samples), problem) for samples, problem in pairs]


def _entries(plans: Sequence[PlanDocument], terms: Terms, inputs: str) -> list[str]:
    """Digests of the plans' places in a race: of the work of all of them, the arguments, and how they are timed."""
    works = [
        [
            plan.graph_digest,
            [[node.op, [v.name for v in node.inputs], [v.name for v in node.outputs]] for node in plan.graph.nodes],
            [[kernel.nodes, kernel.outputs, kernel.schedule.to_json()] for kernel in plan.kernels],
            [[launch.kernel, launch.group_place, *(["apart"] if launch.apart else [])] for launch in plan.order],
            plan.writebacks,
            *([] if plan.replayed else ["each"]),
        ]
        for plan in plans
    ]
    text = json.dumps([works, terms.stored(), inputs], sort_keys=True)
    return [hashlib.sha256(f"{number} {text}".encode()).hexdigest() for number in range(len(plans))]
