"""How fast is CartPole from its naive source? python experiments/cartpole/run.py [--envs 128 2048 65536].

In the environment of `make peers`. Two tables: the same work on every side, numbers drawn in each step; and less work,
numbers drawn before the loop and passed in. autofuse, JAX and torch from the source that one writes first and from one
rewritten without stacks, NumPy, Numba and C++ by hand. All sides of a table take turns in one process. Answers are
compared with JAX's after 50 steps before anything is timed; a side that fails stands in the report. Writes
cartpole.jsonl and cartpole.md into --out. An hour at most; the same command carries on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from bounded import sort_by_time, timed
from cartpole_report import report
from children import exit_code
from journal import Journal, Record
from provenance import ROOT, machine, open_run
from sides import SIDES, Call, Task, task
from versions import versions

CHECKED_STEPS = 50
"""Later, rounding of one step has grown to differences in which lanes begin anew."""
NAMES = sorted({name for sides in SIDES.values() for name in sides})
BLOCK_SECONDS = 0.2


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 128, 2048, 16384, 65536], help="environments")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tables", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--sides", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--blocks", type=int, default=7, help="turns of each side (default 7)")
    parser.add_argument(
        "--most-seconds",
        type=float,
        default=60.0,
        help="of all timed calls of a side; slower ones get three calls, then none and an estimate (default 60)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def first_calls(name: str, given: Task, table: str) -> tuple[tuple[Any, Any], float]:
    """The answer of a side's first call, and the seconds of a second one."""
    call = SIDES[table][name].make(given)
    answer = call()
    begun = time.perf_counter()
    call()
    return answer, time.perf_counter() - begun


def wrong(found: Sequence[Any], right: Sequence[Any], own_numbers: bool) -> str | None:
    """What is wrong with states and rewards after `CHECKED_STEPS`, or None."""
    if own_numbers:  # the number of falls of many environments hardly depends on the coin
        apart = abs(float(np.mean(found[1])) - float(np.mean(right[1])))
        return None if apart < 2.0 else f"mean reward {apart:.1f} from JAX's"
    for part, other in zip(found, right, strict=True):
        if not np.allclose(part, other, rtol=1e-4, atol=1e-5):
            return f"other answers than JAX's after {CHECKED_STEPS} steps"
    return None


def tried(table: str, names: Sequence[str], count: int, steps: int) -> tuple[dict[str, float], dict[str, str]]:
    """Foretold seconds of a call of each side that is right, and what is wrong with the others."""
    given = task(table, count, CHECKED_STEPS)
    right, _ = first_calls("JAX", given, table)
    seconds: dict[str, float] = {}
    faults: dict[str, str] = {}
    for name in names:
        try:
            found, each = first_calls(name, given, table)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises stands in the report
            faults[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            continue
        fault = wrong(found, right, SIDES[table][name].own_numbers)
        if fault:
            faults[name] = fault
        else:
            seconds[name] = each * steps / CHECKED_STEPS
    return seconds, faults


def measured(table: str, count: int, options: argparse.Namespace) -> Record:
    """One row: the times of all sides for so many environments."""
    names = [name for name in SIDES[table] if name in options.sides]
    print(f"{table} work, {count} environments: {', '.join(names)}", flush=True)
    seconds, faults = tried(table, names, count, options.steps)
    chosen = sort_by_time(seconds, options.blocks, options.most_seconds)
    given = task(table, count, options.steps)
    calls: dict[str, Call] = {}
    ready: dict[str, float] = {}
    for name in (*chosen.interleaved, *chosen.few):
        begun = time.perf_counter()
        calls[name] = SIDES[table][name].make(given)
        calls[name]()
        ready[name] = round(time.perf_counter() - begun, 3)
    return {
        "kind": "times",
        "table": table,
        "envs": count,
        "us": timed(calls, chosen.few, options.blocks, BLOCK_SECONDS, options.seed),
        "few": chosen.few,
        "foretold_us": {name: round(1e6 * seconds[name]) for name in chosen.foretold},
        "ready_s": ready,
        "faults": faults,
    }


def main(argv: list[str] | None = None) -> None:
    options = parse(argv)
    journal = Journal(options.out / "cartpole.jsonl", fresh=options.fresh)
    settings = {
        "steps": options.steps,
        "blocks": options.blocks,
        "most_seconds": options.most_seconds,
        "seed": options.seed,
    }
    run = open_run(journal, settings, machine() | versions())
    for count in options.envs:
        for table in options.tables:
            if journal.latest(kind="times", table=table, envs=count) is None:
                journal.append(measured(table, count, options))
            (options.out / "cartpole.md").write_text(report(journal.records, run))
    print((options.out / "cartpole.md").read_text())


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
