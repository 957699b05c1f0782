"""The report on two checkouts, from raw records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from journal import Journal, Record
from standings import geometric_mean

TIMES = (
    ("call", "analytical", "us", "call"),
    ("call", "measured", "us", "call, tuned"),
    ("load", "analytical", "ms", "load"),
)
"""Step and policy, the entry that holds the time, and the name of its column."""


def render(run: Record, journal: Journal) -> str:
    """All of it."""
    records = [record for record in journal.records if "step" in record]
    here, settings = run["machine"], run["settings"]
    return "\n".join(
        (
            "# What did a change change?",
            "",
            f"{here['model']} ({here['threads']} threads), Python {here['python']}, NumPy {here['numpy']}, "
            f"{run['begun']}, commit {run['commit']} beside {settings['before']}. "
            "`python experiments/before_after/run.py --before CHECKOUT` makes it again.",
            "",
            *_answers([record for record in records if record["step"] == "answer"]),
            *_times([record for record in records if record["step"] != "answer"], settings),
        )
    )


def _answers(records: Sequence[Record]) -> list[str]:
    """Which plans give other bits, and why."""
    lines = ["Plans of each program at the size of tests, on the same arguments:", ""]
    lines += ["| policy | plans | same bits | same kernels and schedules | same code |", "|---|---:|---:|---:|---:|"]
    remarks: list[str] = []
    for policy in dict.fromkeys(record["policy"] for record in records):
        pairs = [pair for pair in _pairs(records) if pair[0]["policy"] == policy]
        ok = [pair for pair in pairs if _ok(pair)]
        counts = [sum(_same(pair, entry) for pair in ok) for entry in ("bits", "decided", "code")]
        lines.append(f"| {policy} | {len(ok)} | {' | '.join(map(str, counts))} |")
        remarks += [remark for pair in pairs if (remark := _remark(pair))]
    return [*lines, "", *([*remarks, ""] if remarks else [])]


def _remark(pair: tuple[Record, Record]) -> str:
    """What is to be said of one plan; nothing where all is the same."""
    before, now = pair
    name = f"- `{now['program']}`, {now['policy']}: "
    if not _ok(pair):
        return name + "; ".join(f"{record['way']} {record['error']}" for record in pair if record["status"] != "ok")
    bits = "same bits" if _same(pair, "bits") else "other bits"
    if not _same(pair, "partition"):
        return f"{name}{bits}, another partition ({before['kernels']} kernels, now {now['kernels']})"
    if not _same(pair, "decided"):
        return f"{name}{bits}, the same partition, other schedules or another order"
    if not _same(pair, "code"):
        return f"{name}{bits}, the same kernels and schedules, other code"
    return "" if _same(pair, "bits") else f"{name}{bits} of the same code"


def _times(records: Sequence[Record], settings: Record) -> list[str]:
    """Medians over the rounds, now over before."""
    if not records:
        return []
    ratios: dict[str, list[float]] = {title: [] for *_, title in TIMES}
    rows: list[str] = []
    for program in dict.fromkeys(record["program"] for record in records):
        cells: list[str] = []
        for step, policy, entry, title in TIMES:
            found = [r for r in records if (r["program"], r["step"], r["policy"]) == (program, step, policy)]
            pairs = [pair for pair in _pairs(found) if _ok(pair)]
            if not pairs:
                cells.append("-")
                continue
            before, now = (float(np.median([pair[side][entry] for pair in pairs])) for side in (0, 1))
            spread = [pair[1][entry] / pair[0][entry] for pair in pairs]
            ratios[title].append(now / before)
            cells.append(f"{before:.4g} {entry}, {now / before:.2f} ({min(spread):.2f} to {max(spread):.2f})")
        rows.append(f"| `{program}` | {' | '.join(cells)} |")
    means = [f"{geometric_mean(ratios[title]):.3f} ({len(ratios[title])})" for *_, title in TIMES]
    head = [
        f"| program | {' | '.join(title for *_, title in TIMES)} |",
        f"|---|{'---:|' * len(TIMES)}",
        f"| **geometric mean** | {' | '.join(means)} |",
    ]
    return [
        f"Times at {settings['size']} size: the fastest call of {settings['seconds']:g} s under the analytical policy, "
        f"the same of a plan tuned for {settings['budget']:g} s, and import, load and first call of a plan from a "
        "file. Before, and now over before: medians over the rounds, and the least and largest ratio of a round.",
        "",
        *head,
        *rows,
        "",
    ]


def _pairs(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """What both checkouts gave for one step of one round."""
    found: dict[tuple[str, ...], dict[str, Record]] = {}
    for record in records:
        name = tuple(str(record[entry]) for entry in ("step", "program", "policy", "round"))
        found.setdefault(name, {})[record["way"]] = record
    return [(pair["before"], pair["now"]) for pair in found.values() if len(pair) == len(("before", "now"))]


def _ok(pair: tuple[Record, Record]) -> bool:
    return all(record["status"] == "ok" for record in pair)


def _same(pair: tuple[Record, Record], entry: str) -> bool:
    return pair[0][entry] == pair[1][entry]
