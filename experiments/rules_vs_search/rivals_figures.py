"""Figures of rules against search from the raw records. Nothing here measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cells import MEASURED, SCHEDULES, TUNE, VARIANTS, Cell, variant
from interleaved import Ratio, Samples, fastest_calls, noise_floor, ratio
from journal import Journal, Record
from marks import marks
from race import AGAIN
from rivals_settings import Study
from standings import THEIRS, Standing

BASE = variant("unfused", "default")
"""What speed-ups are over."""


@dataclass(frozen=True, slots=True)
class Row:
    """One program's figures."""

    program: str
    marks: tuple[str, ...]
    """What of its graph makes rules stop."""
    us: Mapping[str, float]
    """Median microseconds of a call, by variant."""
    against: Mapping[str, Standing]
    """Every other variant against the measured plan with tuned schedules."""
    against_tunes: Mapping[str, Mapping[str, Standing]]
    """The rules, schedules tuned, against the plans of `tune` without and with variants of the graph."""
    gain: Mapping[str, Ratio]
    """Time of the unfused plan under default schedules over that of each variant."""
    kernels: Mapping[str, int]
    """By cell."""
    seconds: Mapping[str, float]
    """Of making the plan, by cell."""
    noise: float
    """Share below which two times are not told apart; 0 where that was not measured."""
    faults: tuple[str, ...]

    def best(self, names: Iterable[str]) -> Standing | None:
        """The fastest of some variants; None if none was timed."""
        found = [self.against[name] for name in names if name in self.against]
        return min(found, key=lambda standing: standing.over.value, default=None)


def build_rows(programs: Iterable[str], journal: Journal, study: Study) -> list[Row]:
    """One row per program from the newest records."""
    return [_row(program, journal, study) for program in programs]


def _row(program: str, journal: Journal, study: Study) -> Row:
    made: dict[Cell, Record] = {}
    faults: list[str] = []
    for cell in study.cells:
        record = journal.latest(kind="plan", program=program, cell=cell.name)
        if record is not None and record["status"] == "ok":
            made[cell] = record
        faults += _faults(cell.name, record)
    rounds = _rounds(program, journal, study)
    by_work = _by_work(rounds)
    samples = {
        variant(cell.name, schedules): by_work[record["works"][schedules]]
        for cell, record in made.items()
        for schedules in SCHEDULES
        if record["works"][schedules] in by_work
    }
    again = rounds[0]["again"] if rounds else None
    noise = noise_floor(by_work[again], by_work[AGAIN]) if again in by_work and AGAIN in by_work else 0.0
    counted = journal.latest(kind="facts", program=program, status="ok")
    faults += [f"plan {work}: {reason}" for record in rounds for work, reason in record["faults"].items()]
    return Row(
        program=program,
        marks=tuple(marks(counted, study)) if counted else (),
        us={name: _median(found) for name, found in samples.items()},
        against={
            name: Standing(name, ratio(found, samples[MEASURED]), noise)
            for name, found in samples.items()
            if name != MEASURED and MEASURED in samples
        },
        against_tunes={
            ours: {
                name: Standing(name, ratio(samples[name], samples[ours]), noise)
                for name in study.rules
                if name in samples
            }
            for ours in (TUNE, VARIANTS)
            if ours in samples
        },
        gain={name: ratio(samples[BASE], found) for name, found in samples.items() if BASE in samples},
        kernels={cell.name: record["kernels"] for cell, record in made.items()},
        seconds={cell.name: record["seconds"] for cell, record in made.items()},
        noise=noise,
        faults=tuple(dict.fromkeys(faults)),
    )


def _faults(cell: str, record: Record | None) -> Iterable[str]:
    if record is None:
        return
    if record["status"] != "ok":
        yield f"{cell}: {record['error']}"
    for message in record.get("failed", ()):
        yield f"{cell}: a kernel failed: {message}"
    for note in (*record.get("space_notes", ()), *record.get("notes", ())):
        if note.startswith(("the space lacks", "no plan's answer")):
            yield f"{cell}: {note}"


