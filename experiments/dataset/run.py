"""Measured kernels to learn prices from: python experiments/dataset/run.py, or `make dataset`.

Programs are made by number (workloads, workloads in other sizes, random ones), kernels are chosen of each so that
predicted times are log-uniform, and measured in several passes, each in processes of its own. All is kept in a folder
(--state) as it is made; Ctrl-C, SIGTERM or kill -9 ends it, and the same command carries on. What there is is written
to --out when it ends, unless by kill -9; --export does only that. A new folder carries on from the --out that there is:
nothing of it is measured again, and what is measured is added to it, on another day or another machine.

--spaces adds whole spaces and nothing else: workloads of which every kernel is measured, until the file has so many.
Their kernels are measured anew where the file knows them from another code generator or calibration: what is compared
within a space is of one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

import numpy as np
from before import begun_with
from card import card, is_uncalibrated
from children import exit_code
from choosing import MOST_WHOLE, WHOLE, Balance, chosen, targets_of
from collect import WORKERS, Collector
from journal import Record
from programs import Source, made, source_of, unstretched
from provenance import ROOT, machine
from state import State

from autofuse.cli.interrupts import termination_interrupts
from autofuse.errors import AutofuseError
from autofuse.measurement.cluster.connecting import leased
from autofuse.measurement.cluster.leases import Leases
from autofuse.measurement.worker import die_with
from autofuse.report.progress import progress_report
from autofuse.targets.base import Target, find_target

BLOCK = 24
"""Programs that are chosen from and measured together; where only whole spaces are wanted, one at a time."""
_WHOLE_AT_ONCE = 7
"""Of the programs of a block: those of which every kernel is measured if they are small enough."""
_SETTINGS = ("backend", "size", "seed", "kernels", "only")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "dataset", help="folder of what was done")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "datasets" / "measurements" / "cpu.npz",
        help="file of records; its card is written beside it",
    )
    parser.add_argument("--records", type=int, default=30_000, help="kernels under a schedule (default %(default)s)")
    parser.add_argument("--programs", type=int, default=1_000, help="programs, at least (default %(default)s)")
    parser.add_argument("--kernels", type=int, default=20, help="of a program, at most (default %(default)s)")
    parser.add_argument("--spaces", type=int, metavar="N", help="measure whole spaces alone, until there are N of them")
    parser.add_argument("--backend", default="cpu", help="cpu, cuda; simulated shows what is done without a GPU")
    parser.add_argument("--size", default="full", choices=("small", "full"), help="of workloads (default full)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scheduler", help="measure on the workers of a Dask cluster, all with this machine's device")
    parser.add_argument("--export", action="store_true", help="only write what there is")
    return parser.parse_args(argv)


def collect(options: argparse.Namespace) -> None:
    targets = targets_of(options.backend, find_target)
    if options.backend == "cpu" and any(is_uncalibrated(target.fingerprint()) for target in targets):
        print(
            "this device is not calibrated, and records keep what prices are made of: run `autofuse calibrate` first",
            file=sys.stderr,
        )
    options.only = None if options.spaces is None else "whole spaces"
    settings: Record = {name: getattr(options, name) for name in _SETTINGS}
    here = {**machine(), "device": [target.fingerprint() for target in targets]}
    begun_with(options.state, options.out)
    with State(options.state, settings, here, targets) as state:
        try:
            if not options.export:
                _collect(options, state, targets)
        finally:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            count = state.write(options.out)
            options.out.with_suffix(".md").write_text(card(state, options.out))
            print(f"wrote {options.out}: {count} records of passes", file=sys.stderr)


def _collect(options: argparse.Namespace, state: State, targets: Sequence[Target]) -> None:
    with (
        _leases(options, targets) as leases,
        Collector(state, targets, options.seed, leases) as collector,
        progress_report(sys.stderr.isatty()) as report,
    ):

        def tell() -> None:
            report("passes", state.ended, state.planned)

        size = BLOCK if options.spaces is None else 1
        for block in itertools.count():
            start, end = block * size, (block + 1) * size
            missing = range(start + len(state.programs[start:end]), end)
            more = bool(missing) and not _enough(options, state)
            if more:
                _plan(options, state, targets, missing)
            collector.collect(state.programs[start:end], tell)
            if missing and not more:
                break
    if options.spaces is not None and state.spaces < options.spaces:
        print(
            f"{state.spaces} spaces are whole, not {options.spaces}: others have more than {MOST_WHOLE} kernels",
            file=sys.stderr,
        )


@contextmanager
def _leases(options: argparse.Namespace, targets: Sequence[Target]) -> Generator[Leases | None]:
    """The devices of a cluster, if they are to measure."""
    if options.scheduler is None:
        yield None
        return
    with leased(options.scheduler, targets[-1]) as leases:
        yield leases


def _enough(options: argparse.Namespace, state: State) -> bool:
    if options.spaces is not None:
        return state.spaces >= options.spaces or len(state.programs) >= unstretched(options.size)
    records, programs = state.counted
    return records >= options.records and programs >= options.programs


def _plan(options: argparse.Namespace, state: State, targets: Sequence[Target], numbers: Sequence[int]) -> None:
    """Choose from the programs of a block beside each other; each knows of those of the blocks before."""
    balance = state.balance()
    sources = {number: source_of(number, options.seed, options.size) for number in numbers}
    fresh = _fresh(options, state, sources)
    left = (options.spaces or WHOLE) - state.spaces
    whole = [number for number, source in fresh.items() if _may_be_whole(options, source)][: min(left, _WHOLE_AT_ONCE)]
    context = multiprocessing.get_context("spawn")
    choosers = ProcessPoolExecutor(WORKERS, context, initializer=die_with, initargs=(os.getpid(),))
    try:
        tasks = {
            number: choosers.submit(
                choose, source, options.backend, balance, [options.seed, number], options.kernels, number in whole
            )
            for number, source in fresh.items()
        }
        planned = {_key(kernel) for program in state.programs for kernel in program["kernels"]}
        before = {_named(*key) for key in state.before.kernels()}
        like = {_named(*key) for key in state.before.kernels(targets)}
        for number, source in sources.items():
            found = _result(tasks[number]) if number in tasks else _nothing("was looked at before")
            if options.spaces is not None and number in tasks and not found["whole"]:
                found = _nothing(found["why"] or f"has more than {MOST_WHOLE} kernels, or some without a text")
            seen = planned | (like if found["whole"] else before)
            found["kernels"] = [kernel for kernel in found["kernels"] if _key(kernel) not in seen]
            planned |= {_key(kernel) for kernel in found["kernels"]}
            state.plan(number, source, **found)
    finally:
        choosers.shutdown(cancel_futures=True)


def _fresh(options: argparse.Namespace, state: State, sources: Mapping[int, Source]) -> dict[int, Source]:
    """Programs that kernels may be chosen of."""
    if options.spaces is None:
        passed = state.before.passed(options.seed, options.size)
        return {number: source for number, source in sources.items() if source.name not in passed}
    done = state.before.whole
    return {n: source for n, source in sources.items() if _may_be_whole(options, source) and source.name not in done}


def _may_be_whole(options: argparse.Namespace, source: Source) -> bool:
    """Whether a space is of a workload as it is, of the size that is asked for."""
    return source.size == options.size and not source.stretched


def _result(task: Future[Record]) -> Record:
    """What was chosen; nothing where the process died, which others of its block may be to blame for."""
    try:
        return task.result()
    except BrokenProcessPool as died:
        return _nothing(_told(died))


def _key(kernel: Record) -> tuple[str, str, int | None]:
    return _named(kernel["kernel"], kernel["schedule"], kernel["threads"])


def _named(kernel: str, schedule: Record, threads: int | None) -> tuple[str, str, int | None]:
    return kernel, json.dumps(schedule, sort_keys=True), threads


def choose(source: Source, backend: str, balance: Balance, seed: Sequence[int], most: int, whole: bool) -> Record:
    """What is planned for a program, in a process of its own."""
    targets = targets_of(backend, find_target)
    try:
        program = made(source)
        kernels, whole = chosen(program, targets, balance, np.random.default_rng(seed), most, whole)
    except (AutofuseError, ValueError, IndexError, TypeError, ArithmeticError, MemoryError) as bad:
        return _nothing(_told(bad))
    return {
        "kernels": [asdict(kernel) for kernel in kernels],
        "text": program.text,
        "bytes": program.nbytes,
        "whole": whole,
        "why": "",
    }


def _nothing(why: str) -> Record:
    """That a program gives no kernels."""
    return {"kernels": [], "text": "", "bytes": 0, "whole": False, "why": why}


def _told(why: Exception) -> str:
    return f"{type(why).__name__}: {why}"[:300]


if __name__ == "__main__":
    with termination_interrupts():
        sys.exit(exit_code(lambda: collect(parse())))
