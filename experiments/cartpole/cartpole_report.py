"""The report of the CartPole study from its records. Nothing here measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bounded import FEW
from sides import SIDES

Record = dict[str, Any]

COMPILED = ("autofuse", "JAX")
"""First words of sides that compile for a number of environments and steps; the check has compiled the others."""

TITLES = {
    "same": "The same work: numbers drawn in each step",
    "less": "Less work: numbers drawn before the loop and passed in",
}
NOTES = {
    "same": "Keys are split and numbers drawn in each step; all sides but torch draw the same bits. For torch its own "
    "generator draws, as its users have it: that is less work than theirs.",
    "less": "The numbers of all steps are arguments, `bool[T, N]` and `f32[T, N, 4]`; nobody's time of drawing them is "
    "in the table. All sides get the same numbers.",
}
PAPER = (
    ("JAX as one writes it", "1.00", ("same", "JAX")),
    ("numbers drawn before (less work)", "1.87", ("less", "JAX")),
    ("no concatenation in the user's code (here with less work too)", "3.41", ("less", "JAX, no stacks")),
    ("the loop unrolled by ten (here with both)", "about 3.5", ("less", "JAX, no stacks, unrolled by ten")),
    ("the best of all", "10.56", None),
    ("PyTorch, eager", "0.13", ("same", "torch, eager")),
    ("TorchScript; here torch.compile, a step a call", "1.97", ("same", "torch, compiled steps")),
    ("by hand: CUDA; here C++ with packed vectors", "about 28", ("same", "C++, packed")),
    ("autofuse as one writes it", "", ("same", "autofuse")),
    ("autofuse, numbers drawn before (less work)", "", ("less", "autofuse")),
)
"""Steps of the paper, times as fast as its first, and what is nearest to each here."""


def cell(record: Record, name: str) -> tuple[float | None, str]:
    """Microseconds of a side's fastest call, and how they stand in a table of milliseconds."""
    if name in record["faults"]:
        return None, "failed"
    if name in record["foretold_us"]:
        return None, f"~{record['foretold_us'][name] / 1e3:.0f} ²"
    if name not in record["us"]:
        return None, ""
    us = min(min(block) for block in record["us"][name])
    return us, f"{us / 1e3:.3g}" + (" ¹" if name in record["few"] else "")


def report(records: Sequence[Record], run: Record) -> str:
    """All of it, as Markdown."""
    settings, here = run["settings"], run["machine"]
    rows = {(r["table"], r["envs"]): r for r in records if r["kind"] == "times"}
    lines = [
        "# CartPole",
        "",
        f"{settings['steps']} steps of a coin's policy, state `f32[N, 4]`. Fastest of all calls, sides in turns in one "
        "process. After 50 steps the states and rewards of all sides are JAX's; where torch draws, its mean reward is.",
        "",
        f"`{run['command']}`, commit {run['commit']}, {here['model']}, {here['threads']} threads. NumPy "
        f"{here['numpy']}, JAX {here['jax']}, torch {here['torch']}, Numba {here['numba']}.",
        "",
    ]
    for table in SIDES:
        counts = sorted(envs for other, envs in rows if other == table)
        if counts:
            lines += _table(table, [rows[table, count] for count in counts])
    lines += [
        f"¹ too slow for turns within {settings['most_seconds']:g} s: the fastest of {FEW} calls, after the others. "
        "² too slow for that: not run; foretold from 50 steps.",
        "",
        *_beside_the_paper(rows),
        *_faults(rows),
    ]
    return "\n".join(lines)


def _header(first: str, counts: Sequence[int], last: str = "") -> list[str]:
    heads = [first, *(f"{count:,}" for count in counts), *([last] if last else [])]
    return [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]


def _table(table: str, rows: Sequence[Record]) -> list[str]:
    """Milliseconds of every side, then how many times as long as autofuse on the naive source it takes."""
    counts = [record["envs"] for record in rows]
    times, ratios = (_header("environments", counts, last) for last in ("first call, s", ""))
    for name, side in SIDES[table].items():
        found = [cell(record, name) for record in rows]
        if not any(text for _, text in found):
            continue
        ready = rows[-1]["ready_s"].get(name) if name.startswith(COMPILED) else None
        times.append(
            _row(f"{name} ({side.form})", [text for _, text in found], "" if ready is None else f"{ready:.2f}")
        )
        own = [cell(record, "autofuse")[0] for record in rows]
        ratios.append(
            _row(
                f"{name} ({side.form})",
                [f"{us / base:.2f}" if us and base else "" for (us, _), base in zip(found, own, strict=True)],
            )
        )
    largest = f"First call: seconds of compiling and one call at {counts[-1]:,} environments, with all imported."
    return [
        f"## {TITLES[table]}",
        "",
        NOTES[table],
        "",
        "Milliseconds:",
        "",
        *times,
        "",
        largest,
        "",
        "Times as long as autofuse on the naive source:",
        "",
        *ratios,
        "",
    ]


def _row(first: str, cells: Sequence[str], *rest: str) -> str:
    return f"| {' | '.join([first, *cells, *rest])} |"


def _beside_the_paper(rows: dict[tuple[str, int], Record]) -> list[str]:
    counts = sorted({envs for table, envs in rows if ("same", envs) in rows and ("less", envs) in rows})
    if not counts:
        return []
    lines = _header("times as fast as JAX on the naive source", counts, "in the paper, on a GPU")
    for title, theirs, here in PAPER:
        cells = [_gain(rows, here, count) for count in counts] if here else ["" for _ in counts]
        lines.append(_row(title, cells, theirs))
    return [
        "## Beside the paper",
        "",
        "Snider and Liang (arXiv 2301.13062) rewrote this program by hand for XLA. Theirs ran on a GPU, with the "
        "XLA and the PyTorch of that time: their column and the others can be compared in direction only. Their "
        "first step does less work, and so does every row here that says so. The summaries at hand do not say "
        "whether a figure counts from the first program or from the step before. One more step, XLA changed to fuse "
        "concatenations (about 10 % more), has no row here.",
        "",
        *lines,
        "",
    ]


def _gain(rows: dict[tuple[str, int], Record], here: tuple[str, str], count: int) -> str:
    base, own = cell(rows["same", count], "JAX")[0], cell(rows[here[0], count], here[1])[0]
    return f"{base / own:.2f}" if base and own else ""


def _faults(rows: dict[tuple[str, int], Record]) -> list[str]:
    found = [
        f"- {name}, {table} work, {envs:,} environments: {fault}"
        for (table, envs), record in sorted(rows.items())
        for name, fault in record["faults"].items()
    ]
    return ["## Failed", "", *found, ""] if found else []
