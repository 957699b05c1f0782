"""How fast is CartPole from its naive source? python experiments/cartpole/run.py [--envs 128 2048 65536].

In the environment of `make peers`. The same random bits and the same work on every side: autofuse and JAX from the
source that one writes first and from one rewritten without stacks, NumPy, and C++ by hand, one environment after the
other and in vectors. All sides take turns in one process. Answers are compared with JAX's after 50 steps before
anything is timed. Writes cartpole.jsonl and cartpole.md into --out. Minutes; the same command carries on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code
from interleaved import interleave
from journal import Journal
from programs import start
from provenance import ROOT, machine, open_run
from sides import SIDES

CHECKED_STEPS = 50
"""Later, rounding of one step has grown to differences in which lanes begin anew."""
MOST_NUMPY = 128
"""Environments from which on NumPy takes too long to be timed."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 128, 2048, 16384, 65536], help="environments")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--blocks", type=int, default=7, help="turns of each side (default 7)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def checked(names: list[str], count: int) -> None:
    """Raise SystemExit for a side whose environments stand elsewhere than JAX's after 50 steps."""
    key, state = start(count)
    made = {name: SIDES[name][0](SIDES[name][1], key, state, CHECKED_STEPS)() for name in {*names, "JAX"}}
    for name in names:
        for found, right in zip(made[name], made["JAX"], strict=True):
            if not np.allclose(found, right, rtol=1e-4, atol=1e-5):
                raise SystemExit(f"{name}: other answers than JAX's for {count} environments")


def measured(names: list[str], count: int, options: argparse.Namespace) -> dict[str, list[list[float]]]:
    """Microseconds of calls, by side and block."""
    key, state = start(count)
    calls: dict[str, Any] = {n: SIDES[n][0](SIDES[n][1], key, state, options.steps) for n in names}
    return interleave(calls, options.blocks, 0.2, options.seed, resting=True)


def report(journal: Journal, run: dict[str, Any]) -> str:
    """The tables: the fastest call of each side, and how many times as long as autofuse's naive form that is."""
    records = [record for record in journal.records if record["kind"] == "times"]
    names = [name for name in SIDES if any(name in record["us"] for record in records)]
    fastest = {(r["envs"], n): min(min(block) for block in r["us"][n]) for r in records for n in names if n in r["us"]}
    counts = sorted({record["envs"] for record in records})
    steps = run["settings"]["steps"]
    lines = [
        "# CartPole",
        "",
        f"{steps} steps of a coin's policy, state `f32[N, 4]`, keys split and numbers drawn in each step. The same "
        "random bits and the same work on every side; fastest of all calls, sides in turns in one process.",
        "",
        f"`{run['command']}`, commit {run['commit']}, {run['machine']['model']}, {run['machine']['threads']} threads.",
        "",
        "Milliseconds:",
        "",
        "| environments | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for count in counts:
        cells = [f"{fastest[count, n] / 1000:.3g}" if (count, n) in fastest else "" for n in names]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    lines += ["", "Times as long as autofuse on the naive source:", ""]
    lines += ["| environments | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for count in counts:
        own = fastest.get((count, "autofuse"))
        ratios = [f"{fastest[count, n] / own:.2f}" if own and (count, n) in fastest else "" for n in names]
        lines.append(f"| {count} | " + " | ".join(ratios) + " |")
    return "\n".join([*lines, ""])


def main(argv: list[str] | None = None) -> None:
    options = parse(argv)
    journal = Journal(options.out / "cartpole.jsonl", fresh=options.fresh)
    settings = {"steps": options.steps, "blocks": options.blocks, "seed": options.seed}
    run = open_run(journal, settings, machine())
    for count in options.envs:
        names = [name for name in options.sides if name != "NumPy" or count <= MOST_NUMPY]
        if journal.latest(kind="times", envs=count) is None:
            checked(names, count)
            print(f"{count} environments: {', '.join(names)}", flush=True)
            journal.append({"kind": "times", "envs": count, "us": measured(names, count, options)})
        (options.out / "cartpole.md").write_text(report(journal, run))
    print((options.out / "cartpole.md").read_text())


if __name__ == "__main__":
    raise SystemExit(exit_code(main))
