"""What kernels for a GPU ask of it, counted without one: python experiments/gpu_counts/run.py, or `make gpu-counts`.

Every workload, and every program beside this file, is planned for a named GPU at full size, and some blocks of each
kernel run in the shim. The gates say what a kernel that is bound by memory should keep to. Writes gpu-counts.jsonl,
gpu-counts.md and gpu-counts.json into --out; the same command again does what is missing. A test compares new counts
with the committed gpu-counts.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from gpu_counts_report import baseline, render
from journal import Journal, Record
from provenance import ROOT, machine, open_run

from autofuse.errors import ArgumentError
from autofuse.measurement.workloads import discover
from autofuse.targets.cuda import nvrtc

CHILD = Path(__file__).resolve().parent / "child.py"
PROGRAMS = CHILD.parent / "programs"
"""Of 64 MB and more, one for each form of kernel."""
_LIMIT_S = 900.0


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--programs", help="separated by commas; default all")
    parser.add_argument("--device", default="h200", help="the GPU that plans are for (default %(default)s)")
    parser.add_argument("--size", default="full", help="of programs (default full)")
    parser.add_argument(
        "--numerics", default="strict", choices=("strict", "fast"), help="of plans; fast writes gpu-counts-fast.*"
    )
    parser.add_argument("--blocks", type=int, default=16, help="of a launch, run at most so many (default 16)")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    options.out.mkdir(parents=True, exist_ok=True)
    name = "gpu-counts" if options.numerics == "strict" else "gpu-counts-fast"
    journal = Journal(options.out / f"{name}.jsonl", options.fresh)
    settings: Record = {"device": options.device, "size": options.size, "most_blocks": options.blocks}
    settings |= {} if options.numerics == "strict" else {"numerics": options.numerics}
    run = open_run(journal, settings, {**machine(), "nvrtc": nvrtc.version_text()})
    files = {program.name: str(program.file) for program in (*discover(), *discover(PROGRAMS))}
    names = options.programs.split(",") if options.programs else list(files)
    if unknown := [program for program in names if program not in files]:
        raise ArgumentError(f"--programs: must be among {', '.join(files)}; got {', '.join(unknown)}")
    try:
        for program in names:
            if journal.latest(program=program, status="ok") is None:
                outcome = in_child(CHILD, {"file": files[program], **settings}, _LIMIT_S)
                journal.append({"program": program, **outcome})
                tell(program, outcome)
    finally:
        path = options.out / f"{name}.md"
        path.write_text(render(run, journal))
        path.with_suffix(".json").write_text(json.dumps(baseline(run, journal), indent=1) + "\n")
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
