"""How long unrolled loops take to compile: python experiments/compile_time/run.py --before CHECKOUT.

Each program is compiled and called once, in a process of its own with empty caches, by this checkout, by another one,
and unfused. Writes compile-time.jsonl and compile-time.md into --out; the same command again does what is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from journal import Journal, Record
from programs import PROGRAMS
from provenance import ROOT, machine, open_run

CHILD = Path(__file__).resolve().parent / "child.py"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--before", type=Path, help="checkout to compare with")
    parser.add_argument("--limit", type=float, default=120.0, help="most seconds for a process (default 120)")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="separated by commas (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one program of two steps")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    options.out.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.out / "compile-time.jsonl", options.fresh)
    run = open_run(journal, {"limit": options.limit}, machine())
    ways = [("now", ROOT, "analytical"), ("unfused", ROOT, "unfused")]
    if options.before is not None:
        ways.insert(0, ("before", options.before.resolve(), "analytical"))
    chosen = {name: PROGRAMS[name][1] for name in options.programs.split(",")}
    if options.quick:
        chosen = {"heat": (2,)}
    wanted: list[Record] = [{"program": name, "steps": steps} for name, sizes in chosen.items() for steps in sizes]
    try:
        for task in wanted:
            for way, checkout, policy in ways:
                if journal.latest(**task, way=way) is None:
                    outcome = _timed({**task, "policy": policy}, checkout, options.limit)
                    journal.append({"kind": "compile", **task, "way": way, **outcome})
                    tell(f"{task['program']} {task['steps']} {way}", outcome)
    finally:
        path = options.out / "compile-time.md"
        path.write_text(render(run, journal, wanted))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def _timed(task: Record, checkout: Path, limit_s: float) -> Record:
    """The task in a process with empty caches."""
    with tempfile.TemporaryDirectory() as cache:
        paths = os.pathsep.join((str(checkout), str(CHILD.parent)))
        return in_child(CHILD, task, limit_s, {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": cache})


def render(run: Record, journal: Journal, wanted: list[Record]) -> str:
    """The report."""
    rows = [
        "| program | steps | before: compile + first call (s) | now (s) | kernels | deadline decided | unfused (s) |",
        "|---|---:|---:|---:|---:|---|---:|",
    ]
    for task in wanted:
        before, now, unfused = (journal.latest(**task, way=way) for way in ("before", "now", "unfused"))
        kernels, decided = (now.get("kernels", ""), now.get("decided", False)) if now else ("", False)
        cells = [_seconds(before), _seconds(now), kernels, "yes" if decided else "no", _seconds(unfused)]
        rows.append(f"| {task['program']} | {task['steps']} | {' | '.join(map(str, cells))} |")
    return "\n".join(
        (
            "# How long unrolled loops take to compile",
            "",
            f"One compile and one first call each, in a process with empty caches; {run['machine']['model']}, "
            f"{run['machine']['threads']} threads, beside other work on the same machine.",
            "`python experiments/compile_time/run.py --before CHECKOUT` makes it again.",
            "",
            *rows,
            "",
        )
    )


def _seconds(record: Record | None) -> str:
    if record is None:
        return "-"
    if record["status"] != "ok":
        return record["error"]
    return f"{record['compile_s']:.1f} + {record['call_s']:.1f}"


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
