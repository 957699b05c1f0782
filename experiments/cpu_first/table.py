"""The written result of the study: rows from raw records, then Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from interleaved import Ratio, Samples, block_medians, noise_floor, ratio
from journal import Journal, Record
from standings import geometric_mean

POLICIES = ("unfused", "analytical", "measured")
NUMPY = "numpy"
AGAIN = "unfused again"
VARIANTS = (NUMPY, *POLICIES, AGAIN)


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds a call takes."""

    median: float
    low: float
    """First quartile of the block medians."""
    high: float
    """Third quartile."""


@dataclass(frozen=True, slots=True)
class Row:
    """One program's results; an entry is None where its variant failed."""

    program: str
    times: dict[str, Spread]
    """By variant."""
    over_numpy: Ratio | None
    """NumPy / measured."""
    over_unfused: Ratio | None
    """unfused / measured."""
    kernels: dict[str, int]
    """By policy."""
    tuning_s: dict[str, float]
    """By policy: seconds from the call of tune to its plan."""
    noise: float | None
    """Share below which two times of this program are not told apart."""
    faults: tuple[str, ...]
    """What failed, one line each."""


def build_row(program: str, journal: Journal, rounds: int) -> Row:
    """Gather one program's records of `rounds` rounds."""
    made = [journal.latest(kind="round", program=program, round=index) for index in range(rounds)]
    done = [record for record in made if record is not None and record["status"] == "ok"]
    samples: dict[str, list[Samples]] = {}
    for variant in VARIANTS:
        measured = [record["samples"][variant] for record in done if variant in record["samples"]]
        if measured and len(measured) == len(done):
            samples[variant] = measured
    plans = {
        policy: record
        for policy in POLICIES
        if (record := journal.latest(kind="plan", program=program, policy=policy)) is not None
    }
    return Row(
        program=program,
        times={variant: _spread(rounds) for variant, rounds in samples.items()},
        over_numpy=_ratio(samples, NUMPY, "measured"),
        over_unfused=_ratio(samples, "unfused", "measured"),
        kernels={policy: record["kernels"] for policy, record in plans.items() if record["status"] == "ok"},
        tuning_s={policy: record["seconds"] for policy, record in plans.items() if record["status"] == "ok"},
        noise=noise_floor(samples["unfused"], samples[AGAIN]) if {"unfused", AGAIN} <= samples.keys() else None,
        faults=tuple(_faults(plans, [record for record in made if record is not None])),
    )


def _ratio(samples: dict[str, list[Samples]], slower: str, faster: str) -> Ratio | None:
    if not {slower, faster} <= samples.keys():
        return None
    return ratio(samples[slower], samples[faster])


def _spread(rounds: Sequence[Samples]) -> Spread:
    low, median, high = np.quantile(block_medians(rounds) / 1e3, (0.25, 0.5, 0.75))
    return Spread(float(median), float(low), float(high))


def _faults(plans: dict[str, Record], rounds: Sequence[Record]) -> Iterable[str]:
    for policy, record in plans.items():
        if record["status"] != "ok":
            yield f"{policy}: {record['error']}"
    seen: set[str] = set()
    for record in rounds:
        lines = [f"round {record['round']}: {record['error']}"] if record["status"] != "ok" else []
        lines += [f"{variant}: {reason}" for variant, reason in record.get("faults", {}).items()]
        yield from (line for line in lines if line not in seen)
        seen.update(lines)


