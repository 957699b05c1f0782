"""Write the measured table of the root README from the peers study: python experiments/readme_table.py."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "experiments" / "peers"
BEGIN, END = "<!-- measured -->\n", "<!-- end of measured -->\n"
COLUMN = "fresh"
TORCH = ("torch", "torch autotune", "torch idiomatic")
JAX = ("jax", "jax idiomatic")
PROGRAMS = (
    "softmax,layer_norm_residual,black_scholes,hdiff,gelu_mlp,bert_layer,attention,adam,concat_users,conv_bn_relu"
)


def section(rows: Sequence[Any], run: dict[str, Any], programs: Sequence[str], geometric_mean: Any) -> str:
    """The sentences and the table; `rows` are those of the study's `figures` module."""
    whole = [row for row in rows if row.best(COLUMN) and "numpy" in row.against[COLUMN]]
    machine, settings = run["machine"], run["settings"]
    best = [row.best(COLUMN) for row in whole]
    over_numpy = geometric_mean(row.against[COLUMN]["numpy"].over.value for row in whole)
    over_best = geometric_mean(standing.over.value for standing in best)
    counts = {who: sum(standing.ahead == who for standing in best) for who in ("ours", "neither", "theirs")}
    lines = [
        f"On {machine['model']} ({settings['threads']} threads), tuned plans of {len(whole)} programs are "
        f"{over_numpy:.1f} times as fast as NumPy, and {over_best:.2f} times as fast as the fastest of JAX, "
        f"torch.compile, torch's own ops and Numba, chosen program by program (geometric means; "
        f"{settings['budget']:g} s of tuning each). Against that best one autofuse is ahead on {counts['ours']} "
        f"programs, behind on {counts['theirs']}, and not to be told apart on {counts['neither']}. Milliseconds per "
        "call, of JAX and torch their better form; all in "
        "[experiments/results/peers.md](experiments/results/peers.md):",
        "",
        "| program | NumPy | JAX | torch | Numba | autofuse | best other / autofuse |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in [row for row in whole if row.program in programs] or whole:
        cells = [least(row, variants) for variants in (("numpy",), JAX, TORCH, ("numba",), ("autofuse",))]
        standing = row.best(COLUMN)
        lines.append(f"| `{row.program}` | {' | '.join(cells)} | {standing.over} {standing.name} |")
    return "\n".join(lines) + "\n"


def least(row: Any, variants: Sequence[str]) -> str:
    """The least time among variants, in milliseconds."""
    found = [row.times[COLUMN][variant].value for variant in variants if variant in row.times[COLUMN]]
    return f"{min(found):.3g}" if found else "-"


def replaced(readme: str, text: str) -> str:
    """The README with the section between its two marks replaced. Raises ValueError where the marks are missing."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README lacks the marks {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + text + END + after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=ROOT / "experiments" / "results" / "peers.jsonl")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--programs", default=PROGRAMS)
    options = parser.parse_args()
    sys.path[:0] = [str(STUDY), str(STUDY.parent / "common")]
    journal, standings, figures = (importlib.import_module(name) for name in ("journal", "standings", "figures"))
    records = journal.Journal(options.records)
    run = records.latest(kind="run")
    if run is None:
        print(f"error: {options.records} holds no run; make one with make peers", file=sys.stderr)
        return 2
    timed = [record for record in records.records if record["kind"] == "round"]
    rounds = 1 + max(record["round"] for record in timed)
    workloads = {file.stem for file in (ROOT / "datasets" / "workloads").glob("*.py")}
    names = sorted({record["program"] for record in timed} & workloads)
    rows = figures.build_rows(names, records, rounds)
    text = section(rows, run, options.programs.split(","), standings.geometric_mean)
    options.readme.write_text(replaced(options.readme.read_text(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
