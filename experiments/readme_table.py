"""Write the measured table of the root README from the CPU study's records: python experiments/readme_table.py."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "experiments" / "cpu_first"
BEGIN, END = "<!-- measured -->\n", "<!-- end of measured -->\n"


def section(rows: list[Any], run: dict[str, Any], programs: list[str], geometric_mean: Any) -> str:
    """The sentence and the table; `rows` and `geometric_mean` are those of the study's `table` module."""
    whole = [row for row in rows if row.over_numpy and row.over_unfused]
    machine, settings = run["machine"], run["settings"]
    faster = geometric_mean(row.over_numpy.value for row in whole)
    fused = geometric_mean(row.over_unfused.value for row in whole)
    lines = [
        f"On {machine['model']} ({machine['threads']} threads), tuned plans of {len(whole)} programs are "
        f"{faster:.1f} times as fast as NumPy and {fused:.1f} times as fast as the same code generator without fusion "
        f"(geometric means; {settings['budget']:g} s of tuning each). A few of them, all in "
        "[experiments/results/cpu-first.md](experiments/results/cpu-first.md):",
        "",
        "| program | NumPy | unfused | measured plan | kernels unfused / measured | NumPy / measured |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    chosen = [row for row in whole if row.program in programs] or whole
    for row in chosen:
        times = [f"{row.times[variant].median:.3g} ms" for variant in ("numpy", "unfused", "measured")]
        kernels = f"{row.kernels['unfused']} / {row.kernels['measured']}"
        found = row.over_numpy
        ratio = f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"
        lines.append(f"| `{row.program}` | {' | '.join(times)} | {kernels} | {ratio} |")
    return "\n".join(lines) + "\n"


def replaced(readme: str, text: str) -> str:
    """The README with the section between its two marks replaced. Raises ValueError where the marks are missing."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README lacks the marks {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + text + END + after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=ROOT / "experiments" / "results" / "cpu-first.jsonl")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--programs", default="softmax,layer_norm_residual,black_scholes,hdiff,gelu_mlp,adam")
    options = parser.parse_args()
    sys.path.insert(0, str(STUDY))
    journal, table = importlib.import_module("journal"), importlib.import_module("table")
    records = journal.Journal(options.records)
    run = records.latest(kind="run")
    if run is None:
        print(
            f"error: {options.records} holds no run; make one with python experiments/cpu_first/run.py", file=sys.stderr
        )
        return 2
    names = dict.fromkeys(record["program"] for record in records.records if record["kind"] == "round")
    rounds = 1 + max(record["round"] for record in records.records if record["kind"] == "round")
    rows = [table.build_row(name, records, rounds) for name in names]
    text = section(rows, run, options.programs.split(","), table.geometric_mean)
    options.readme.write_text(replaced(options.readme.read_text(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
