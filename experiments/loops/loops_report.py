"""The report of the loop programs from the study's records. Nothing here measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bounded import FEW
from journal import Journal
from loops_sides import SIDES

from autofuse.measurement.workloads import Workload

Record = dict[str, Any]
AGAINST = {"NumPy": ("NumPy",), "JAX": ("JAX",), "best of JAX and Numba": ("JAX", "JAX, rewritten", "Numba")}
"""Columns of the table: sides of which the fastest is compared with autofuse."""


def fastest(record: Record, name: str) -> float | None:
    """Microseconds of a side's fastest call."""
    return min(min(block) for block in record["us"][name]) if name in record.get("us", {}) else None


def cell(record: Record, name: str) -> str:
    """A side's fastest call, or what is known of it, for a table of milliseconds."""
    us = fastest(record, name)
    if us is not None:
        return f"{us / 1e3:.3g}" + (" ¹" if name in record["few"] else "")
    if name in record.get("foretold_us", {}):
        return f"~{record['foretold_us'][name] / 1e3:.0f} ²"
    return "failed" if name in record.get("faults", {}) else ""


def gain(record: Record, names: Sequence[str]) -> float | None:
    """How many times as long as autofuse the fastest of these sides takes."""
    own, theirs = fastest(record, "autofuse"), [fastest(record, name) for name in names]
    known = [us for us in theirs if us is not None]
    return min(known) / own if known and own else None


def report(journal: Journal, run: Record, programs: Sequence[Workload]) -> str:
    """All of it, as Markdown."""
    settings, here = run["settings"], run["machine"]
    found = {program.name: journal.latest(kind="times", program=program.name) for program in programs}
    records = {name: record for name, record in found.items() if record is not None}
    names = [name for name in SIDES if any(cell(record, name) for record in records.values())]
    lines = [
        "# Loops",
        "",
        f"Programs of `datasets/workloads/loops/` at size {settings['size']}. JAX runs the same source over its own "
        "functions; Numba's loops are by hand. Programs with Python loops that write into arrays have NumPy alone. "
        "Fastest of all calls, sides in turns, a process for each program; answers are NumPy's.",
        "",
        f"`{run['command']}`, commit {run['commit']}, {here['model']}, {here['threads']} threads. NumPy "
        f"{here['numpy']}, JAX {here['jax']}, Numba {here['numba']}.",
        "",
        "Milliseconds of a call, and how many times as long as autofuse the others take:",
        "",
        "| program | "
        + " | ".join(names)
        + " | first call, s | "
        + " | ".join(f"{title} over autofuse" for title in AGAINST)
        + " |",
        "|---|" + "---:|" * (len(names) + 1 + len(AGAINST)),
    ]
    for name, record in records.items():
        ready = record.get("ready_s", {}).get("autofuse")
        gains = [gain(record, sides) for sides in AGAINST.values()]
        cells = [cell(record, side) for side in names]
        cells += ["" if ready is None else f"{ready:.2f}", *("" if g is None else f"{g:.2f}" for g in gains)]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    means = [_mean([gain(record, sides) for record in records.values()]) for sides in AGAINST.values()]
    lines += [
        f"| geometric mean |{' |' * (len(names) + 1)} {' | '.join(means)} |",
        "",
        f"¹ too slow for turns within {settings['most_seconds']:g} s: the fastest of {FEW} calls, after the others. "
        "² too slow for that: one call.",
        "",
        *_faults(records),
    ]
    return "\n".join(lines)


def _mean(values: Sequence[float | None]) -> str:
    known = [math.log(value) for value in values if value is not None]
    return f"{math.exp(sum(known) / len(known)):.2f}" if known else ""


def _faults(records: dict[str, Record]) -> list[str]:
    found = [f"- `{name}`: {record['error']}" for name, record in records.items() if record["status"] != "ok"]
    for name, record in records.items():
        found += [f"- `{name}`, {side}: {fault}" for side, fault in record.get("faults", {}).items()]
    return ["## Failed", "", *found, ""] if found else []
