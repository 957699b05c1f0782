"""Figures of search quality from the raw records. Nothing here measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from interleaved import Ratio, Samples, fastest_calls, noise_floor, ratio
from journal import Journal, Record
from quality_settings import Study
from race import AGAIN
from steps import median_times, name_of, searched, total

SUM, END = "sum of kernels", "end to end"
"""What a plan is judged by."""


@dataclass(frozen=True, slots=True)
class Space:
    """One program's space, measured and enumerated."""

    nodes: int
    atoms: int
    candidates: int
    classes: int
    kernels: int
    """Kernels measured: the classes, and what they are without the outputs that they may leave out."""
    failed: int
    """Of those."""
    partitions: int
    complete: bool
    """Whether these are all within the bound on recomputation."""
    seconds: float
    """Of enumerating."""
    best_us: float
    """The smallest sum of measured kernels."""
    exact_gap: float
    """How far the exact solver's choice at the measured prices is from that, as a share."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What one search chose for one program."""

    name: str
    policy: str
    share: float | None
    """Measurements that it was allowed, as a share of the classes; None for those that measure nothing."""
    seed: int | None
    measured: float
    """Share of the classes that it measured."""
    by_sum: Ratio
    """The sum of its kernels over the smallest one, paired by the rounds that measured them."""
    over: Ratio | None
    """Its time end to end over that of the fastest plan; None where that was not timed."""
    kernels: int

    @property
    def gap(self) -> float:
        """By how much the sum of its kernels exceeds the smallest one, as a share."""
        return self.by_sum.value - 1.0

    def distance(self, by: str) -> float | None:
        """From the best, as a share; None where that was not measured."""
        if by == SUM:
            return self.gap
        return None if self.over is None else self.over.value - 1.0

    def near(self, by: str, gap: float, noise: float | None) -> bool:
        """Whether the distance is at most `gap`, or could as well be none.

        Sums have their own noise: the lower half of their interval. That of times end to end is `noise`.
        """
        distance = self.distance(by)
        floor = self.by_sum.value / self.by_sum.low - 1.0 if by == SUM else noise or 0.0
        return distance is not None and distance <= max(gap, floor)


@dataclass(frozen=True, slots=True)
class Row:
    """One program's figures."""

    program: str
    space: Space | None
    choices: tuple[Choice, ...]
    noise: float | None
    """Share below which two times end to end are not told apart."""
    fastest: str
    """The plans that are the fastest end to end, by name."""
    same: Record | None
    """The comparison of two plans that were tuned from the same records."""
    faults: tuple[str, ...]

    def by_policy(self, policy: str) -> Choice | None:
        """The choice of a policy that measures nothing."""
        return next((choice for choice in self.choices if choice.policy == policy and choice.share is None), None)

    def within(self, share: float) -> list[Choice]:
        """Of each seed the measuring search that was allowed most, of those that measured at most `share`."""
        found: dict[int | None, Choice] = {}
        tuned = (choice for choice in self.choices if choice.share is not None and choice.measured <= share)
        for choice in sorted(tuned, key=lambda choice: choice.share or 0.0):
            found[choice.seed] = choice
        return list(found.values())


def build_rows(programs: Iterable[str], journal: Journal, study: Study) -> list[Row]:
    """One row per program from the newest records."""
    return [_row(program, journal, study) for program in programs]