def _rounds(program: str, journal: Journal, study: Study) -> list[Record]:
    """The newest record of each round, of those that timed the same plans as the newest of all."""
    newest = journal.latest(kind="round", program=program, status="ok")
    if newest is None:
        return []
    same = {"kind": "round", "program": program, "status": "ok", "of": newest["of"], "again": newest["again"]}
    found = (journal.latest(**same, round=index) for index in range(study.rounds))
    return [record for record in found if record is not None]


def _by_work(rounds: Sequence[Record]) -> dict[str, list[Samples]]:
    """The fastest call of each block, of the plans that every round has."""
    names = [name for name in (rounds[0]["samples"] if rounds else ()) if all(name in r["samples"] for r in rounds)]
    return {name: [fastest_calls(record["samples"][name]) for record in rounds] for name in names}


def _median(rounds: Sequence[Samples]) -> float:
    return float(np.median([np.median(block) for blocks in rounds for block in blocks]))


# ---- over programs ---------------------------------------------------------------------------------------------------


def mean(values: Sequence[float], draws: int = 2000) -> Ratio | None:
    """The geometric mean with a 95 % bootstrap interval over the programs; None for none."""
    if not values:
        return None
    logs = np.log(np.array(values, np.float64))
    rng = np.random.default_rng(0)
    drawn = logs[rng.integers(len(logs), size=(draws, len(logs)))].mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Ratio(float(np.exp(logs.mean())), float(np.exp(low)), float(np.exp(high)))


def marked(rows: Sequence[Row]) -> list[Row]:
    """Those whose graph has what makes rules stop."""
    return [row for row in rows if row.marks]


def against(rows: Sequence[Row], name: str) -> list[Standing]:
    """How one variant stands in each program in which it was timed."""
    return [row.against[name] for row in rows if name in row.against]


def best_rules(rows: Sequence[Row], study: Study) -> list[tuple[Row, Standing]]:
    """The fastest rule of each program, schedules tuned."""
    return [(row, best) for row in rows if (best := row.best(study.rules)) is not None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was found."""

    target: str
    found: str
    met: bool | None
    """None: not measured."""


def verdicts(rows: Sequence[Row], study: Study) -> list[Verdict]:
    """Every target."""
    found = best_rules(rows, study)
    raced, varied = (_against_tune(rows, ours) for ours in (TUNE, VARIANTS))
    return [
        _never_slower("the search", found),
        _never_slower("`tune`, which races the best plans of rules too,", raced),
        _never_slower("`tune` with graph variants", varied),
        *_means("measured", found, study),
        *_means("tune with graph variants", varied, study),
    ]


def _against_tune(rows: Sequence[Row], ours: str) -> list[tuple[Row, Standing]]:
    """The fastest rule of each program, schedules tuned, against a plan of `tune`."""
    found = [(row, row.against_tunes.get(ours)) for row in rows]
    return [(row, min(standings.values(), key=_over)) for row, standings in found if standings]


def _means(ours: str, found: Sequence[tuple[Row, Standing]], study: Study) -> list[Verdict]:
    marked_only = [pair for pair in found if pair[0].marks]
    return [
        _mean_verdict(ours, "all programs", found, study.target_all),
        _mean_verdict(ours, "the marked programs", marked_only, study.target_marked),
    ]


def _over(standing: Standing) -> float:
    return standing.over.value


def _never_slower(what: str, found: Sequence[tuple[Row, Standing]]) -> Verdict:
    slower = [f"`{row.program}` ({best.name}, {best.over.value:.2f})" for row, best in found if best.ahead == THEIRS]
    return Verdict(
        f"{what} is never slower than the fastest rule beyond the noise floor",
        f"slower in {len(slower)} of {len(found)}{': ' if slower else ''}{', '.join(slower)}",
        None if not found else not slower,
    )


def _mean_verdict(ours: str, which: str, found: Sequence[tuple[Row, Standing]], least: float) -> Verdict:
    value = mean([best.over.value for _, best in found])
    target = f"fastest rule / {ours} at least {least:g} over {which} (geometric mean)"
    if value is None:
        return Verdict(target, "no program", None)
    return Verdict(target, f"{value} over {len(found)}", value.value >= least)
