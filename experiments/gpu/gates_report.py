"""Which counts predict times? Kernels that were measured beside what the gates count of them, and rank correlations.

Slowness of a kernel: its time over what moving its bytes would take at the copy's rate. For each gate the kernels that
have a value are ranked by how far the value is on the wrong side, and by slowness (Spearman 1904): 1 says that the gate
orders kernels as their times do, 0 that it says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.testing.simt.gates import GATES

Record = dict[str, Any]
LEAST = 4
"""Kernels for a correlation; fewer say nothing."""
_FLOOR_US = 3.0
"""A kernel that would take less is mostly its start."""
_SHOWN = 24


def gate_lines(records: Sequence[Record], bytes_per_s: float) -> list[str]:
    """The table of kernels, and that of gates."""
    kernels = [
        {**kernel, "program": record["program"], "floor_us": kernel["moved_bytes"] / bytes_per_s * 1e6}
        for record in records
        if record["step"] == "counted" and record["status"] == "ok"
        for kernel in record["kernels"]
    ]
    if not kernels:
        return []
    slow = [kernel for kernel in kernels if kernel["floor_us"] >= _FLOOR_US] or kernels
    slow = sorted(slow, key=lambda kernel: -kernel["floor_us"])[:_SHOWN]
    head = ["program", "kernel", "us", "over the floor", *(gate.name for gate in GATES)]
    rows = [
        [f"`{k['program']}`", k["kernel"], f"{k['us']:.1f}", f"{_slowness(k):.2f}", *_values(k)]
        for k in sorted(slow, key=_slowness, reverse=True)
    ]
    return [
        f"{len(slow)} kernels, each measured in its plan with nothing beside it, and what is counted of it. Over the "
        "floor: its time over that of its bytes at the copy's rate.",
        "",
        f"| {' | '.join(head)} |",
        f"|---|---|{'---:|' * (len(head) - 2)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        "| gate | kernels | over it | rank correlation with time over the floor |",
        "|---|---:|---:|---:|",
        *(_gate_line(number, slow) for number in range(len(GATES))),
        "",
    ]


def _slowness(kernel: Record) -> float:
    return kernel["us"] / max(kernel["floor_us"], 1e-9)


def _values(kernel: Record) -> list[str]:
    gates = kernel["gates"]
    return [format(gates[gate.name], gate.shown) if gate.name in gates else "" for gate in GATES]


def _gate_line(number: int, kernels: Sequence[Record]) -> str:
    gate = GATES[number]
    found = [(k["gates"][gate.name], _slowness(k)) for k in kernels if gate.name in k["gates"]]
    sign = 1.0 if gate.at_most else -1.0
    over = sum(not gate.passes(value) for value, _ in found)
    rank = correlation([sign * value for value, _ in found], [slow for _, slow in found])
    return f"| {gate.name} ({gate.wish}) | {len(found)} | {over} | {'-' if rank is None else f'{rank:.2f}'} |"


def correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's, equal values sharing their ranks; None where there are too few, or all are equal."""
    if len(one) < LEAST:
        return None
    a, b = _ranks(one), _ranks(other)
    middle = (len(one) - 1) / 2
    products = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    sizes = [sum((x - middle) ** 2 for x in ranks) ** 0.5 for ranks in (a, b)]
    return None if 0.0 in sizes else products / (sizes[0] * sizes[1])


def _ranks(values: Sequence[float]) -> list[float]:
    return [(sum(v < value for v in values) + sum(v <= value for v in values) - 1) / 2 for value in values]
