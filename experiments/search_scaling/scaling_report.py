"""The scaling study as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = dict[str, Any]
TITLES = {
    "bert": "BERT-base encoders, 128 tokens, by layers",
    "lstm": "Unrolled LSTM, by steps",
    "random": "Random graphs, by operations",
}
LARGE_NODES = 4500
"""From here on a program counts as large: BERT of 64 layers has 4,558."""
STEPS = ("enumerate", "price", "solve", "write")


def render(run: Record, records: Iterable[Record]) -> str:
    """The whole report."""
    records = list(records)
    machine = run["machine"]
    lines = [
        "# How the search grows",
        "",
        f"{machine['model']}, {machine['cores']} cores; commit {run['commit']}, {run['begun']}; `{run['command']}`.",
        "",
        "Programs planned under the analytical model: whole, and in segments of at most "
        f"{run['settings']['segment']} atoms. `search` is enumerating, pricing, solving and writing the plan down, in "
        "seconds, without tracing and clean-up; `memory` the peak of the whole process in MiB; `loss` how much dearer "
        "the partition in segments is than the one of the whole program, by the model. A program that the solver did "
        "not finish in its time is marked *.",
        "",
    ]
    lines += ["## Targets", "", *targets(records), ""]
    for program, title in TITLES.items():
        own = [record for record in records if record["program"] == program and record["kind"] == "search"]
        if own:
            lines += [f"## {title}", "", *_table(own), ""]
    lines += [f"- failed: {r['program']} {r['size']}, {r['way']}: {r['error']}" for r in records if r["status"] != "ok"]
    return "\n".join(lines).rstrip() + "\n"


def targets(records: Sequence[Record]) -> list[str]:
    """A line for each target that was measured."""
    done = [r for r in records if r["status"] == "ok"]
    planned = [r for r in done if (r["program"], r["size"], r["way"]) == ("bert", 12, "whole")]
    tuned = [r for r in done if r["kind"] == "tune"]
    large = [r for r in done if r["kind"] == "search" and r["way"] == "segments" and r["nodes"] >= LARGE_NODES]
    lines = ["| what | target | found | |", "|---|---:|---:|---|"]
    lines += [_target("BERT of 12 layers planned under the model", 10, _seconds(r), "s") for r in planned]
    lines += [_target("BERT of 12 layers tuned with measurements", 120, r["seconds"], "s") for r in tuned]
    lines += [_target(f"{r['nodes']:,} nodes under the model", 60, _seconds(r), "s") for r in large]
    lines += [_target("peak of memory, all of these", 2048, max(r["peak_mib"] for r in done), "MiB")] if done else []
    return lines


def _target(what: str, limit: float, found: float, unit: str) -> str:
    return f"| {what} | {limit} {unit} | {found:.0f} {unit} | {'**met**' if found <= limit else '**missed**'} |"


def _table(records: Sequence[Record]) -> list[str]:
    rows = [
        "| size | nodes | atoms | segments | search | of this enumerate, price, solve, write | memory | whole: search "
        "| memory | loss |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    done = {(r["size"], r["way"]): r for r in records if r["status"] == "ok"}
    for size in dict.fromkeys(record["size"] for record in records):
        parts, whole = done.get((size, "segments")), done.get((size, "whole"))
        either = parts or whole
        if either is None:
            continue
        cells = [size, either["nodes"], either["atoms"], "-" if parts is None else parts["segments"]]
        cells += ["-", "-", "-"] if parts is None else [_search(parts), _steps(parts), f"{parts['peak_mib']:.0f}"]
        cells += ["-", "-"] if whole is None else [_search(whole), f"{whole['peak_mib']:.0f}"]
        cells.append("-" if parts is None or whole is None else loss(parts, whole))
        rows.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return rows


def loss(parts: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """How much dearer a partition in segments is, in words."""
    return f"{100 * (parts['price_us'] / whole['price_us'] - 1):.2f} %"


def _search(record: Record) -> str:
    return f"{_seconds(record):.1f}{'' if record['optimal'] else '*'}"


def _seconds(record: Record) -> float:
    return sum(record["seconds"][step] for step in STEPS)


def _steps(record: Record) -> str:
    return ", ".join(f"{record['seconds'][step]:.1f}" for step in STEPS)
