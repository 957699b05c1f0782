"""What plans are worth on this machine's GPU: python experiments/gpu/run.py --minutes 10, or `make gpu MINUTES=10`.

The most valuable comes first: the device and its copy rate; the tests that need a GPU; then each program: is its plan
right, how fast is it and each of its kernels, and how fast are CuPy, jax.jit and torch.compile. Each step is a process
of its own. Writes gpu.jsonl and gpu.md into --out; the same command again does what is missing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import monotonic

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from gpu_report import render
from journal import Journal, Record
from provenance import ROOT, machine, open_run

from autofuse.errors import BackendError
from autofuse.measurement.workloads import discover
from autofuse.targets.cuda.launch import gpu_problem

CHILD = Path(__file__).resolve().parent / "child.py"
PEERS = ("cupy", "jax", "torch")
FIRST = (
    "softmax",
    "layer_norm_residual",
    "gelu_mlp",
    "adam",
    "attention",
    "bert_layer",
    "small_heads",
    "fused_add_sum",
)
"""Programs that matter most; the others follow."""
_LEAST_S = 10.0
"""Nothing begins with less time left."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--minutes", type=float, default=10.0, help="most time of this command (default 10)")
    parser.add_argument("--programs", help="separated by commas; default all")
    parser.add_argument("--peers", default=",".join(PEERS), help="separated by commas, or none (default %(default)s)")
    parser.add_argument("--size", default="full", help="of programs (default full)")
    parser.add_argument("--backend", default="cuda", help='"simulated" shows what the study does without a GPU')
    parser.add_argument(
        "--numerics",
        default="strict",
        choices=("strict", "fast"),
        help="of plans, and the same of others: strict with products of full f32, fast with TF32, which JAX has by "
        "default; fast writes gpu-fast.*",
    )
    parser.add_argument("--no-contract", action="store_true", help="leave out the tests")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def study(options: argparse.Namespace) -> None:
    """All of it that there is time for; the report is written even when it is interrupted."""
    if options.backend == "cuda" and (problem := gpu_problem()) is not None:
        raise BackendError(f"nothing to measure on: {problem}")
    options.out.mkdir(parents=True, exist_ok=True)
    name = "gpu" if options.numerics == "strict" else "gpu-fast"
    journal = Journal(options.out / f"{name}.jsonl", options.fresh)
    settings: Record = {"backend": options.backend, "size": options.size, "numerics": options.numerics}
    run = open_run(journal, settings, machine())
    end = monotonic() + 60 * options.minutes
    try:
        for task in _order(options):
            known = journal.latest(**task)
            if known is not None and known["status"] == "ok":
                continue
            left_s = end - monotonic()
            if left_s < _LEAST_S:
                print("the time is up; the same command carries on", file=sys.stderr)
                break
            asked = {**task, "backend": options.backend, "numerics": options.numerics}
            outcome = in_child(CHILD, asked, left_s)
            journal.append({**task, **outcome})
            tell(" ".join(str(task[name]) for name in ("step", "program") if name in task), outcome)
    finally:
        path = options.out / f"{name}.md"
        path.write_text(render(run, journal))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def _order(options: argparse.Namespace) -> list[Record]:
    """Steps, the most valuable first."""
    names = [program.name for program in discover()]
    names = [*FIRST, *(name for name in names if name not in FIRST)]
    if options.programs:
        names = options.programs.split(",")
    peers = [] if options.peers == "none" else options.peers.split(",")
    tasks: list[Record] = [{"step": "environment"}]
    if not options.no_contract:
        tasks.append({"step": "contract"})
    tasks += [{"step": "plan", "program": name, "size": options.size} for name in names]
    return tasks + [{"step": peer, "program": name, "size": options.size} for name in names for peer in peers]


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
