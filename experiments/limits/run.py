"""How near the CPU backend comes to the machine: python experiments/limits/run.py.

Matrix products, generated and by BLAS inside a plan, beside NumPy's and (where it is installed) PyTorch's, one shape
and thread count per process, the contestants taking turns; and what a fork-join costs. Writes limits.jsonl (a record
per process, as soon as it is done) and limits.md into --out. The same command again does what is missing. Minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from journal import Journal, Record
from limits_report import render
from provenance import ROOT, machine, open_run

CHILD = Path(__file__).resolve().parent / "child.py"
LIMIT_S = 300.0
SHAPES = {
    "square": (1024, 1024, 1024),
    "feed-forward up, 512 tokens": (512, 768, 3072),
    "feed-forward down, 512 tokens": (512, 3072, 768),
    "projection, 128 tokens": (128, 768, 768),
    "many rows": (4096, 256, 1024),
    "odd": (1000, 333, 777),
    "small": (64, 64, 64),
    "one row": (1, 1024, 4096),
}
"""(rows, depth, columns) of f32 products."""
SPINNING = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""Libraries' threads that go on spinning after a product would take the cores of whoever comes next."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--turns", type=int, default=25, help="samples of each contestant per process (default 25)")
    parser.add_argument("--shapes", help=f"of {', '.join(SHAPES)}; separated by semicolons; default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    options = parser.parse_args(argv)
    options.shapes = options.shapes.split(";") if options.shapes else list(SHAPES)
    unknown = sorted(set(options.shapes) - set(SHAPES))
    if unknown:
        parser.error(f"--shapes: must be among {'; '.join(SHAPES)}; got {unknown[0]!r}")
    return options


def tasks(options: argparse.Namespace, most_threads: int) -> list[Record]:
    """What is measured, in order."""
    counts = sorted({1, most_threads})
    joins: list[Record] = [{"kind": "fork-join", "threads": count} for count in counts if count > 1]
    return joins + [
        {"kind": "product", "shape": list(SHAPES[name]), "threads": count}
        for name in options.shapes
        for count in counts
    ]


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    journal = Journal(options.out / "limits.jsonl", options.fresh)
    run = open_run(journal, {"turns": options.turns, "seed": options.seed}, machine())
    wanted = tasks(options, len(os.sched_getaffinity(0)))
    try:
        for task in wanted:
            known = journal.latest(**task)
            if known and known["status"] == "ok":
                continue
            threads = str(task["threads"])
            count = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
            environment = {**os.environ, **SPINNING, **count, "AUTOFUSE_NUM_THREADS": threads}
            outcome = in_child(CHILD, {**task, **run["settings"]}, LIMIT_S, environment)
            journal.append(task | outcome)
            tell(" ".join(str(value) for value in task.values()), task | outcome)
    finally:
        path = options.out / "limits.md"
        path.write_text(render(run, [record for task in wanted if (record := journal.latest(**task))], SHAPES))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
