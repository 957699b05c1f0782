"""How does autofuse.jax stand beside jax.jit? python experiments/jax/run.py [--programs lstm_loss] [--budget 20].

For each program of datasets/workloads/jax, in processes of their own: calls of `jax.jit` and of `autofuse.jax.jit` in
turns (and of a tuned plan with --budget), first calls in a first and in a second process, kernels, and how long the
text of its module takes to be read. Then what a call of next to nothing costs, inside `jax.jit` too. Answers are JAX's
before anything is timed. Writes jax.jsonl and jax.md into --out. A quarter of an hour without tuning; the same command
carries on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from jax_report import report
from journal import Journal
from provenance import ROOT, machine, open_run
from versions import versions

from autofuse.measurement.workloads import WORKLOADS_DIRECTORY

HERE = Path(__file__).resolve().parent
SIDES = ("jax.jit", "autofuse")
FIRST, SECOND = "first process", "second process"
KEEPING = {"MALLOC_TRIM_THRESHOLD_": str(1 << 31), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
"""Memory that glibc has stays with the process. Else page faults decide what a call takes: XLA frees results and asks
for them again, and whether glibc has given them back in between depends on what lies at the end of the heap."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    known = sorted(path.stem for path in (WORKLOADS_DIRECTORY / "jax").glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--programs", nargs="+", choices=known, default=known, metavar="NAME", help="(default all)")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--blocks", type=int, default=7, help="turns of each side (default 7)")
    parser.add_argument("--repeats", type=int, default=3, help="first calls of each kind (default 3)")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of tuning per program (default none)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for a process (default 900)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def first_calls(task: dict[str, Any], repeats: int, limit_s: float) -> dict[str, Any]:
    """Seconds of first calls, by process: each first one with caches of its own, which the second one finds."""
    found: dict[str, Any] = {FIRST: [], SECOND: []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as caches:
            environment = {
                **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
                "AUTOFUSE_CACHE": f"{caches}/autofuse",
                "JAX_COMPILATION_CACHE_DIR": f"{caches}/jax",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
            for process in (FIRST, SECOND):
                outcome = in_child(HERE / "child.py", {**task, "what": "first"}, limit_s, environment)
                if outcome["status"] != "ok":
                    return outcome
                found[process].append(outcome["seconds"])
    return {"status": "ok", **found}


def main(argv: list[str] | None = None) -> None:
    options = parse(argv)
    journal = Journal(options.out / "jax.jsonl", fresh=options.fresh)
    settings: dict[str, Any] = {name: getattr(options, name) for name in ("size", "blocks", "budget", "seed")}
    run = open_run(journal, settings, machine() | versions())

    def recorded(kind: str, about: dict[str, Any], outcome: dict[str, Any]) -> None:
        tell(" ".join((kind, *about.values())), outcome)
        journal.append({"kind": kind, **about, **outcome})
        (options.out / "jax.md").write_text(report(journal, run))

    for program in options.programs:
        task = {"program": program, **settings}
        if journal.latest(kind="times", program=program, status="ok") is None:
            limit = options.limit + options.budget
            outcome = in_child(HERE / "child.py", {**task, "what": "times"}, limit, os.environ | KEEPING)
            recorded("times", {"program": program}, outcome)
        for side in SIDES:
            if journal.latest(kind="first", program=program, side=side, status="ok") is None:
                outcome = first_calls({**task, "side": side}, options.repeats, options.limit)
                recorded("first", {"program": program, "side": side}, outcome)
        if journal.latest(kind="reading", program=program, status="ok") is None:
            outcome = in_child(HERE / "child.py", {**task, "what": "reading"}, options.limit)
            recorded("reading", {"program": program}, outcome)
    if journal.latest(kind="overhead", status="ok") is None:
        recorded("overhead", {}, in_child(HERE / "child.py", {**settings, "what": "overhead"}, options.limit))
    print((options.out / "jax.md").read_text())


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
