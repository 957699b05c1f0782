"""Tune every workload under three policies and time the plans against NumPy: python experiments/cpu_first/run.py.

Each plan is made in its own process, each round of each program is timed in its own process. Every record is on disk
before the next measurement starts; the same command again carries on, and makes again only what failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from journal import Journal, Record
from provenance import ROOT, commit, digest, machine, open_run
from table import POLICIES, build_row, heading, render

from autofuse.measurement.workloads import Workload, discover, load

CHILD = Path(__file__).with_name("child.py")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="names, separated by commas; default all")
    parser.add_argument("--rounds", type=int, default=3, help="timing processes per program (default 3)")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tuning per plan (default 20)")
    parser.add_argument(
        "--untuned",
        default="",
        help="policies to compile without tuning, separated by commas; default none: equal budgets",
    )
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--blocks", type=int, default=7, help="repetitions within a round (default 7)")
    parser.add_argument("--block-ms", type=float, default=50.0, help="timed milliseconds per block (default 50)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("autofuse", "numpy"), default="autofuse", help="numpy: A/A of the harness")
    parser.add_argument("--plans", type=Path, default=ROOT / "plans" / "cpu_first", help="folder for plan files")
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results" / "cpu-first.md")
    parser.add_argument("--json", type=Path, help="raw records; default beside --out, as .jsonl")
    parser.add_argument("--fresh", action="store_true", help="throw away the records there are")
    options = parser.parse_args(argv)
    options.json = options.json or options.out.with_suffix(".jsonl")
    options.untuned = [name for name in options.untuned.split(",") if name]
    unknown = sorted(set(options.untuned) - set(POLICIES))
    if unknown:
        parser.error(f"--untuned: must name policies among {', '.join(POLICIES)}; got {', '.join(unknown)}")
    return options


def settings_of(options: argparse.Namespace) -> Record:
    """All that must be equal for records to be comparable."""
    return {
        "size": options.size,
        "seed": options.seed,
        "budget": options.budget,
        "untuned": options.untuned,
        "blocks": options.blocks,
        "block_seconds": options.block_ms / 1e3,
        "engine": options.engine,
    }


def make_plans(programs: list[Workload], options: argparse.Namespace, journal: Journal) -> None:
    """A plan for every program and policy that has none yet."""
    options.plans.mkdir(parents=True, exist_ok=True)
    for program in programs:
        for policy in POLICIES:
            plan = options.plans / f"{program.name}-{options.size}-{policy}.json"
            what: Record = {"kind": "plan", "program": program.name, "policy": policy, "source": digest(program.file)}
            known = journal.latest(**what)
            if known and known["status"] == "ok" and plan.exists() and known["digest"] == digest(plan):
                continue
            task = {**what, **settings_of(options), "file": str(program.file), "plan": str(plan)}
            record = what | {"plan": str(plan), "commit": commit()} | in_child(CHILD, task, 4 * options.budget + 120)
            if record["status"] == "ok":
                record["digest"] = digest(plan)
            journal.append(record)
            tell(f"{program.name} {policy}", record)


def time_rounds(programs: list[Workload], options: argparse.Namespace, journal: Journal) -> None:
    """Every round of every program that is not there yet, round by round, so that slow drifts meet all programs."""
    for index in range(options.rounds):
        for program in programs:
            plans = usable_plans(program, journal)
            what: Record = {"kind": "round", "program": program.name, "round": index, "source": digest(program.file)}
            what["plans"] = {policy: record["digest"] for policy, record in plans.items()}
            known = journal.latest(**what)
            if known and known["status"] == "ok":
                continue
            paths = {policy: record["plan"] for policy, record in plans.items()}
            task = {**what, **settings_of(options), "file": str(program.file), "plans": paths}
            record = what | {"commit": commit()} | in_child(CHILD, task, 600.0)
            journal.append(record)
            tell(f"{program.name} round {index + 1} of {options.rounds}", record)


def usable_plans(program: Workload, journal: Journal) -> dict[str, Record]:
    """The newest records of a program's plans that were made, by policy."""
    records = {
        policy: journal.latest(kind="plan", program=program.name, policy=policy, source=digest(program.file))
        for policy in POLICIES
    }
    return {policy: record for policy, record in records.items() if record and record["status"] == "ok"}


def study(options: argparse.Namespace) -> None:
    """The whole study; the report is written even when it is interrupted."""
    programs = [load(name) for name in options.programs.split(",")] if options.programs else discover()
    journal = Journal(options.json, options.fresh)
    run = open_run(journal, settings_of(options), machine())
    try:
        make_plans(programs, options, journal)
        time_rounds(programs, options, journal)
    finally:
        rows = [build_row(program.name, journal, options.rounds) for program in programs]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(render(rows, heading(run, options.rounds)))
        print(f"wrote {options.out} and {options.json}", file=sys.stderr)


def main() -> int:
    options = parse()
    return exit_code(lambda: study(options))


if __name__ == "__main__":
    sys.exit(main())
