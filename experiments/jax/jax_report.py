"""The report of the study from its records. Nothing here measures."""

from __future__ import annotations

from statistics import median
from typing import Any

from interleaved import fastest_calls, ratio
from journal import Journal
from standings import geometric_mean

Record = dict[str, Any]


def fastest(record: Record, name: str) -> float:
    """Microseconds of a side's fastest call."""
    return min(min(block) for block in record["us"][name])


def gain(record: Record, name: str) -> str:
    """How many times as long as a side of autofuse's `jax.jit` takes, with its interval."""
    return str(ratio([fastest_calls(record["us"]["jax.jit"])], [fastest_calls(record["us"][name])]))


def first_cell(record: Record | None) -> list[str]:
    """Medians of the first calls in a first and in a second process, in seconds."""
    if record is None or record["status"] != "ok":
        return ["failed" if record else "", ""]
    return [f"{median(record[process]):.2f}" for process in ("first process", "second process")]


def report(journal: Journal, run: Record) -> str:
    """All of it, as Markdown."""
    programs = sorted({record["program"] for record in journal.records if record.get("kind") == "times"})
    found = {name: journal.latest(kind="times", program=name) for name in programs}
    records = {name: record for name, record in found.items() if record is not None and record["status"] == "ok"}
    tuned = any("autofuse, tuned" in record["us"] for record in records.values())
    here, settings = run["machine"], run["settings"]
    return "\n".join(
        [
            "# autofuse.jax beside jax.jit",
            "",
            f"Programs of `datasets/workloads/jax/` at size {settings['size']}, the same source on both sides. Calls "
            "until results are there, in turns, each program in a process of its own: the fastest call of each block. "
            "glibc keeps the memory of results that were dropped (trimming is off on both sides). "
            "First calls: the median of several processes, without imports; the second process finds what the first "
            "one kept, of JAX in its compilation cache.",
            "",
            f"`{run['command']}`, commit {run['commit']}, {here['model']}, {here['threads']} threads. JAX "
            f"{here['jax']}.",
            "",
            *_calls(records, tuned),
            "",
            *_firsts(journal, programs),
            "",
            *_reading(journal, programs),
            *_overhead(journal),
            *_failed(found),
        ]
    )


def _calls(records: dict[str, Record], tuned: bool) -> list[str]:
    sides = ["autofuse", *(["autofuse, tuned"] if tuned else [])]
    head = ["program", "jax.jit, ms", *(f"{side}, ms" for side in sides), *(f"jax.jit over {side}" for side in sides)]
    head += ["kernels of XLA", *(f"kernels of {side}" for side in sides), "run by Python"]
    lines = ["## Calls", "", f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for name, record in records.items():
        there = [side for side in ("jax.jit", *sides) if side in record["us"]]
        cells = [f"{fastest(record, side) / 1e3:.3g}" for side in there]
        cells += [gain(record, side) for side in there[1:]]
        cells += [str(record["kernels"][side]) for side in there]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {record['interpreted']} |")
    for side in sides:
        gains = [fastest(r, "jax.jit") / fastest(r, side) for r in records.values() if side in r["us"]]
        if gains:
            lines += ["", f"Geometric mean of jax.jit over {side}: {geometric_mean(gains):.2f}."]
    return lines


def _firsts(journal: Journal, programs: list[str]) -> list[str]:
    lines = [
        "## First calls, seconds",
        "",
        "| program | jax.jit | jax.jit, second process | autofuse | autofuse, second process |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in programs:
        sides = [journal.latest(kind="first", program=name, side=side) for side in ("jax.jit", "autofuse")]
        lines.append(f"| `{name}` | {' | '.join(cell for side in sides for cell in first_cell(side))} |")
    return lines


def _reading(journal: Journal, programs: list[str]) -> list[str]:
    found = {name: journal.latest(kind="reading", program=name, status="ok") for name in programs}
    lines = [
        "## Reading a module's text, milliseconds of one core",
        "",
        "| program | operations | jaxlib's parser | `af.from_stablehlo`, that included | us an operation |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, record in found.items():
        if record is not None:
            count, taken = record["operations"], record["ms"]
            cells = [str(count), *(f"{ms:.1f}" for ms in taken.values()), f"{1e3 * taken['autofuse'] / count:.0f}"]
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return [*lines, ""] if any(found.values()) else []


def _overhead(journal: Journal) -> list[str]:
    record = journal.latest(kind="overhead", status="ok")
    if record is None:
        return []
    rows = [f"| {name} | {fastest(record, name):.1f} |" for name in record["us"]]
    return ["## A call of x * 2 + 1 on 16 numbers, microseconds", "", "| call | us |", "|---|---:|", *rows, ""]


def _failed(found: dict[str, Record | None]) -> list[str]:
    lines = [f"- `{name}`: {r['error']}" for name, r in found.items() if r is not None and r["status"] != "ok"]
    return ["## Failed", "", *lines, ""] if lines else []
