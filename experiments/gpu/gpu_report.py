"""The report of the GPU study, from raw records."""

from __future__ import annotations

from collections.abc import Sequence

from gates_report import gate_lines
from journal import Journal, Record
from section_report import (
    aim_lines,
    calibration_lines,
    form_lines,
    profile_lines,
    question_lines,
    raced_lines,
    tuned_lines,
)
from sections import OF_THE_DEVICE
from standings import geometric_mean

PEERS = {"cupy": "CuPy, eager", "jax": "jax.jit", "torch": "torch.compile"}
_RIGHT = 1e-3
"""Largest relative error of a right answer: bf16 and sums in another order; f32 programs lie far below."""
_WORST = 5
_PRECISION = {
    "strict": "Plans are strict, and all sides multiply f32 in full.",
    "fast": "Plans have fast numerics, and all sides may multiply f32 as TF32, which is the default of JAX.",
}


def render(run: Record, journal: Journal) -> str:
    """All of it."""
    latest = _latest(journal.records)
    here = latest.get(("environment", None), {"status": "missing"})
    return "\n".join(
        (
            "# Plans on a GPU",
            "",
            *_head(run, here),
            *_older(latest, journal.records),
            *calibration_lines(latest.get(("calibrate", None))),
            *form_lines(latest),
            *_contract(latest.get(("contract", None))),
            *gate_lines(list(latest.values()), _bytes_per_s(here)),
            *aim_lines(latest, here),
            *question_lines(latest),
            *_programs(latest, here),
            *tuned_lines(latest),
            *raced_lines(latest),
            *_slowest(latest),
            *profile_lines(journal.records),
            *_failures(latest),
        )
    )


def _latest(records: Sequence[Record]) -> dict[tuple[str, str | None], Record]:
    """The newest record of each step; of the same code, an older one that is ok before a newer that is not."""
    found: dict[tuple[str, str | None], Record] = {}
    for record in records:
        if "step" in record:
            key = record["step"], record.get("program")
            if key not in found or record["status"] == "ok" or record.get("code") != found[key].get("code"):
                found[key] = record
    return found


def _older(latest: dict[tuple[str, str | None], Record], records: Sequence[Record]) -> list[str]:
    """What the code that was measured last has not measured."""
    now = records[-1].get("code") if records else None
    names: dict[str, list[str]] = {}
    for (step, name), record in latest.items():
        if record.get("code") != now and step not in OF_THE_DEVICE:
            names.setdefault(step, []).extend([f"`{name}`"] if name else [])
    if not names:
        return []
    steps = [f"{step} {', '.join(found)}".rstrip() for step, found in names.items()]
    return [f"Of older code, and not measured since: {'; '.join(steps)}.", ""]


def _head(run: Record, here: Record) -> list[str]:
    command = f"`python experiments/gpu/run.py` makes it again. {run['begun']}, commit {run['commit']}."
    if here["status"] != "ok":
        return [f"The device could not be described: {here.get('error', 'not asked yet')}. {command}", ""]
    copy = here.get("copy_bytes_per_s")
    rate = f"; a plain copy moves {copy / 1e12:.2f} TB/s" if copy else ""
    numerics = run.get("settings", {}).get("numerics", "strict")
    simulated = (
        " Times are the cost model's, a thousandfold: nothing ran on a GPU." if here["driver"] == "simulated" else ""
    )
    state = f" State: {here['conditions']}." if here.get("conditions") else ""
    return [
        f"{here['device']}, driver {here['driver']}, NVRTC {here['nvrtc']}, CuPy {here.get('cupy', 'not used')}, "
        f"NumPy {here['numpy']}{rate}. {command}{state}{simulated} {_PRECISION[numerics]}",
        "",
    ]


def _bytes_per_s(here: Record) -> float:
    """Of a plain copy, or what the data sheet says."""
    return here.get("copy_bytes_per_s") or here.get("memory_bytes_per_s") or float("nan")


def _contract(record: Record | None) -> list[str]:
    if record is None:
        return ["The tests that need a GPU were not run.", ""]
    if record["status"] != "ok":
        return [f"The tests that need a GPU did not end: {record['error']}.", ""]
    lines = [f"Tests that need a GPU: {record['last']}", ""]
    return lines if record["passed"] else [*lines, "```", *record["said"], "```", ""]


def _programs(latest: dict[tuple[str, str | None], Record], here: Record) -> list[str]:
    plans = {name: record for (step, name), record in latest.items() if step == "plan" and record["status"] == "ok"}
    if not plans:
        return []
    copy = _bytes_per_s(here)
    rows: list[str] = []
    over: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for name, record in plans.items():
        floor_us = record["moved_bytes"] / copy * 1e6
        error = max(record["error"], record.get("reference_error", 0.0))
        wrong = "" if error <= _RIGHT else " **wrong**"
        cells = [
            str(len(record["kernels"])),
            f"{error:.1e}{wrong}",
            f"{record['us']:.1f} ({record['low_us']:.1f} to {record['high_us']:.1f})",
            f"{record['device_us']:.1f}",
            f"{record['predicted_us']:.1f}",
            f"{floor_us:.1f}",
        ]
        for peer in PEERS:
            found = latest.get((peer, name))
            if found is None or found["status"] != "ok":
                cells.append("-" if found is None else "failed")
                continue
            over[peer].append(found["us"] / record["us"])
            cells.append(f"{found['us']:.1f}, {found['us'] / record['us']:.2f}")
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    means = [f"{geometric_mean(over[peer]):.2f} ({len(over[peer])})" if over[peer] else "-" for peer in PEERS]
    return [
        "Arguments and results on the device, one call in microseconds, median and its 95 % interval, as its "
        "caller waits for it; device: what the device needs of that. Error: norm of "
        "the difference from the unfused plan on the device over the norm of its answer, or of that plan from NumPy at "
        "a small size, if that is larger. Floor: bytes of arguments and results at the copy's "
        "rate. Peers: their time, and how many times as long they take; products in full f32.",
        "",
        f"| program | kernels | error | plan | device | predicted | floor | {' | '.join(PEERS.values())} |",
        f"|---|{'---:|' * (6 + len(PEERS))}",
        f"| **geometric mean** | | | | | | | {' | '.join(means)} |",
        *rows,
        "",
    ]


def _slowest(latest: dict[tuple[str, str | None], Record]) -> list[str]:
    """Kernels whose prediction was furthest off, and what the compiler said of them."""
    found: list[tuple[float, str]] = []
    for (step, name), record in latest.items():
        if step != "plan" or record["status"] != "ok":
            continue
        for kernel in record["kernels"]:
            if kernel["predicted_us"] and kernel["us"]:
                ratio = kernel["us"] / kernel["predicted_us"]
                said = "; ".join(kernel["launch"])
                text = f"| `{name}` | {kernel['name']} | {kernel['us']:.1f} | {kernel['predicted_us']:.1f} | {said} |"
                found.append((max(ratio, 1 / ratio), text))
    worst = sorted(found, reverse=True)[:_WORST]
    if not worst:
        return []
    head = ["| program | kernel | measured (us) | predicted | launch |", "|---|---|---:|---:|---|"]
    return ["Kernels that the model knows least about:", "", *head, *(text for _, text in worst), ""]


def _failures(latest: dict[tuple[str, str | None], Record]) -> list[str]:
    failed = [(step, name, record) for (step, name), record in latest.items() if record["status"] != "ok"]
    return [f"- {step} {name or ''}: {record['error']}" for step, name, record in failed] + [""] * bool(failed)
