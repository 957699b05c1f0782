"""The limits study as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Record = dict[str, Any]
CONTESTANTS = ("generated", "library in a plan", "NumPy", "PyTorch")


def render(run: Record, records: Iterable[Record], shapes: Mapping[str, tuple[int, int, int]]) -> str:
    """The whole report."""
    done = [record for record in records if record["status"] == "ok"]
    failed = [record for record in records if record["status"] != "ok"]
    machine = run["machine"]
    lines = [
        "# How near to the machine",
        "",
        f"{machine['model']}, {machine['cores']} cores, {machine['isa']}; {machine['blas']}; commit {run['commit']}, "
        f"{run['begun']}; `{run['command']}`.",
        "",
        *_products([r for r in done if r["kind"] == "product"], shapes),
        *_joins([r for r in done if r["kind"] == "fork-join"]),
    ]
    lines += [f"- failed: {record['kind']} {record.get('shape', '')}: {record['error']}" for record in failed]
    return "\n".join(lines).rstrip() + "\n"


def _products(records: Sequence[Record], shapes: Mapping[str, tuple[int, int, int]]) -> list[str]:
    if not records:
        return []
    names = [name for name in CONTESTANTS if any(name in record["samples"] for record in records)]
    best = [name for name in names if name in ("NumPy", "PyTorch")]
    rows = [
        "## Products",
        "",
        "f32, GFLOP/s (median of the turns, with the range of the middle half); every contestant writes into the same "
        "array. Last column: the time of the fastest library over that of the generated product, turn by turn.",
        "",
        f"| rows x depth x columns | threads | {' | '.join(names)} | library / generated |",
        f"|---|---:|{'---:|' * len(names)}---:|",
    ]
    called = {shape: name for name, shape in shapes.items()}
    for record in records:
        rates = {name: record["flops"] / np.array(times) / 1e9 for name, times in record["samples"].items()}
        fastest = max((name for name in best if name in rates), key=lambda name: float(np.median(rates[name])))
        ratios = rates["generated"] / rates[fastest]
        shape = tuple(record["shape"])
        cells = [_spread(rates[name]) if name in rates else "-" for name in names]
        rows.append(
            f"| {' x '.join(map(str, shape))} ({called.get(shape, '')}) | {record['threads']} | {' | '.join(cells)} | "
            f"{np.median(ratios):.2f} ({fastest}) |"
        )
    return [*rows, ""]


def _spread(values: Any) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{middle:.0f} ({low:.0f} to {high:.0f})" if middle >= 10 else f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _joins(records: Sequence[Record]) -> list[str]:
    if not records:
        return []
    rows = [
        "## Fork-join",
        "",
        "Nanoseconds per launch within a plan of a thousand launches of nearly nothing, workers awake.",
        "",
        "| threads | shared by all | done by the caller |",
        "|---:|---:|---:|",
    ]
    for record in records:
        shared, alone = (np.array(record["samples"][name]) * 1e9 for name in ("shared", "alone"))
        rows.append(f"| {record['threads']} | {_spread(shared)} | {_spread(alone)} |")
    return [*rows, ""]
