"""How long a first call takes: python experiments/first_call/run.py, or `make first-call`.

A fresh process imports NumPy and a framework, compiles one program and calls it once. Caches are empty; then a second
process does the same with the caches that the first one filled. Ways and programs alternate in random order. Writes
first-call.jsonl and first-call.md into --out; the same command again does what is missing.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from first_call_report import render
from journal import Journal, Record
from provenance import ROOT, machine, open_run

from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, discover

CHILD = Path(__file__).resolve().parent / "child.py"
WAYS = ("numpy", "autofuse", "jax", "torch")
FULL = ("bert_layer",)
"""Programs that are compiled at their full size too."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--programs", help="separated by commas; default all, and bert_layer at full size")
    parser.add_argument("--ways", default=",".join(WAYS), help="separated by commas (default %(default)s)")
    parser.add_argument("--before", type=Path, help="checkout to compare with")
    parser.add_argument("--peers", default=sys.executable, help="Python that has JAX and torch; default this one")
    parser.add_argument("--rounds", type=int, default=3, help="of each, of which the median counts (default 3)")
    parser.add_argument("--limit", type=float, default=180.0, help="most seconds for a process (default 180)")
    parser.add_argument("--seed", type=int, default=0, help="of the order (default 0)")
    parser.add_argument("--quick", action="store_true", help="one small program, once, by NumPy and autofuse")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    options = parser.parse_args(argv)
    if options.quick:
        options.programs, options.ways, options.rounds = "softmax", "numpy,autofuse", 1
    return options


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    options.out.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.out / "first-call.jsonl", options.fresh)
    run = open_run(journal, {"seed": options.seed}, machine())
    ways = options.ways.split(",")
    checkouts = {"autofuse": ROOT}
    if options.before is not None:
        ways, checkouts["before"] = [*ways, "before"], options.before.resolve()
    for checkout in checkouts.values():  # an installation has bytecode, and so have the peers
        for package in ("autofuse", "search", "cost_models"):
            compileall.compile_dir(checkout / package, quiet=2)
    try:
        for task in _order(options, ways):
            if journal.latest(kind="first", **task) is None:
                _measure(journal, task, options, checkouts)
    finally:
        path = options.out / "first-call.md"
        path.write_text(render(run, journal))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def _order(options: argparse.Namespace, ways: list[str]) -> list[Record]:
    """Every program by every way, each round in another order."""
    names = options.programs.split(",") if options.programs else [program.name for program in discover()]
    cases = [(name, "small") for name in names]
    cases += [(name, "full") for name in FULL if not options.programs]
    rng = np.random.default_rng(options.seed)
    tasks: list[Record] = []
    for number in range(options.rounds):
        for place in rng.permutation(len(cases)):
            name, size = cases[place]
            order = [ways[n] for n in rng.permutation(len(ways))]
            tasks += [{"program": name, "size": size, "way": way, "round": number} for way in order]
    return tasks


def _measure(journal: Journal, task: Record, options: argparse.Namespace, checkouts: dict[str, Path]) -> None:
    """A first process with empty caches, and a second one with what it left there."""
    caches = tempfile.mkdtemp(prefix="autofuse-first-")
    checkout = checkouts.get(task["way"], ROOT)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AUTOFUSE_")},
        "PYTHONPATH": str(checkout),
        "XDG_CACHE_HOME": caches,
        "TORCHINDUCTOR_CACHE_DIR": caches,
        "JAX_COMPILATION_CACHE_DIR": caches,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    peer = task["way"] in ("jax", "torch")
    job = {**task, "file": str(WORKLOADS_DIRECTORY / f"{task['program']}.py")}
    job["way"] = "autofuse" if task["way"] == "before" else task["way"]
    try:
        for kind in ("first", "second"):
            outcome = in_child(CHILD, job, options.limit, environment, options.peers if peer else sys.executable)
            journal.append({"kind": kind, **task, **outcome})
            tell(f"{task['program']} {task['size']} {task['way']} {kind} {outcome.get('total_s', 0.0):.3f}", outcome)
    finally:
        shutil.rmtree(caches, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