def render(rows: Sequence[Row], heading: Sequence[str]) -> str:
    """The whole report: heading lines, table, means, faults."""
    parts = [*heading, "", *_table(rows), "", *_means(rows)]
    faulty = [row for row in rows if row.faults]
    if faulty:
        parts += ["", "## What failed", ""]
        parts += [f"- `{row.program}`, {fault}" for row in faulty for fault in row.faults]
    return "\n".join(parts) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
    head = "| program | NumPy ms | unfused ms | analytical ms | measured ms | NumPy / measured | unfused / measured"
    lines = [head + " | kernels | tuned in s | noise floor |", "|---|" + "---:|" * 9]
    for row in rows:
        cells = [
            f"`{row.program}`",
            *(_time(row.times.get(variant)) for variant in (NUMPY, *POLICIES)),
            _ratio_text(row.over_numpy, None),
            _ratio_text(row.over_unfused, row.noise),
            " / ".join(str(row.kernels.get(policy, "-")) for policy in POLICIES),
            " / ".join(f"{row.tuning_s[policy]:.0f}" if policy in row.tuning_s else "-" for policy in POLICIES),
            "-" if row.noise is None else f"{row.noise:.1%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _time(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    digits = max(0, 2 - math.floor(math.log10(max(spread.median, 1e-6))))
    digits = min(digits, 4)
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f}-{spread.high:.{digits}f})"


def _ratio_text(found: Ratio | None, noise: float | None) -> str:
    if found is None:
        return "-"
    if noise is None:
        return f"{found.value:.2f}"
    text = str(found)
    return text if found.beyond(noise) else text + " (noise)"


def _means(rows: Sequence[Row]) -> list[str]:
    over_numpy = [row.over_numpy.value for row in rows if row.over_numpy]
    over_unfused = [row.over_unfused.value for row in rows if row.over_unfused]
    slower = [row.program for row in rows if row.over_unfused and row.over_unfused.high < 1.0]
    lines = [
        f"Geometric means: NumPy / measured {geometric_mean(over_numpy):.2f} over {len(over_numpy)} programs, "
        f"unfused / measured {geometric_mean(over_unfused):.2f} over {len(over_unfused)}, of {len(rows)} in all.",
        "",
        f"Measured plans slower than unfused ones beyond their interval: {', '.join(slower) or 'none'}.",
    ]
    floors = [row.noise for row in rows if row.noise is not None]
    if floors:
        lines.append(
            f"Noise floor (unfused against itself): median {np.median(floors):.1%}, largest {max(floors):.1%}."
        )
    return lines


def heading(run: Record, rounds: Sequence[Any]) -> list[str]:
    """Title, method, machine and command, from the run's own record."""
    machine, settings = run["machine"], run["settings"]
    return [
        "# CPU: NumPy, unfused plans, analytical plans, measured plans",
        "",
        f"Each program of `datasets/workloads/` at size {settings['size']}. Policies `{'`, `'.join(POLICIES)}`; "
        f"tuned with a budget of {settings['budget']:g} s each, seed {settings['seed']}"
        + (f"; compiled without tuning: {', '.join(settings['untuned'])}" if settings["untuned"] else "")
        + ".",
        f"{rounds} rounds, each a fresh process per program; in it {settings['blocks']} repetitions of one block per "
        f"variant in random order, a block being one untimed call and then calls for about "
        f"{settings['block_seconds'] * 1e3:g} ms. Caches are as the previous call left them. NumPy and plans "
        "alike allocate their results in every call. Answers are checked against NumPy before they are timed.",
        "Times are medians with the quartiles of block medians; intervals are 95 % bootstrap intervals over rounds and "
        "blocks; the noise floor compares the unfused plan, loaded twice, with itself. "
        "Kernels and tuning seconds: " + " / ".join(POLICIES) + ".",
        "",
        f"Machine: {machine['model']}, {machine['cores']} cores, {machine['threads']} threads used by plans, "
        f"L1d {machine['l1d_bytes'] >> 10} KiB, L2 {machine['l2_bytes'] >> 10} KiB, "
        f"L3 {machine['l3_bytes'] >> 20} MiB, {machine['memory_bytes'] >> 30} GiB; {machine['system']}; "
        f"Python {machine['python']}, NumPy {machine['numpy']} ({machine['blas']}).",
        f"Command: `{run['command']}`, begun {run['begun']}, at commit {run['commit']}.",
    ]
