"""How fast are loops beside JAX and Numba? python experiments/loops/run.py [--programs life lorenz].

In the environment of `make peers`. Each program of datasets/workloads/loops runs in a process of its own, in which all
sides take turns: autofuse (a plan by the cost model alone), NumPy, and where its loops are `af.scan`, `af.fori_loop` or
`af.while_loop` also JAX, from the same source and rewritten, and Numba by hand. Answers are checked at both sizes
before anything is timed. Writes loops.jsonl and loops.md into --out. Half an hour; the same command carries on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from journal import Journal
from loops_report import report
from loops_sides import SIDES, loop_programs
from provenance import ROOT, machine, open_run
from versions import versions

HERE = Path(__file__).resolve().parent


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--programs", nargs="+", default=None, help="programs (default all)")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--blocks", type=int, default=7, help="turns of each side (default 7)")
    parser.add_argument(
        "--most-seconds",
        type=float,
        default=60.0,
        help="of all timed calls of a side; slower ones get three calls, then none and an estimate (default 60)",
    )
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for all of a program (default 900)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    options = parse(argv)
    journal = Journal(options.out / "loops.jsonl", fresh=options.fresh)
    settings: dict[str, Any] = {
        name: getattr(options, name) for name in ("size", "sides", "blocks", "most_seconds", "seed")
    }
    run = open_run(journal, settings, machine() | versions())
    programs = loop_programs(options.programs)
    for program in programs:
        if journal.latest(kind="times", program=program.name, status="ok") is None:
            outcome = in_child(HERE / "child.py", {"program": program.name, **settings}, options.limit)
            tell(program.name, outcome)
            journal.append({"kind": "times", "program": program.name, **outcome})
        (options.out / "loops.md").write_text(report(journal, run, loop_programs()))
    print((options.out / "loops.md").read_text())


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