def _row(program: str, journal: Journal, study: Study) -> Row:
    newest = [journal.latest(kind=kind, program=program) for kind in ("space", "partitions", "level")]
    partitions, level = (journal.latest(kind=kind, program=program, status="ok") for kind in ("partitions", "level"))
    spaces = [journal.latest(kind="space", program=program, round=n, status="ok") for n in range(study.space_rounds)]
    measured = [space for space in spaces if space is not None]
    faults = [f"{record['kind']}: {record['error']}" for record in newest if record and record["status"] != "ok"]
    plans = {} if level is None else {name: plan for name, plan in level["plans"].items() if "work" in plan}
    sums = {name: total(plan) for name, plan in plans.items()}
    best = min((name for name in sums if _is_reference(name)), key=lambda name: sums[name], default=None)
    rounds = [] if level is None else _rounds(program, journal, study, level)
    samples = _samples(rounds)
    again = samples.pop(AGAIN, None)
    fastest = min(samples, key=lambda work: _median(samples[work]), default=None)
    source = rounds[0]["again"] if rounds else None
    found = _Found(plans, samples, fastest)
    return Row(
        program=program,
        space=None if best is None or not measured or not partitions else _space(measured, partitions, plans, best),
        choices=() if best is None else tuple(_choices(program, journal, study, found, best)),
        noise=None if again is None or source not in samples else noise_floor(samples[source], again),
        fastest=", ".join(name for name, plan in plans.items() if fastest == plan["work"] and _is_named(name)),
        same=journal.latest(kind="same", program=program),
        faults=tuple(dict.fromkeys([*faults, *_faults(program, journal, study, level, rounds)])),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    plans: Mapping[str, Record]
    samples: Mapping[str, list[Samples]] = field(repr=False)
    fastest: str | None


def _is_reference(name: str) -> bool:
    """Whether a plan is one of those that enumeration and the exact solver found."""
    return name == "exact" or name.startswith("best ")


def _is_named(name: str) -> bool:
    """Whether a plan is named where the fastest are: one per policy is enough."""
    return "seed" not in name


def _rounds(program: str, journal: Journal, study: Study, level: Record) -> list[Record]:
    found = (
        journal.latest(kind="round", program=program, round=index, of=level["files"], status="ok")
        for index in range(study.rounds)
    )
    return [record for record in found if record is not None]


def _samples(rounds: Sequence[Record]) -> dict[str, list[Samples]]:
    """The fastest call of each block by work, of the works that every round has."""
    names = [name for name in (rounds[0]["samples"] if rounds else ()) if all(name in r["samples"] for r in rounds)]
    return {name: [fastest_calls(record["samples"][name]) for record in rounds] for name in names}


def _median(rounds: Sequence[Samples]) -> float:
    return float(np.median([np.median(block) for blocks in rounds for block in blocks]))


def _space(spaces: Sequence[Record], partitions: Record, plans: Mapping[str, Record], best: str) -> Space:
    space, times = spaces[0], median_times(spaces)
    return Space(
        nodes=space["nodes"],
        atoms=space["atoms"],
        candidates=space["candidates"],
        classes=len(space["classes"]),
        kernels=len(times),
        failed=sum(us is None for us in times.values()),
        partitions=partitions["count"],
        complete=partitions["complete"],
        seconds=partitions["seconds"],
        best_us=total(plans[best]),
        exact_gap=_sums_over(plans.get("exact", plans[best]), plans[best]).value - 1.0,
    )


def _sums_over(plan: Record, best: Record) -> Ratio:
    """The sum of one plan's kernels over that of another, paired by round."""
    one, other = ([[[sum(us)]] for us in zip(*(times for _, times in p["kernels"]), strict=True)] for p in (plan, best))
    return ratio(one, other)


def _choices(program: str, journal: Journal, study: Study, found: _Found, best: str) -> Iterable[Choice]:
    for search in searched(study):
        name = name_of(search)
        plan = found.plans.get(name)
        made = journal.latest(kind="plan", program=program, status="ok", **search)
        if plan is None or made is None:
            continue
        certificate = made["certificate"]
        over = None
        if plan["work"] in found.samples and found.fastest in found.samples:
            over = ratio(found.samples[plan["work"]], found.samples[found.fastest])
        yield Choice(
            name=name,
            policy=search["policy"],
            share=search["share"],
            seed=search["tuning_seed"],
            measured=certificate["measured"] / certificate["classes"] if certificate else 0.0,
            by_sum=_sums_over(plan, found.plans[best]),
            over=over,
            kernels=made["kernels"],
        )


def _faults(
    program: str, journal: Journal, study: Study, level: Record | None, rounds: Sequence[Record]
) -> Iterable[str]:
    for search in searched(study):
        made = journal.latest(kind="plan", program=program, **search)
        if made and made["status"] != "ok":
            yield f"{name_of(search)}: {made['error']}"
    for name, plan in (level["plans"] if level else {}).items():
        if "fault" in plan:
            yield f"{name}: {plan['fault']}"
    for record in rounds:
        yield from (f"work {work}: {reason}" for work, reason in record["faults"].items())


# ---- targets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the measuring search comes as near to the best as it should."""

    share: float
    """With at most this share of the classes measured."""
    gap: float
    """At most this far from the best, or no further than the noise floor."""
    by: str
    """`SUM` or `END`."""
    runs: int
    """Programs and seeds that were judged."""
    wanted: int
    """Programs and seeds that there are: a run without such a plan is not judged, and does not count as near."""
    within: int
    """Of those, as near as they should be."""
    worst: str
    """The one furthest away, in words."""

    @property
    def met(self) -> bool:
        """Whether all runs are near enough; of nothing measured nothing is claimed."""
        return self.runs > 0 and self.within == self.wanted


def verdicts(rows: Sequence[Row], study: Study) -> list[Verdict]:
    """Every target, by both measures."""
    pairs = zip(study.target_shares, study.target_gaps, strict=True)
    return [_verdict(rows, study, share, gap, by) for share, gap in pairs for by in (SUM, END)]


def _verdict(rows: Sequence[Row], study: Study, share: float, gap: float, by: str) -> Verdict:
    found: list[tuple[float, bool, str]] = []
    for row in rows:
        for choice in row.within(share):
            distance = choice.distance(by)
            if distance is None:
                continue
            near = choice.near(by, gap, row.noise)
            found.append((distance, near, f"{row.program}, seed {choice.seed}: {distance:+.1%}"))
    worst = max(found, default=(0.0, True, "-"))[2]
    wanted = len(study.tuning_seeds) * sum(row.space is not None for row in rows)
    return Verdict(share, gap, by, len(found), wanted, sum(near for _, near, _ in found), worst)


# ---- quality against measurements ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """The search with one allowance of measurements, over programs and seeds."""

    share: float
    """Allowed, as a share of the classes."""
    runs: int
    measured: tuple[float, float, float]
    """Share of the classes that was measured: quartile, median, quartile."""
    gap: tuple[float, float, float]
    """Distance of the sum from the smallest one: the same."""
    worst: float
    """The largest distance."""


def curve(rows: Sequence[Row], study: Study) -> list[Point]:
    """One point per allowance, in order; without those that nothing was measured for."""
    points: list[Point] = []
    for share in sorted(study.trials):
        found = [choice for row in rows for choice in row.choices if choice.share == share]
        if found:
            gaps = [choice.gap for choice in found]
            measured = _quartiles([choice.measured for choice in found])
            points.append(Point(share, len(found), measured, _quartiles(gaps), max(gaps)))
    return points


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float(low), float(middle), float(high)


# ---- search time -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Searched:
    """How long `compile` takes for one workload, and how much it looks at."""

    program: str
    seconds: tuple[float, float, float]
    """Least, median and most over processes."""
    nodes: int
    atoms: int
    candidates: int
    classes: int
    cut_off: int
    kernels: int


def search_times(workloads: Iterable[str], journal: Journal, study: Study) -> list[Searched]:
    """The workloads that were timed, smallest graph first."""
    found: list[Searched] = []
    for program in workloads:
        records = [
            record
            for index in range(study.compile_repeats)
            if (record := journal.latest(kind="compile", program=program, round=index, status="ok"))
        ]
        if records:
            seconds = sorted(record["seconds"] for record in records)
            sizes = {name: records[-1][name] for name in ("nodes", "atoms", "candidates", "classes", "cut_off")}
            spread = (seconds[0], float(np.median(seconds)), seconds[-1])
            found.append(Searched(program, spread, **sizes, kernels=records[-1]["kernels"]))
    return sorted(found, key=lambda searched: searched.nodes)
