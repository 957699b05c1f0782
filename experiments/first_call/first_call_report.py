"""The report of first calls, from raw records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from journal import Journal, Record
from standings import geometric_mean

WORDS = {"before": "before", "autofuse": "autofuse", "jax": "JAX jit", "torch": "torch.compile"}
"""Ways by name, in the order of columns."""


def render(run: Record, journal: Journal) -> str:
    """All of it."""
    records = [record for record in journal.records if record.get("kind") in ("first", "second")]
    cases = sorted({(record["program"], record["size"]) for record in records}, key=lambda case: (case[1], case[0]))
    ways = [way for way in WORDS if any(record["way"] == way for record in records)]
    columns = [(way, kind) for way in ways for kind in ("first", "second")]
    head = ["program", *(f"{WORDS[way]}, {kind}" for way, kind in columns)]
    rows = [f"| {' | '.join(head)} |", f"|---|{'---:|' * len(columns)}"]
    small = [case for case in cases if case[1] == "small"]
    if small:
        means = [_mean(records, small, way, kind) for way, kind in columns]
        rows.append(f"| **geometric mean** | {' | '.join(means)} |")
    for program, size in cases:
        name = f"`{program}`" + (f" ({size} size)" if size != "small" else "")
        cells = [_cell(_median(records, program, size, way, kind)) for way, kind in columns]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    numpy_s = [record["numpy_s"] for record in records if record["status"] == "ok"]
    here = run["machine"]
    return "\n".join(
        (
            "# How long does a first call take?",
            "",
            f"{here['model']} ({here['threads']} threads), Python {here['python']}, NumPy {here['numpy']}, "
            f"{run['begun']}, commit {run['commit']}. `python experiments/first_call/run.py` makes it again.",
            "",
            "Seconds from the first line of a fresh process to the first result: imports, compiling, one call. First: "
            "with empty caches. Second: another process, with the caches that the first one filled. Medians. Sizes are "
            "those that programs have for tests, so that the run itself takes no time, but where another one is named. "
            f"Importing NumPy is part of it: {np.median(numpy_s) if numpy_s else float('nan'):.3f} s. Bytecode is "
            "there, as in an installation. Means are over the programs that a way runs, whose number is in brackets.",
            "",
            *rows,
            "",
            *_stages(records, small),
        )
    )


def _stages(records: Sequence[Record], small: Sequence[tuple[str, str]]) -> list[str]:
    """Where autofuse's time goes."""
    rows: list[str] = []
    for way in ("before", "autofuse"):
        for kind in ("first", "second"):
            found = [r for r in records if r["way"] == way and r["kind"] == kind and r["status"] == "ok"]
            found = [r for r in found if (r["program"], r["size"]) in small]
            if found:
                names = ("numpy_s", "import_s", "compile_s", "call_s")
                cells = [f"{np.median([record[name] for record in found]):.3f}" for name in names]
                rows.append(f"| {WORDS[way]}, {kind} | {' | '.join(cells)} |")
    if not rows:
        return []
    head = ["| | NumPy | imports of autofuse | compiling | first call |", "|---|---:|---:|---:|---:|"]
    return ["Medians over the small programs:", "", *head, *rows, ""]


def _median(records: Sequence[Record], program: str, size: str, way: str, kind: str) -> float | None:
    wanted = {"program": program, "size": size, "way": way, "kind": kind, "status": "ok"}
    found = [r["total_s"] for r in records if all(r.get(name) == value for name, value in wanted.items())]
    return float(np.median(found)) if found else None


def _mean(records: Sequence[Record], cases: Sequence[tuple[str, str]], way: str, kind: str) -> str:
    found = [_median(records, program, size, way, kind) for program, size in cases]
    known = [seconds for seconds in found if seconds is not None]
    return f"{geometric_mean(known):.3f} ({len(known)})" if known else "-"


def _cell(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"
