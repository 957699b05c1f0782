"""What a change of autofuse changes: python experiments/before_after/run.py --before CHECKOUT, or `make before-after`.

Each program by the other checkout and by this one, in processes of their own, in turns: do plans give the same bits,
are they the same plans of the same code, does a call take as long, and does a plan from a file? Writes
before-after.jsonl and before-after.md into --out; the same command again does what is missing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from before_after_report import render
from children import exit_code, in_child, tell
from journal import Journal, Record
from provenance import ROOT, machine, open_run

from autofuse.errors import ArgumentError
from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, discover

CHILD = Path(__file__).resolve().parent / "child.py"
POLICIES = ("unfused", "analytical", "measured")
_LIMIT_S = 600.0


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="checkout to compare with")
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--programs", help="separated by commas; default all")
    parser.add_argument("--timed", help="programs whose calls are timed; default the same")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of each tuning, 0 for none (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="of each time, of which the median counts (default 3)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of calls in each process (default 0.5)")
    parser.add_argument("--size", default="full", help="of programs whose calls are timed (default full)")
    parser.add_argument("--seed", type=int, default=0, help="of the order (default 0)")
    parser.add_argument("--quick", action="store_true", help="one small program, once, not tuned")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    options = parser.parse_args(argv)
    if options.quick:
        options.programs, options.rounds, options.size, options.budget, options.seconds = (
            "softmax",
            1,
            "small",
            0.0,
            0.1,
        )
    return options


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    if not (options.before / "autofuse").is_dir():
        raise ArgumentError(f"--before: no checkout of autofuse at {options.before}; `git worktree add` makes one")
    options.out.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.out / "before-after.jsonl", options.fresh)
    settings = {"budget": options.budget, "seconds": options.seconds, "size": options.size}
    run = open_run(journal, {**settings, "before": _commit(options.before)}, machine())
    try:
        with tempfile.TemporaryDirectory(prefix="autofuse-before-") as folder:
            for task in _order(options):
                if journal.latest(**task, way="now") is None:
                    _both(journal, task, options, folder)
    finally:
        path = options.out / "before-after.md"
        path.write_text(render(run, journal))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def _order(options: argparse.Namespace) -> Iterator[Record]:
    """Answers of every program first, then times, round by round."""
    names = options.programs.split(",") if options.programs else [program.name for program in discover()]
    policies = POLICIES if options.budget else POLICIES[:-1]
    for name in names:
        for policy in policies:
            yield {"step": "answer", "program": name, "policy": policy, "round": 0}
    for number in range(options.rounds):
        for name in options.timed.split(",") if options.timed else names:
            for policy, step in (("analytical", "call"), ("analytical", "load"), ("measured", "call")):
                if policy in policies:
                    yield {"step": step, "program": name, "policy": policy, "round": number}


def _both(journal: Journal, task: Record, options: argparse.Namespace, folder: str) -> None:
    """One step by both checkouts, in random order; both are recorded, or none is."""
    ways = {"before": options.before.resolve(), "now": ROOT}
    rng = np.random.default_rng([options.seed, len(journal.records)])
    found: dict[str, Record] = {}
    for place in rng.permutation(len(ways)):
        way = tuple(ways)[place]
        files = {
            "file": str(WORKLOADS_DIRECTORY / f"{task['program']}.py"),
            "plan": f"{folder}/{task['program']}-{task['policy']}-{way}.json",
            "arguments": f"{folder}/{task['program']}.pickle",
        }
        size = "small" if task["step"] == "answer" else options.size
        job = {**task, **files, "size": size, "budget": options.budget, "seconds": options.seconds}
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AUTOFUSE_")},
            "PYTHONPATH": str(ways[way]),
            "XDG_CACHE_HOME": f"{folder}/cache-{way}-{task['policy']}-{task['step'] == 'answer'}",
        }
        if task["step"] == "load" and not Path(files["plan"]).exists():  # a run that carries on
            _ = in_child(CHILD, {**job, "step": "call"}, _LIMIT_S, environment)
        found[way] = in_child(CHILD, job, _LIMIT_S, environment)
    for way in ways:  # the one that says that both are there comes last
        journal.append({**task, "way": way, **found[way]})
        tell(f"{task['program']} {task['policy']} {task['step']} {way}", found[way])


def _commit(checkout: Path) -> str:
    """Short hash of another checkout's commit."""
    done = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or str(checkout)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
