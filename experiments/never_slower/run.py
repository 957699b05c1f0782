"""Is any NumPy function slower through autofuse than by itself? python experiments/never_slower/run.py.

Every call of `cases.py` is compiled by the model alone (no tuning) and timed against NumPy, the two taking turns, at a
million elements. The answers are compared first. Writes never-slower.jsonl and never-slower.md into --out. Minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, Case

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code
from interleaved import mismatch
from journal import Journal, Record
from provenance import ROOT, machine, open_run

import autofuse as af
from autofuse.errors import AutofuseError
from autofuse.measurement.timer import median, rest
from autofuse.report.quantities import microseconds

ALLOWED = 1.3
"""Times NumPy's own: the study's target."""
_TURN_US = 15_000.0
"""About how long each of the two is called in one turn."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--turns", type=int, default=7, help="turns of each of the two (default 7)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long (default: when done)")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    parser.add_argument("--cases", help="only cases whose names hold one of these words, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def study(options: argparse.Namespace) -> None:
    """All of it; the report is written even when it is interrupted."""
    journal = Journal(options.out / "never-slower.jsonl", options.fresh)
    run = open_run(journal, {"turns": options.turns, "seed": options.seed}, machine())
    words = (options.cases or "").split(",")
    wanted = [(c, dtype) for c in CASES if any(word in c.name for word in words) for dtype in c.dtypes]
    end = time.monotonic() + options.seconds
    try:
        for case, dtype in wanted:
            if journal.latest(case=case.name, dtype=dtype) or time.monotonic() > end:
                continue
            record = {"case": case.name, "dtype": dtype, **_measured(case, dtype, options)}
            journal.append(record)
            print(_line(record), file=sys.stderr)
    finally:
        (options.out / "never-slower.md").write_text(render(run, journal.records))


def _measured(case: Case, dtype: str, options: argparse.Namespace) -> Record:
    arguments = case.arguments(np.random.default_rng(options.seed), np.dtype(dtype))
    start = time.perf_counter()
    try:
        plan = af.compile(case.function, *arguments)
        plan(*arguments)
    except AutofuseError as error:
        return {"refused": str(error).splitlines()[0]}
    compile_s = time.perf_counter() - start
    wrong = mismatch(_arrays(case.function(*arguments)), _arrays(plan(*arguments)))
    if wrong:
        return {"wrong": wrong}
    return {
        "compile_s": compile_s,
        **_times(lambda: case.function(*arguments), lambda: plan(*arguments), options.turns),
    }


def _arrays(result: Any) -> list[Any]:
    items = result if isinstance(result, tuple | list) else [result]
    return [
        array for item in items for array in (_arrays(item) if isinstance(item, tuple | list) else [np.asarray(item)])
    ]


def _times(numpy: Callable[[], object], plan: Callable[[], object], turns: int) -> Record:
    """Microseconds of the fastest call of each turn, the two taking turns."""
    rest()
    calls = max(1, min(50, round(_TURN_US / min(_fastest(numpy, 2), _fastest(plan, 2)))))
    pairs: list[tuple[float, float]] = []
    for turn in range(turns):
        if turn % 2:
            own = _fastest(plan, calls)
            pairs.append((_fastest(numpy, calls), own))
        else:
            pairs.append((_fastest(numpy, calls), _fastest(plan, calls)))
    return {"numpy_us": [theirs for theirs, _ in pairs], "plan_us": [own for _, own in pairs]}


def _fastest(call: Callable[[], object], calls: int) -> float:
    call()
    found = float("inf")
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        found = min(found, (time.perf_counter_ns() - start) / 1e3)
    return found


def _ratios(record: Record) -> list[float]:
    return sorted(own / theirs for theirs, own in zip(record["numpy_us"], record["plan_us"], strict=True))


def _line(record: Record) -> str:
    for fault in ("refused", "wrong"):
        if fault in record:
            return f"{record['case']} {record['dtype']}: {fault}: {record[fault]}"
    return f"{record['case']} {record['dtype']}: {median(_ratios(record)):.2f}"


def render(run: Record, records: list[Record]) -> str:
    """The report, from the records alone."""
    timed = sorted((r for r in records if "plan_us" in r), key=lambda r: -median(_ratios(r)))
    slower = [r for r in timed if median(_ratios(r)) > ALLOWED]
    faults = [r for r in records if "refused" in r or "wrong" in r]
    found = [median(_ratios(r)) for r in timed]
    lines = [
        "# Never much slower than NumPy",
        "",
        f"{run['machine']['model']} ({run['machine']['threads']} threads), NumPy {run['machine']['numpy']}, "
        f"{run['begun']}, commit {run['commit']}: `{run['command']}`",
        "",
        f"{len(timed)} calls of NumPy functions at a million elements, compiled by the model alone and timed in turns "
        f"with NumPy. Time of the plan over NumPy's: {sum(ratio < 1 for ratio in found)} below 1, "
        f"{len(slower)} above {ALLOWED:g}, median {median(found) if found else 0:.2f}. Slowest first; `low` and `high` "
        f"are the least and greatest ratio of {run['settings']['turns']} turns.",
        "",
        "| call | dtype | NumPy | plan | plan / NumPy | low | high |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for record in timed:
        ratios = _ratios(record)
        times = (microseconds(median(record[side])) for side in ("numpy_us", "plan_us"))
        lines.append(
            f"| {record['case']} | {record['dtype']} | {' | '.join(times)} | {median(ratios):.2f} | {ratios[0]:.2f} "
            f"| {ratios[-1]:.2f} |"
        )
    if faults:
        lines += ["", "Not timed:", "", *(f"- {_line(record)}" for record in faults)]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return exit_code(lambda: study(options))


if __name__ == "__main__":
    sys.exit(main())
