"""How exact are sums and products, and at what cost? python experiments/product_accuracy/run.py [--other CHECKOUT].

Errors against f64 next to NumPy's; with another checkout of autofuse also its errors, and the times of both, which take
turns in processes of their own. Writes product-accuracy.jsonl, a record for each case as soon as it is done, and
product-accuracy.md into --out. Minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code
from journal import Journal, Record
from provenance import ROOT, machine, open_run

SERVER = Path(__file__).resolve().parent / "server.py"
PRODUCTS: tuple[tuple[str, tuple[tuple[int, ...], ...], str], ...] = (
    ("product", ((1024, 1024), (1024, 1024)), "f32"),
    ("product", ((512, 4096), (4096, 512)), "f32"),
    ("product", ((4096, 2048), (2048, 64)), "f32"),
    ("product", ((256, 16384), (16384, 64)), "f32"),
    ("product", ((64, 64), (64, 64)), "f32"),
    ("product", ((256, 256), (256, 256)), "f32"),
    ("product", ((1, 512), (512, 512)), "f32"),
    ("product", ((1, 4096), (4096, 4096)), "f32"),
    ("product", ((4, 2048), (2048, 2048)), "f32"),
    ("transposed product", ((512, 1024), (768, 1024)), "f32"),
    ("transposed product", ((16, 256, 64), (16, 256, 64)), "f32"),
    ("product", ((16, 256, 256), (16, 256, 64)), "f32"),
    ("product", ((256, 1024), (1024, 256)), "f64"),
    ("product", ((512, 1024), (1024, 512)), "bf16"),
    ("product", ((512, 1024), (1024, 512)), "f16"),
)
SUMS: tuple[tuple[str, tuple[tuple[int, ...], ...], str], ...] = (
    *(("sum of all", ((10**digits,),), "f32") for digits in (3, 4, 5, 6, 7, 8)),
    ("row sums", ((2048, 2048),), "f32"),
    ("row sums", ((64, 100_000),), "f32"),
    ("row sums", ((8, 1_000_000),), "f32"),
    ("column sums", ((2048, 2048),), "f32"),
    ("column sums", ((100_000, 64),), "f32"),
    ("row means", ((64, 100_000),), "f32"),
    ("row variances", ((64, 100_000),), "f32"),
    ("variance of all", ((4_000_000,),), "f32"),
    ("running sums", ((64, 100_000),), "f32"),
    ("dot of rows", ((64, 100_000), (64, 100_000)), "f32"),
    ("row sums", ((16, 100_000),), "f64"),
)
SAMPLE_S = 0.01
"""A sample repeats a call for about this long."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--other", type=Path, help="root of another checkout of autofuse to compare with")
    parser.add_argument("--turns", type=int, default=15, help="samples of each checkout per case (default 15)")
    parser.add_argument("--only", choices=("products", "sums"), help="a part of the cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


class Server:
    """A process that runs plans of one checkout."""

    def __init__(self, checkout: Path) -> None:
        """Start it."""
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_THREAD_TIMEOUT": "4"}
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, **task: Any) -> dict[str, Any]:
        """Its answer to a task."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


def cases(options: argparse.Namespace) -> list[Record]:
    """What is measured, in order. Sums are of numbers around 0 and around 1."""
    threads = len(os.sched_getaffinity(0))
    tasks: list[Record] = []
    for part, shifts in (("products", (0.0,)), ("sums", (0.0, 1.0))):
        if options.only in (None, part):
            for function, shapes, dtype in PRODUCTS if part == "products" else SUMS:
                given = {"function": function, "shapes": [list(shape) for shape in shapes], "dtype": dtype}
                tasks += [{"part": part, **given, "shift": shift, "threads": threads} for shift in shifts]
    return tasks


def measured(task: Record, servers: dict[str, Server], options: argparse.Namespace) -> Record:
    """Errors and times of one case."""
    given = {**task, "seed": options.seed, "exact": True}
    errors = {name: server.ask(**given) for name, server in servers.items()}
    repeats = max(1, int(SAMPLE_S / servers["this"].ask(repeats=1)["seconds"]))
    samples: dict[str, list[float]] = {name: [] for name in servers}
    for turn in range(options.turns):
        for name in sorted(servers, reverse=bool(turn % 2)):
            samples[name].append(servers[name].ask(repeats=repeats)["seconds"])
    return {"errors": errors, "samples": samples}


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    journal = Journal(options.out / "product-accuracy.jsonl", options.fresh)
    run = open_run(journal, {"turns": options.turns, "seed": options.seed}, machine())
    servers = {"this": Server(ROOT)} | ({"other": Server(options.other)} if options.other else {})
    wanted = cases(options)
    try:
        for task in wanted:
            if journal.latest(**task) is None:
                journal.append(task | measured(task, servers, options))
                print(title(task), file=sys.stderr)
    finally:
        for server in servers.values():
            server.close()
        path = options.out / "product-accuracy.md"
        path.write_text(render(run, [record for task in wanted if (record := journal.latest(**task))]))
        print(f"wrote {path}, {journal.path}", file=sys.stderr)


def title(record: Record) -> str:
    """A case in words."""
    shapes = " by ".join(" x ".join(map(str, shape)) for shape in record["shapes"])
    around = f", around {record['shift']:g}" if record["part"] == "sums" else ""
    return f"{record['function']} {record['dtype']} {shapes}{around}"


def render(run: Record, records: list[Record]) -> str:
    """The report."""
    lines = [
        "# How exact products and sums are",
        "",
        f"`{run['command']}`, {run['begun']}, commit {run['commit']}, on {run['machine']['model']} "
        f"({run['machine']['threads']} threads), NumPy {run['machine']['numpy']} with {run['machine']['blas']}.",
        "",
        "Errors are root mean squares against f64 (long double for f64), divided by NumPy's. The other checkout is the",
        "state that is compared with; time is this over other, of calls that take turns: median and quartiles.",
        "",
        "| case | other's error | error | ms | time |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [f"| {title(record)} | {_errors(record)} | {_times(record)} |" for record in records]
    return "\n".join([*lines, ""])


def _errors(record: Record) -> str:
    texts: list[str] = []
    for name in ("other", "this"):
        found = record["errors"].get(name)
        if found is None:
            texts.append("-")
        else:
            numpy_error = found["numpy_error"]
            texts.append(f"{found['error'] / numpy_error:.2f}" if numpy_error else "NumPy's is 0")
    return " | ".join(texts)


def _times(record: Record) -> str:
    here, other = record["samples"]["this"], record["samples"].get("other")
    text = f"{1e3 * min(here):.3g}"
    if not other:
        return f"{text} | -"
    ratios = [a / b for a, b in zip(here, other, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{text} | {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
