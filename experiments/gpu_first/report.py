"""The written result: from plain records to Markdown, nothing measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

HEADING = (
    *("program", "correct", "us", "quartiles", "rate", "of a copy", "CuPy us", "registers", "spills", "occupancy"),
    "grid x block",
)


def rate(result: Record) -> str:
    """Achieved throughput of one result, in the unit that binds it."""
    if result["flops"]:
        return f"{result['flops'] / result['us'] / 1e6:.1f} TFLOP/s"
    return f"{result['bytes'] / result['us'] / 1e3:.0f} GB/s"


def share(result: Record, copy_bytes_per_s: float) -> str:
    """Throughput against a plain device copy; matrix products have no such share."""
    if result["flops"]:
        return ""
    return f"{100 * result['bytes'] / (result['us'] * 1e-6) / copy_bytes_per_s:.0f} %"


def render(run: Record) -> str:
    """The whole report. `run` is what `run.py` writes as JSON."""
    machine = run["machine"]
    lines = [
        "# First kernels on a GPU",
        "",
        f"{machine['name']}, compute capability {machine['compute_capability']}, {machine['multiprocessors']} "
        f"multiprocessors, driver {machine['driver']}, NVRTC {machine['nvrtc']}, CuPy {machine['cupy']}, "
        f"Python {machine['python']}.",
        f"Command: `{run['command']}`, {run['begun']}, at commit {run['commit']}.",
        "",
        f"A device copy (CuPy, 1 GiB) moves {run['copy_bytes_per_s'] / 1e9:.0f} GB/s, read and written bytes counted. "
        "Bytes are those of inputs read once and outputs written once, so a share above 100 % means a cache helped. "
        "Times are medians of CUDA events over single launches; `CuPy` is the same in ordinary CuPy calls.",
        "",
        *_table(run["results"], run["copy_bytes_per_s"]),
    ]
    if run["sweep"]:
        lines += ["", "## Other schedules", "", *_table(run["sweep"], run["copy_bytes_per_s"])]
    failed = [r for r in (*run["results"], *run["sweep"]) if r["status"] != "ok"]
    if failed:
        lines += ["", "## Failures", "", *(f"- {r['name']}: {r['status']}" for r in failed)]
    return "\n".join(lines) + "\n"


def _table(results: Sequence[Record], copy_bytes_per_s: float) -> list[str]:
    lines = [
        f"| {' | '.join(HEADING)} |",
        "|---" * len(HEADING) + "|",
    ]
    for r in results:
        if r["status"] != "ok":
            lines.append(f"| {r['name']} | **no** | | | | | | | | | |")
            continue
        low, high = r["quartiles"]
        peer = "" if r["peer_us"] is None else f"{r['peer_us']:.1f}"
        shape = " + ".join(f"{launch['grid']} x {launch['block']}" for launch in r["launches"])
        parts = [
            *(r["name"], "yes", f"{r['us']:.1f}", f"{low:.1f} to {high:.1f}", rate(r), share(r, copy_bytes_per_s)),
            *(peer, _each(r, "registers"), _each(r, "spill_bytes"), _each(r, "occupancy"), shape),
        ]
        lines.append(f"| {' | '.join(parts)} |")
    return lines


def _each(result: Record, key: str) -> str:
    return " + ".join(str(launch[key]) for launch in result["launches"])
