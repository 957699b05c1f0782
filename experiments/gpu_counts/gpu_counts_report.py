"""The report of what kernels ask of a GPU, from raw records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from journal import Journal, Record


class Gate(NamedTuple):
    """What a launch should keep to."""

    name: str
    limit: str
    value: Callable[[Record, int], float | None]
    """Of a launch, on so many multiprocessors; None where it does not apply."""
    passes: Callable[[float], bool]
    shown: str
    """How a value is written."""


def _repeated(launch: Record, _: int) -> float:
    return _ratio(launch["fetched_bytes"] + launch["written_bytes"], _needed(launch))


def _scattered(launch: Record, _: int) -> float:
    return _ratio(launch["sectors"], launch["ideal_sectors"])


def _wide(launch: Record, _: int) -> float:
    return launch["wide_bytes"] / max(launch["read_bytes"] + launch["written_bytes"], 1)


def _conflicted(launch: Record, _: int) -> float:
    return _ratio(launch["wavefronts"], launch["ideal_wavefronts"])


def _lost(launch: Record, multiprocessors: int) -> float | None:
    """Share of the device that has nothing to do in the last wave."""
    at_once = launch.get("resident_blocks", 0) * multiprocessors
    if not at_once:
        return None
    waves = launch["blocks"] / at_once
    return 1.0 - waves / math.ceil(waves) if waves > 1 else 0.0


def _spilled(launch: Record, _: int) -> float | None:
    return launch["spill_bytes"] + launch["stack_bytes"] if "spill_bytes" in launch else None


def _needed(launch: Record) -> int:
    return launch["needed_read_bytes"] + launch["needed_written_bytes"]


def _ratio(what: int, of: int) -> float:
    return what / of if of else 1.0


GATES = (
    Gate("bytes asked over needed", "at most 1.05", _repeated, lambda value: value <= 1.05, ".2f"),
    Gate("sectors over ideal", "at most 1.05", _scattered, lambda value: value <= 1.05, ".2f"),
    Gate("by wide accesses", "at least 0.95", _wide, lambda value: value >= 0.95, ".2f"),
    Gate("shared wavefronts over ideal", "at most 1.05", _conflicted, lambda value: value <= 1.05, ".2f"),
    Gate("last wave loses", "at most 0.10", _lost, lambda value: value <= 0.10, ".2f"),
    Gate("local memory, bytes", "0", _spilled, lambda value: value == 0, ".0f"),
)


def render(run: Record, journal: Journal) -> str:
    """All of it."""
    programs = {record["program"]: record for record in journal.records if record.get("status") == "ok"}
    settings = run["settings"]
    return "\n".join(
        (
            "# What kernels ask of a GPU",
            "",
            f"Counted on the host, for a plan of each program for {settings['device']} at {settings['size']} size. "
            f"At most {settings['most_blocks']} blocks of each launch ran. Nothing ran on a GPU. {run['begun']}, "
            f"commit {run['commit']}. `python experiments/gpu_counts/run.py` makes it again.",
            "",
            *_totals(programs),
            *_table(programs),
            *_failures(journal, programs),
        )
    )


def _totals(programs: dict[str, Record]) -> list[str]:
    """How many launches pass each gate."""
    rows: list[str] = []
    for gate in GATES:
        values = [
            value
            for record in programs.values()
            for launch in record["launches"]
            if (value := gate.value(launch, record["multiprocessors"])) is not None
        ]
        passed = sum(map(gate.passes, values))
        rows.append(f"| {gate.name} | {gate.limit} | {passed} of {len(values)} |")
    return ["| gate | limit | launches that pass |", "|---|---|---:|", *rows, ""]


def _table(programs: dict[str, Record]) -> list[str]:
    head = ["program", "kernel", "blocks of threads", "registers", *(gate.name for gate in GATES)]
    rows: list[str] = []
    for name, record in programs.items():
        for launch in record["launches"]:
            times = f" ({launch['times']} times)" if launch["times"] > 1 else ""
            times += f" ({launch['members']} together)" if launch.get("members", 1) > 1 else ""
            cells = [_cell(gate, launch, record["multiprocessors"]) for gate in GATES]
            shape = f"{launch['blocks']} of {launch['threads']}"
            rows.append(
                f"| `{name}` | {launch['function']}{times} | {shape} | {launch.get('registers', '-')} | "
                f"{' | '.join(cells)} |"
            )
    note = "Values that do not pass are bold."
    return [note, "", f"| {' | '.join(head)} |", f"|---|---|---:|---:|{'---:|' * len(GATES)}", *rows, ""]


def _cell(gate: Gate, launch: Record, multiprocessors: int) -> str:
    value = gate.value(launch, multiprocessors)
    if value is None:
        return "-"
    text = format(value, gate.shown)
    return text if gate.passes(value) else f"**{text}**"


def _failures(journal: Journal, programs: dict[str, Record]) -> Sequence[str]:
    failed = {r["program"]: r["error"] for r in journal.records if r.get("status") == "failed"}
    return [f"- `{name}`: {error}" for name, error in failed.items() if name not in programs]
