"""What the report says of calibration, forms, aims, tuning, races and kernels that were looked at closely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aims import DEVICE
from journal import Record

Latest = Mapping[tuple[str, str | None], Record]
"""The newest record of each step and program."""


def calibration_lines(record: Record | None) -> list[str]:
    if record is None or record["status"] != "ok":
        said = "was not tried" if record is None else f"failed: {record['error']}"
        return [f"Calibration {said}. Prices are of the data sheet.", ""]
    rates = ", ".join(
        f"{name} {value:.4g}" for name, value in record["facts"]["rates"].items() if isinstance(value, float)
    )
    return [f"Calibrated, kept in {record['file']}: {rates}.", ""]


def form_lines(latest: Latest) -> list[str]:
    forms = _of(latest, "form")
    if not forms:
        return []
    wrong = [f"- **{name}**: {record['said']}" for name, record in forms.items() if not record["right"]]
    right = f"{len(forms) - len(wrong)} of {len(forms)} forms of kernels and calls"
    return [f"Right, unfused and fused, called and replayed: {right}.", "", *wrong, *([""] if wrong else [])]


def aim_lines(latest: Latest, here: Record) -> list[str]:
    """Times beside what an H200 should reach, judged by kernels; of another device no verdict."""
    aims = _of(latest, "aim")
    if not aims:
        return []
    is_meant = DEVICE in here.get("device", "") and here.get("driver") != "simulated"
    tuned = _of(latest, "aim-tuned")
    rows: list[str] = []
    for name, record in aims.items():
        better = tuned[name]["kernels_us"] if name in tuned else None
        best = min(record["kernels_us"], better or record["kernels_us"])
        verdict = ("met" if best <= record["aim_us"] else "missed") if is_meant else "no H200"
        times = f"{record['aim_us']:.0f} | {record['kernels_us']:.1f} | {_us(better)} | {verdict}"
        rows.append(f"| {name} | {times} | {record['us']:.1f} | {record['unfused_us']:.1f} | {record['error']:.1e} |")
    head = "| program | aim on an H200 (us) | kernels | tuned, if missed | | a call | unfused | error beside unfused |"
    return [head, "|---|---:|---:|---:|---|---:|---:|---:|", *rows, ""]


def question_lines(latest: Latest) -> list[str]:
    """Kernels in several ways."""
    rows = [
        f"| {name} | {way['way']} | {_us(way['us'])} | {_us(way['predicted_us'])} | {way['said']} |"
        for name, record in _of(latest, "question").items()
        for way in record["ways"]
    ]
    head = ["What counts left open:", "", "| kernel | way | measured (us) | predicted | |", "|---|---|---:|---:|---|"]
    return [*head, *rows, ""] if rows else []


def tuned_lines(latest: Latest) -> list[str]:
    rows: list[str] = []
    for name, r in _of(latest, "tune").items():
        counts = f"{r['measured']} | {r['schedules']} | {r['seconds']:.0f}"
        rows.append(f"| `{name}` | {_us(r['us'])} | {_us(r['unfused_us'])} | {counts} |")
    head = "| program, tuned | plan (us) | unfused | kernels measured | schedules tried | seconds |"
    return [head, "|---|---:|---:|---:|---:|---:|", *rows, ""] if rows else []


def raced_lines(latest: Latest) -> list[str]:
    rows = [
        f"| `{name}` | {r['starts']} | {_us(r['graphs'])} | {_us(r['launches'])} | {_us(r['one stream'])} |"
        for name, r in _of(latest, "race").items()
    ]
    head = "| program, one call | starts | as graphs (us) | launched one by one | graphs without concurrent groups |"
    return [head, "|---|---:|---:|---:|---:|", *rows, ""] if rows else []


def profile_lines(records: Sequence[Record]) -> list[str]:
    lines: list[str] = []
    for record in records:
        if record.get("step") == "profile" and record["status"] == "ok":
            times = ", ".join(f"{word} {_time(record.get(f'{word}_us'))}" for word in ("warm", "cold"))
            lines += [f"- `{record['program']}` {record['kernel']}: {times}"]
            lines += [f"  - {line}" for line in record["launch"]]
    return ["Looked at closely, with operands in caches (warm) and in memory (cold):", "", *lines, ""] if lines else []


def _of(latest: Latest, step: str) -> dict[str, Record]:
    """What a step found, by program."""
    return {str(name): r for (one, name), r in latest.items() if one == step and r["status"] == "ok"}


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:.1f}"


def _time(us: float | str | None) -> str:
    return us if isinstance(us, str) else "not measured alone" if us is None else f"{us:.1f} us"
