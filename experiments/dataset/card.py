"""The card of a data set: what it is, how it was made, and how far its numbers can be trusted."""

from __future__ import annotations

import datetime
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from choosing import BINS, RANGE_US, WHOLE
from collect import BUSY
from state import State

from autofuse.measurement.observations import Observation, observations
from autofuse.plan.identity import Identity, identity_to_json


def card(state: State, file: Path) -> str:
    """In Markdown."""
    seen = observations(state.exported())
    run, machine = state.run, state.run["machine"]
    nbytes = file.stat().st_size
    passes = sum(len(one.passes) for one in seen)
    whole = sorted({one.program.name for one in seen if one.program.text})
    lines = [
        f"# {file.name}",
        "",
        f"{len(seen)} kernels under a schedule, of {len({one.program.name for one in seen})} programs, in {passes}"
        f" passes; {nbytes / 1e6:.2f} MB, {nbytes / max(len(seen), 1):.0f} bytes a record.",
        "",
        f"Measured {_days(made.created_ns for one in seen for made in one.passes)}; written by `{run['command']}`,"
        f" begun {run['begun']}, commit {run['commit']}. Machine: {machine['model']},"
        f" {machine['cores']} cores, {machine['system']}; NumPy {machine['numpy']}, {machine['blas']}.",
        "",
        "What a record holds, how times were taken and answers checked, licence and uses: [README.md](README.md).",
        "",
        *_counted("family", (one.program.family for one in seen)),
        *_counted("kind", (one.source.kind for one in seen)),
        *_counted("threads", (str(one.threads or "-") for one in seen)),
        *_counted("schedule", ("other" if one.schedule.to_json() else "default" for one in seen)),
        *_counted("status", (one.status for one in seen)),
        *_counted("passes", (str(len(one.passes)) for one in seen)),
        *_times(seen),
        *_noise(seen),
        f"Spaces measured whole, on all threads, {len(whole)} of {WHOLE} wanted: {', '.join(whole) or 'none'}.",
        "",
        "## Machines",
        "",
        *_machines(seen),
    ]
    return "\n".join(lines) + "\n"


def _machines(seen: Sequence[Observation]) -> list[str]:
    """Each with its records, and when they were made: what was added later is of a later code generator."""
    of: dict[Identity, list[Observation]] = {}
    for one in seen:
        of.setdefault(one.identity, []).append(one)
    return [
        f"- {len(some)} records, {_days(made.created_ns for one in some for made in one.passes)}{_uncalibrated(some)}:"
        f" {identity_to_json(identity)}"
        for identity, some in of.items()
    ]


def is_uncalibrated(description: str) -> bool:
    """Whether a CPU was described by defaults in place of measured numbers; no for one that was not described."""
    return bool(description) and json.loads(description)["calibration"]["source"] == "defaults"


def _uncalibrated(seen: Sequence[Observation]) -> str:
    count = sum(one.identity.backend == "cpu" and is_uncalibrated(one.description) for one in seen)
    return f", {count} of them on a device that was not calibrated" if count else ""


def _days(created_ns: Iterable[int]) -> str:
    """The first and the last day."""
    days = sorted({datetime.datetime.fromtimestamp(ns / 1e9, datetime.UTC).date().isoformat() for ns in created_ns})
    if not days:
        return "never"
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


def _counted(title: str, values: Iterable[str]) -> list[str]:
    counts = sorted(Counter(values).items())
    return [f"| {title} | records |", "|---|---|", *(f"| {name} | {count} |" for name, count in counts), ""]


def _times(seen: Sequence[Observation]) -> list[str]:
    """How measured times are spread."""
    low, high = map(math.log, RANGE_US)
    edges = [math.exp(low + (high - low) * n / (BINS // 2)) for n in range(BINS // 2 + 1)]
    measured = [one.us for one in seen if one.status == "ok"]
    rows = [
        f"| {begin:.3g} - {end:.3g} | {sum(begin <= us < end for us in measured)} |"
        for begin, end in zip([0.0, *edges], [*edges, math.inf], strict=True)
    ]
    return ["| measured us | records |", "|---|---|", *rows, ""]


def _noise(seen: Sequence[Observation]) -> list[str]:
    """How far two passes lie apart."""
    rows: list[str] = []
    for begin, end in ((0.0, 1.0), (1.0, 10.0), (10.0, 100.0), (100.0, 1e3), (1e3, 1e4), (1e4, math.inf)):
        apart = [
            abs(math.log(one.passes[0].us / one.passes[1].us))
            for one in seen
            if one.status == "ok" and len(one.passes) > 1 and begin <= one.us < end
        ]
        if apart:
            most = sorted(apart)[int(0.9 * len(apart))]
            rows.append(f"| {begin:g} - {end:g} | {len(apart)} | {statistics.median(apart):.2%} | {most:.2%} |")
    loads = [made.load for one in seen for made in one.passes if made.load is not None]
    busy = sum(load > BUSY for load in loads) / max(len(loads), 1)
    return [
        "| us | records | two passes apart, median | nine of ten within |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Others kept more than {BUSY:g} cores busy in {busy:.1%} of the passes of which that is known ({len(loads)}).",
        "",
    ]
