"""How the search grows with the program, and what cutting it costs: python experiments/search_scaling/run.py.

Deeper and deeper BERT encoders, longer and longer unrolled recurrences and larger and larger random graphs are planned
under the analytical model, whole and in segments, each in a process of its own, and BERT of twelve layers is tuned.
Writes search-scaling.jsonl (a record per process, as soon as it is done) and search-scaling.md into --out. The same
command again does what is missing. Some ten minutes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from journal import Journal, Record
from provenance import ROOT, machine, open_run
from scaling_report import render

CHILD = Path(__file__).resolve().parent / "child.py"
LIMIT_S = 600.0
SIZES = {
    "bert": (1, 2, 4, 8, 12, 16, 24, 32, 48, 64),
    "lstm": (4, 8, 16, 32, 64),
    "random": (125, 250, 500, 1000),
}
"""By program: layers, steps and operations."""
WAYS = ("segments", "whole")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--programs", default=",".join(SIZES), help="separated by commas (default %(default)s)")
    parser.add_argument("--most", type=int, help="largest size of any program; default all")
    parser.add_argument("--whole", type=int, help="largest size that is also searched whole; default all")
    parser.add_argument("--segment", type=int, default=160, help="most atoms of a segment (default 160)")
    parser.add_argument("--budget", type=float, default=100.0, help="seconds of tuning BERT; 0: none (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the random graphs")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    options = parser.parse_args(argv)
    options.programs = options.programs.split(",")
    unknown = sorted(set(options.programs) - set(SIZES))
    if unknown:
        parser.error(f"--programs: must be among {', '.join(SIZES)}; got {unknown[0]!r}")
    return options


def tasks(options: argparse.Namespace) -> list[Record]:
    """What is searched, in order, and what is tuned."""
    layers = SIZES["bert"] if options.most is None else [n for n in SIZES["bert"] if n <= options.most]
    tuned: Record = {"kind": "tune", "program": "bert", "size": 12, "way": "tuned", "budget_s": options.budget}
    return [tuned] * ("bert" in options.programs and 12 in layers and options.budget > 0) + [
        {"kind": "search", "program": program, "size": size, "way": way}
        for program in options.programs
        for size in SIZES[program]
        if options.most is None or size <= options.most
        for way in WAYS
        if way == "segments" or options.whole is None or size <= options.whole
    ]


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    journal = Journal(options.out / "search-scaling.jsonl", options.fresh)
    run = open_run(journal, {"segment": options.segment, "seed": options.seed}, machine())
    wanted = tasks(options)
    try:
        for task in wanted:
            known = journal.latest(**task)
            if known and known["status"] == "ok":
                continue
            outcome = in_child(CHILD, {**task, **run["settings"]}, LIMIT_S)
            journal.append(task | outcome)
            tell(f"{task['program']} {task['size']} {task['way']}", task | outcome)
    finally:
        path = options.out / "search-scaling.md"
        path.write_text(render(run, [record for task in wanted if (record := journal.latest(**task))]))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
