"""The report of what kernels ask of a GPU, from raw records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from explained import reason
from journal import Journal, Record

from autofuse.testing.simt.gates import GATES, ONE_LAUNCH, PROGRAM_BYTES, Gate, exemption, is_asked, standing


def render(run: Record, journal: Journal) -> str:
    """All of it."""
    programs, settings = counted(journal), run["settings"]
    return "\n".join(
        (
            "# What kernels ask of a GPU",
            "",
            f"Counted on the host, for a plan of each program for {settings['device']} at {settings['size']} size, "
            f"{settings.get('numerics', 'strict')} numerics. "
            f"At most {settings['most_blocks']} blocks of each launch ran. Nothing ran on a GPU. {run['begun']}, "
            f"commit {run['commit']}. `python experiments/gpu_counts/run.py` makes it again.",
            "",
            *_totals(programs),
            *_programs(programs),
            *_missed(programs),
            *_table(programs),
            *_chains(programs),
            *_failures(journal, programs),
        )
    )


def counted(journal: Journal) -> dict[str, Record]:
    """The last record of each program that was counted."""
    return {record["program"]: record for record in journal.records if record.get("status") == "ok"}


def baseline(run: Record, journal: Journal) -> dict[str, Any]:
    """What a test compares later counts with."""
    programs = {name: standing(record) for name, record in sorted(counted(journal).items())}
    return {**run["settings"], "nvrtc": run["machine"]["nvrtc"], "programs": programs}


def _programs(programs: dict[str, Record]) -> list[str]:
    """What concerns a program: launches, and calls of the driver that replay it."""
    rows: list[str] = []
    for name, record in programs.items():
        found = standing(record)
        launches, calls = str(found["launches"]), str(found["replay_calls"])
        launches = f"**{launches}**" if name in ONE_LAUNCH and found["launches"] > 1 else launches
        rows.append(f"| `{name}` | {launches} | {calls if calls == '1' else f'**{calls}**'} |")
    note = f"One launch is the aim for {' and '.join(f'`{name}`' for name in sorted(ONE_LAUNCH))}."
    return [note, "", "| program | launches | driver calls of a replay |", "|---|---:|---:|", *rows, ""]


def _totals(programs: dict[str, Record]) -> list[str]:
    """How many launches pass each gate: of those that its limit is for, and of all."""
    rows: list[str] = []
    for gate in GATES:
        asked: list[bool] = []
        every: list[bool] = []
        for record in programs.values():
            for launch in record["launches"]:
                value = gate.value(launch, record["multiprocessors"])
                if value is not None:
                    every.append(gate.passes(value))
                    asked += every[-1:] if is_asked(gate, exemption(launch, record)) else []
        rows.append(f"| {gate.name} | {gate.wish} | {_passed(asked)} | {_passed(every)} |")
    return [
        f"Limits are for launches of programs whose arguments and results are {PROGRAM_BYTES // 10**6} MB and more, "
        "that move more than memory gives while a launch is started. The column `exempt` below says which launches are "
        "left out: `small` ones by all gates; `compute`, where the model says that arithmetic limits a launch, by "
        "those of bytes asked, bytes in flight and instructions; `product`, which reads operands once for each tile "
        "of results, by those of bytes asked and instructions.",
        "",
        "| gate | limit | launches that pass, of those it is for | of all |",
        "|---|---|---:|---:|",
        *rows,
        "",
    ]


def _passed(found: Sequence[bool]) -> str:
    return f"{sum(found)} of {len(found)}"


def _table(programs: dict[str, Record]) -> list[str]:
    head = ["program", "kernel", "blocks of threads", "registers", "exempt", *(gate.name for gate in GATES)]
    rows: list[str] = []
    for name, record in programs.items():
        for launch in record["launches"]:
            times = f" ({launch['times']} times)" if launch["times"] > 1 else ""
            times += f" ({launch['members']} together)" if launch.get("members", 1) > 1 else ""
            exempt = exemption(launch, record)
            cells = [_cell(gate, gate.value(launch, record["multiprocessors"]), exempt) for gate in GATES]
            turns = f" for {launch['blocks']}" if launch["grid"] < launch["blocks"] else ""
            shape = f"{launch['grid']}{turns} of {launch['threads']}"
            rows.append(
                f"| `{name}` | {launch['function']}{times} | {shape} | {launch.get('registers', '-')} | "
                f"{exempt or ''} | {' | '.join(cells)} |"
            )
    note = (
        "Values that do not pass are bold where the limit is for the launch, and in brackets where it is not. "
        "`489 for 977`: blocks that take the work of so many in turn. Bytes in flight are asked of launches that read "
        "as much on each multiprocessor."
    )
    columns = f"|---|---|---:|---:|---|{'---:|' * len(GATES)}"
    return [note, "", f"| {' | '.join(head)} |", columns, *rows, ""]


def _missed(programs: dict[str, Record]) -> list[str]:
    """Which launches miss a limit that is for them, and why."""
    rows: list[str] = []
    for name, record in programs.items():
        for launch in record["launches"]:
            exempt = exemption(launch, record)
            for gate in GATES:
                value = gate.value(launch, record["multiprocessors"])
                if value is not None and is_asked(gate, exempt) and not gate.passes(value):
                    why = reason(name, launch["function"], gate.name)
                    shown = f"{gate.name} {format(value, gate.shown)}, {gate.wish}"
                    rows.append(f"- `{name}`, {launch['function']}: {shown}: {why}")
    return ["Limits that are missed:", "", *rows, ""] if rows else []


def _chains(programs: dict[str, Record]) -> list[str]:
    """How often chained products read their right operands, and why more often than once for 128 rows."""
    note = (
        "Products of which one multiplies what another made, as in attention. Their right operands are to be read once "
        "for 128 rows, or for as few as give each multiprocessor one block: `blocks of 128` says how many blocks of so "
        "many rows there would be."
    )
    head = "| program | kernel | products side by side | rows of each | read | for 128 rows | blocks of 128 |"
    rows: list[str] = []
    for name, record in programs.items():
        for launch in record["launches"]:
            if (chained := launch.get("chained")) is not None:
                few = -(-chained["rows"] // 128)
                blocks = f"{few * chained['products']} on {record['multiprocessors']}"
                rows.append(
                    f"| `{name}` | {launch['function']} | {chained['products']} | {chained['rows']} | "
                    f"{chained['reads']:.2f} | {chained['reads'] / few:.2f} | {blocks} |"
                )
    return [note, "", head, "|---|---|---:|---:|---:|---:|---:|", *rows, ""] if rows else []


def _cell(gate: Gate, value: float | None, exempt: str | None) -> str:
    if value is None:
        return "-"
    text = format(value, gate.shown)
    if gate.passes(value):
        return text
    return f"**{text}**" if is_asked(gate, exempt) else f"({text})"


def _failures(journal: Journal, programs: dict[str, Record]) -> Sequence[str]:
    failed = {r["program"]: r["error"] for r in journal.records if r.get("status") == "failed"}
    return [f"- `{name}`: {error}" for name, error in failed.items() if name not in programs]
