"""Do the rule policies fuse what the systems they stand for fuse? python experiments/rule_fidelity/run.py.

Every workload, and seeded random graphs, go op by op through the real XLA:CPU (its optimised HLO) and the real Inductor
(its scheduler, after fusion). Their kernels are traced back to the nodes of the program and compared with those of
`rule:xla-cpu` and `rule:inductor`. Nothing is timed. Writes rule-fidelity.jsonl (a record per program and system) and
rule-fidelity.md into --out; the same command again does what is missing. Needs JAX and PyTorch: `make fidelity`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tomllib
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from fidelity_report import render
from journal import Journal, Record
from provenance import ROOT, machine, open_run

from autofuse.measurement.workloads import discover

CHILD = Path(__file__).resolve().parent / "child.py"
REASONS = CHILD.parent / "reasons.toml"
"""Why kernels differ, found by looking at them."""
FORM = 2
"""Of the records: older ones count what runs no code, and not what was left out."""
LIMIT_S = 300.0
POLICIES = {"xla-cpu": "rule:xla-cpu", "inductor": "rule:inductor"}
"""By system, the policy that stands for it."""
FLAGS = "--xla_cpu_experimental_ynn_fusion_type="
"""XLA:CPU may hand reductions to a library of its own, which fuses by rules that are not XLA's: not here."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--systems", default=",".join(POLICIES), help="separated by commas (default %(default)s)")
    parser.add_argument("--programs", help="workloads, separated by commas; default all; none: -")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--random", type=int, default=60, help="random graphs (default 60)")
    parser.add_argument("--nodes", type=int, default=14, help="operations of a random graph (default 14)")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    options = parser.parse_args(argv)
    options.systems = options.systems.split(",")
    unknown = sorted(set(options.systems) - set(POLICIES))
    if unknown:
        parser.error(f"--systems: must be among {', '.join(POLICIES)}; got {', '.join(unknown)}")
    return options


def tasks(options: argparse.Namespace) -> list[Record]:
    """What is compared, in order."""
    wanted = None if options.programs is None else options.programs.split(",")
    programs = [program for program in discover() if wanted is None or program.name in wanted]
    found: list[Record] = []
    for system in options.systems:
        what = {"kind": "fidelity", "system": system, "policy": POLICIES[system]}
        found += [{**what, "program": p.name, "file": str(p.file), "size": options.size} for p in programs]
        for seed in range(options.random):
            found.append({**what, "program": f"random {seed}", "seed": seed, "nodes": options.nodes})
    return found


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    journal = Journal(options.out / "rule-fidelity.jsonl", options.fresh)
    reasons = tomllib.loads(REASONS.read_text())
    run = open_run(journal, {"nodes": options.nodes, "size": options.size, "form": FORM}, machine())
    wanted = tasks(options)
    environment = {**os.environ, "XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": "off"}
    try:
        for task in wanted:
            known = journal.latest(**key(task))
            if known and known["status"] == "ok":
                continue
            record = key(task) | in_child(CHILD, task, LIMIT_S, environment)
            journal.append(record)
            tell(f"{task['system']} {task['program']}", record)
    finally:
        path = options.out / "rule-fidelity.md"
        found = [record for task in wanted if (record := journal.latest(**key(task)))]
        path.write_text(render(run, found, reasons))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def key(task: Record) -> Record:
    """What tells a record from others."""
    return {name: task[name] for name in ("kind", "system", "policy", "program")}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(exit_code(lambda: study(parse())))
