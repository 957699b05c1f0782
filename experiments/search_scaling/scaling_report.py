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
    for program, title in TITLES.items():
        own = [record for record in records if record["program"] == program]
        if own:
            lines += [f"## {title}", "", *_table(own), ""]
    lines += [f"- failed: {r['program']} {r['size']}, {r['way']}: {r['error']}" for r in records if r["status"] != "ok"]
    return "\n".join(lines).rstrip() + "\n"


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
    return f"{sum(record['seconds'][step] for step in STEPS):.1f}{'' if record['optimal'] else '*'}"


def _steps(record: Record) -> str:
    return ", ".join(f"{record['seconds'][step]:.1f}" for step in STEPS)
