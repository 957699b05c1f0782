"""How exact and how fast the vector math is: python experiments/vector_math/run.py.

Every f32 of every function of one argument, samples of f64 and of pairs, every 16-bit float, agreement between vector
widths, and time per element against NumPy and PyTorch. Writes vector-math.jsonl (a record per chunk, as soon as it is
done) and vector-math.md into --out. The same command again, after Ctrl-C too, does what is missing; what was recorded
of other code than today's does not count. About half an hour on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import accuracy
from functions import BINARY, UNARY
from kernels import Kernel, host_widths
from records import Journal, Record
from report import render

from autofuse.ir.dtypes import BF16, F16, F32, F64, DType

ROOT = Path(__file__).resolve().parents[2]
ALL = (*UNARY, *BINARY)
SAMPLES_PER_RECORD = 1 << 22
_ONE = 0x3F80_0000
"""The bit pattern of 1: the chunks about it come first."""


@dataclass(frozen=True, slots=True)
class Task:
    """One record to make."""

    key: Record
    """What tells the record from others."""
    work: Callable[[], Record]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--functions", default=",".join(ALL), help="names, separated by commas; default all")
    parser.add_argument("--parts", default="widths,narrow,sampled,every,speed", help="what to do (default all)")
    parser.add_argument("--chunk-bits", type=int, default=27, help="log2 of the f32 patterns of a record (default 27)")
    parser.add_argument("--share", type=int, default=1, help="do each N-th chunk of the f32 patterns only (default 1)")
    parser.add_argument(
        "--samples", type=int, default=20 << 20, help="sampled arguments of f64 and pairs (default 20 Mi)"
    )
    parser.add_argument("--width-samples", type=int, default=1 << 19, help="arguments compared between widths")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peers", default=sys.executable, help="the Python that times; it has PyTorch or does without")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """All of the work but timing, in an order that finds faults early: the functions take turns."""
    makers = {"widths": _widths, "narrow": _narrow, "sampled": _sampled, "every": _every}
    for part in options.parts.split(","):
        if part in makers:
            lists = [makers[part](options, name) for name in options.functions.split(",")]
            yield from (task for turn in zip_longest(*lists) for task in turn if task is not None)


def _kernel(name: str, dtype: DType) -> tuple[Kernel, Record]:
    """The kernel of the widest vectors, and the part of a key that names it."""
    kernel = Kernel(name, (dtype,) * (2 if name in BINARY else 1), dtype, host_widths()[-1])
    code = hashlib.sha256(kernel.text.encode()).hexdigest()[:12]
    return kernel, {"function": name, "dtype": dtype.name, "code": code}


def _widths(options: argparse.Namespace, name: str) -> Iterator[Task]:
    for dtype in (F32, F64):
        kernel, key = _kernel(name, dtype)

        def work(kernel: Kernel = kernel, dtype: DType = dtype) -> Record:
            wrong = accuracy.wrong_specials(name, kernel) if name in UNARY else []
            return {
                "differing": accuracy.widths_agree(name, dtype, options.seed, options.width_samples),
                "wrong": wrong,
            }

        yield Task({"kind": "widths", **key, "points": options.width_samples | 1, "seed": options.seed}, work)


def _narrow(_: argparse.Namespace, name: str) -> Iterator[Task]:
    for dtype in (F16, BF16) if name in UNARY else ():
        kernel, key = _kernel(name, dtype)
        yield Task(
            {"kind": "every", **key, "start": 0, "stop": 1 << 16},
            lambda kernel=kernel: asdict(accuracy.every_pattern(name, kernel, 0, 1 << 16)),
        )


def _sampled(options: argparse.Namespace, name: str) -> Iterator[Task]:
    for dtype in (F64,) if name in UNARY else (F32, F64):
        kernel, key = _kernel(name, dtype)
        for part, first in enumerate(range(0, options.samples, SAMPLES_PER_RECORD)):
            count, seed = min(SAMPLES_PER_RECORD, options.samples - first), options.seed + part
            yield Task(
                {"kind": "sampled", **key, "seed": seed, "points": count},
                lambda kernel=kernel, count=count, seed=seed: asdict(accuracy.sampled(name, kernel, seed, count)),
            )


def _every(options: argparse.Namespace, name: str) -> Iterator[Task]:
    if name not in UNARY:
        return
    kernel, key = _kernel(name, F32)
    yield Task(
        {"kind": "reference", "function": name, "dtype": "f32", "seed": options.seed},
        lambda: {"error": accuracy.reference_error(name, options.seed)},
    )
    size = 1 << options.chunk_bits
    starts = range(0, 1 << 32, size * options.share)
    for start in sorted(starts, key=lambda start: abs((start & 0x7FFF_FFFF) - _ONE)):
        yield Task(
            {"kind": "every", **key, "start": start, "stop": start + size},
            lambda start=start: asdict(accuracy.every_pattern(name, kernel, start, start + size)),
        )


def time_all(journal: Any, options: argparse.Namespace) -> None:
    """Time every function in a process of its own and keep the records."""
    names = [*options.functions.split(","), "convert"]
    command = [options.peers, str(Path(__file__).with_name("speed.py")), ",".join(names)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        for line in child.stdout:
            journal.append(json.loads(line))
    if child.returncode:
        raise SystemExit(f"timing failed: {shlex.join(command)}")


def environment() -> Record:
    """Machine, versions, command, commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "",
    )
    names = ("numpy", "scipy", "llvmlite")
    versions = ", ".join(f"{name} {__import__(name).__version__}" for name in names)
    return {
        "kind": "environment",
        "machine": f"{cpu or platform.processor()}, vectors of {host_widths()[-1].bits} bits; {platform.platform()}",
        "versions": f"Python {platform.python_version()}, {versions}, {' '.join(platform.libc_ver())}",
        "command": shlex.join(["python", str(Path(__file__).relative_to(ROOT)), *sys.argv[1:]]),
        "begun": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit,
    }


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    journal = Journal(options.out / "vector-math.jsonl", options.fresh)
    journal.append(environment())
    try:
        if "speed" in options.parts.split(","):
            time_all(journal, options)
        os.nice(15)
        for task in tasks(options):
            if journal.latest(**task.key) is None:
                start = time.perf_counter()
                found = task.work()
                journal.append(task.key | found | {"seconds": round(time.perf_counter() - start, 2)})
                _show(task.key, found)
    except KeyboardInterrupt:
        print("\ninterrupted; the same command carries on", file=sys.stderr)
    codes = {(name, dtype.name): _kernel(name, dtype)[1]["code"] for name in ALL for dtype in (F32, F64)}
    (options.out / "vector-math.md").write_text(render(journal.records, codes))
    return 0


def _show(key: Record, found: Record) -> None:
    if sys.stderr.isatty():
        place = f" from {key['start']:#x}" if "start" in key else ""
        print(
            f"\r\x1b[K{key['kind']} {key['function']} {key['dtype']}{place} {found.get('worst', '')}",
            end="",
            file=sys.stderr,
        )


if __name__ == "__main__":
    raise SystemExit(main())
