"""Tune every workload under three policies and time the plans against NumPy: python experiments/cpu_first/run.py.

Each plan is made in its own process, each round of each program is timed in its own process. Every record is on disk
before the next measurement starts; the same command again carries on, and makes again only what failed.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from journal import Journal, Record
from table import POLICIES, build_row, heading, render

from autofuse.device.cpu import detect
from autofuse.errors import ArgumentError, AutofuseError
from autofuse.measure.workloads import Workload, discover, load

ROOT = Path(__file__).resolve().parents[2]
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


def machine() -> Record:
    """The CPU as autofuse sees it, and the software under NumPy."""
    found = asdict(detect())
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # pyright: ignore[reportIndexIssue, reportOptionalSubscript] - typed as None in the default mode
    kept = ("model", "cores", "threads", "l1d_bytes", "l2_bytes", "l3_bytes", "memory_bytes")
    return {key: found[key] for key in kept} | {
        "isa": " ".join(found["isa"]),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
    }


def commit() -> str:
    """Short hash of the checkout, marked where tracked files differ from it; `unknown` outside git."""
    described = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"


def open_run(options: argparse.Namespace, journal: Journal) -> Record:
    """The record of this run: found in the journal, or begun now. Raises ArgumentError where settings differ."""
    settings, here = settings_of(options), machine()
    run: Record | None = journal.latest(kind="run")
    if run is None:
        shown = [Path(sys.argv[0]).name if ROOT not in Path(sys.argv[0]).resolve().parents else relative(sys.argv[0])]
        run = {
            "kind": "run",
            "settings": settings,
            "machine": here,
            "command": shlex.join(["python", *shown, *sys.argv[1:]]),
            "begun": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": commit(),
        }
        journal.append(run)
    differs = differences(run["settings"], settings) + differences(run["machine"], here)
    if differs:
        raise ArgumentError(
            f"{journal.path} holds records of another run ({'; '.join(differs)}), which cannot be mixed with new ones: "
            "give another --out, or --fresh to throw them away"
        )
    return run


def differences(before: Record, now: Record) -> list[str]:
    """What changed, in words."""
    return [f"{key} was {before.get(key)!r}, is {value!r}" for key, value in now.items() if before.get(key) != value]


def relative(path: str) -> str:
    """`path` as seen from the checkout's root."""
    return str(Path(path).resolve().relative_to(ROOT))


def in_child(task: Record, limit_s: float) -> Record:
    """Run one task in its own process: its outcome with status "ok", or "failed" and the reason."""
    with tempfile.TemporaryDirectory() as folder:
        job, outcome = Path(folder) / "task.json", Path(folder) / "outcome.json"
        job.write_text(json.dumps(task))
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(job), str(outcome)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, errors = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"status": "failed", "error": f"stopped after {limit_s:.0f} s"}
        finally:
            end_group(child)
        if child.returncode != 0 or not outcome.exists():
            lines = errors.strip().splitlines() or ["no message"]
            return {"status": "failed", "error": f"exit code {child.returncode}: {lines[-1][:500]}"}
        return {"status": "ok", **json.loads(outcome.read_text())}


def end_group(child: subprocess.Popen[str]) -> None:
    """Kill the child, and the measuring workers that it may have left, which share its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def digest(path: Path) -> str:
    """Short name of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


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
            record = what | {"plan": str(plan), "commit": commit()} | in_child(task, 4 * options.budget + 120)
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
            record = what | {"commit": commit()} | in_child(task, 600.0)
            journal.append(record)
            tell(f"{program.name} round {index + 1} of {options.rounds}", record)


def usable_plans(program: Workload, journal: Journal) -> dict[str, Record]:
    """The newest records of a program's plans that were made, by policy."""
    records = {
        policy: journal.latest(kind="plan", program=program.name, policy=policy, source=digest(program.file))
        for policy in POLICIES
    }
    return {policy: record for policy, record in records.items() if record and record["status"] == "ok"}


def tell(what: str, record: Record) -> None:
    """One line of progress on stderr."""
    faults: dict[str, Any] = record.get("faults", {})
    note = record["error"] if record["status"] != "ok" else "; ".join(f"{k}: {v}" for k, v in faults.items())
    print(f"{what}: {record['status']} {note}".rstrip(), file=sys.stderr)


def study(options: argparse.Namespace) -> None:
    """The whole study; the report is written even when it is interrupted."""
    programs = [load(name) for name in options.programs.split(",")] if options.programs else discover()
    journal = Journal(options.json, options.fresh)
    run = open_run(options, journal)
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
    try:
        study(options)
    except AutofuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command carries on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
