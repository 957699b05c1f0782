"""What plans are worth on this machine's GPU: python experiments/gpu/run.py --minutes 10, or `make gpu MINUTES=10`.

The most valuable comes first (`sections.py`): the device, its copy rate and its calibration; whether every form of
kernel is right; what an H200 should reach; kernels in several ways, which defaults were chosen by counts for; programs;
kernels beside what is counted of them; CuPy, jax.jit and torch.compile; schedule records; graphs and streams; the
kernels that the model knows least about. Each step is a process of its own, and on disk before the next one begins: a
kill loses nothing, and the same command does what is missing. What other code of autofuse measured is measured anew,
but for what is of the device and of others alone. All is in one folder (--out): gpu.jsonl, gpu.md, records of schedules
and tuned plans. `--backend simulated` rehearses it, with times of the model.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import count
from pathlib import Path
from time import monotonic

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code, in_child, tell
from gpu_report import render
from journal import Journal, Record
from provenance import ROOT, code, differences, machine, open_run
from sections import OF_THE_DEVICE, SECTIONS, Plan, Section, time_of
from turns import closed, taken

from autofuse.errors import ArgumentError, BackendError
from autofuse.targets.cuda.launch import gpu_problem

CHILD = Path(__file__).resolve().parent / "child.py"
PEERS = ("cupy", "jax", "torch")
_ASKED_S = 180.0
"""At most, for a look at the device."""
_LEAST_S = 10.0
"""Nothing begins with less time left."""
_MOST_JOBS = 12
"""Processes, each of which has its own context on the device."""
_PEER_S = 60.0
"""At most for one peer's time of one program, most of it compiling, unless its share is more: others have it too."""
_TURN_S = 3.0
"""More for each of a batch, while others are timed."""
_BUDGETED = frozenset(("calibrate", "tune", "aim-tuned"))
"""Steps that are told how long they may take: half of what they have, since compiling and races come on top."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of results (default experiments/results/gpu; gpu-2 and so on, if that is of another machine)",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="most time of this command (default 10)")
    parser.add_argument("--programs", default="", help="and forms, separated by commas; default all")
    parser.add_argument("--peers", default=",".join(PEERS), help="separated by commas, or none (default %(default)s)")
    parser.add_argument("--size", default="full", help="of programs (default full)")
    parser.add_argument(
        "--numerics",
        default="strict",
        choices=("strict", "fast"),
        help="of plans, and the same of others: strict with products of full f32, fast with TF32, which JAX has by "
        "default; fast writes gpu-fast.*",
    )
    parser.add_argument("--backend", default="cuda", help='"simulated" shows what the study does without a GPU')
    parser.add_argument(
        "--sections", default="", help="after the first one: beginnings of names, separated by commas; default all"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=min(os.cpu_count() or 1, _MOST_JOBS),
        help="processes at once that take no times, or get ready to be timed one after another (default %(default)s: "
        f"one for each CPU, at most {_MOST_JOBS})",
    )
    parser.add_argument("--no-contract", action="store_true", help="leave out the tests")
    parser.add_argument("--fresh", action="store_true", help="throw away the records that there are")
    return parser.parse_args(argv)


def study(options: argparse.Namespace) -> None:
    """All of it that there is time for; the report is written after each section, and when it is interrupted."""
    if options.jobs < 1:
        raise ArgumentError(f"--jobs={options.jobs}: must be at least 1")
    if options.backend == "cuda" and (problem := gpu_problem()) is not None:
        raise BackendError(f"nothing to measure on: {problem}")
    name = "gpu" if options.numerics == "strict" else "gpu-fast"
    settings: Record = {"backend": options.backend, "size": options.size, "numerics": options.numerics}
    here = {**machine(), **_device(settings)}
    folder = options.out or _folder(name, settings, here)
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / f"{name}.jsonl", options.fresh)
    run = open_run(journal, settings, here)
    plan = Plan(
        code=code(),
        backend=options.backend,
        programs=_listed(options.programs),
        peers=() if options.peers == "none" else _listed(options.peers),
        size=options.size,
        contract=not options.no_contract,
        jobs=options.jobs,
        database=str(folder / "records.db"),
    )
    end = monotonic() + 60 * options.minutes
    wanted = _listed(options.sections) or ("",)
    sections = [one for one in SECTIONS if one is SECTIONS[0] or one.name.startswith(wanted)]
    for section in sections:
        until = monotonic() + time_of(section, sections, max(end - monotonic(), 0.0))
        try:
            _do(section, plan, journal, {"backend": options.backend, "numerics": options.numerics}, until)
        finally:
            _write(folder / f"{name}.md", render(run, journal))


def _device(settings: Record) -> Record:
    """What the device is called, and its driver. A process of its own asks, so that this one has no memory there."""
    found = in_child(CHILD, {"step": "device", **settings}, _ASKED_S)
    if found["status"] != "ok":
        raise BackendError(f"the device cannot be asked what it is: {found['error']}")
    return {name: value for name, value in found.items() if name != "status"}


def _folder(name: str, settings: Record, here: Record) -> Path:
    """The first folder of results that holds none of another machine or of other settings."""
    first = "gpu" if settings["backend"] == "cuda" else "gpu-rehearsed"
    for number in count(1):
        folder = ROOT / "experiments" / "results" / (first if number == 1 else f"{first}-{number}")
        known = Journal(folder / f"{name}.jsonl").latest(kind="run") if folder.exists() else None
        if known is None or not differences(known["settings"], settings) + differences(known["machine"], here):
            return folder
    raise AssertionError("numbers do not end")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _do(section: Section, plan: Plan, journal: Journal, settings: Record, until: float) -> None:
    """What there is time for of a section, but for what is known. `settings`: of all steps."""
    tasks = [task for task in section.tasks(plan, journal) if not _is_known(journal, task, plan.code)]

    def run(number: int, turn: int | None = None) -> Record | None:
        left_s = until - monotonic()
        return _outcome(tasks[number], plan, settings, left_s, left_s / (len(tasks) - number), turn)

    jobs = plan.jobs if section.untimed or section.in_turn else 1
    found = (
        _in_batches(run, len(tasks), jobs) if section.in_turn and jobs > 1 else _beside(run, range(len(tasks)), jobs)
    )
    late = False
    for number, outcome in found:
        task = tasks[number]
        if outcome is None:
            late = True
            continue  # others may still run
        journal.append({"section": section.name, **task, **outcome, "code": plan.code})
        tell(" ".join(str(task[name]) for name in ("step", "program", "kernel") if name in task), outcome)
    if late:
        print(f"{section.name}: the time is up; the same command carries on", file=sys.stderr)


def _outcome(
    task: Record, plan: Plan, settings: Record, left_s: float, share_s: float, turn: int | None
) -> Record | None:
    """Of a step; None where there is no time left. `share_s`: of the time that is left, what falls to it."""
    if left_s < _LEAST_S:
        with closed(turn):
            return None
    more: Record = {}
    if task["step"] in _BUDGETED:
        more = {"budget_s": max(share_s, _LEAST_S) / 2}
    elif task["step"] == "contract":
        more = {"jobs": plan.jobs, "limit_s": left_s}
    most_s = max(_PEER_S, share_s) if task["step"] in PEERS else left_s
    if turn is not None:
        most_s = _PEER_S + _TURN_S * plan.jobs
    return in_child(CHILD, {**task, **more, **settings}, min(most_s, left_s), turn=turn)


def _beside(
    run: Callable[[int], Record | None], numbers: Sequence[int], jobs: int
) -> Iterator[tuple[int, Record | None]]:
    """Outcomes with their numbers: one after another, or in so many threads as they come."""
    if jobs == 1:
        yield from ((number, run(number)) for number in numbers)
        return
    with ThreadPoolExecutor(jobs) as pool:
        begun = {pool.submit(run, number): number for number in numbers}
        try:
            yield from ((begun[done], done.result()) for done in as_completed(begun))
        finally:
            pool.shutdown(cancel_futures=True)


def _in_batches(run: Callable[[int, int], Record | None], count: int, jobs: int) -> Iterator[tuple[int, Record | None]]:
    """Outcomes with their numbers, of so many steps at once that get ready together and are timed one by one."""
    with tempfile.NamedTemporaryFile() as lock:
        for first in range(0, count, jobs):
            batch = range(first, min(first + jobs, count))
            turns = {number: taken(Path(lock.name)) for number in batch}  # all, before the first one asks to be timed
            yield from _beside(lambda number, turns=turns: run(number, turns[number]), batch, jobs)


def _is_known(journal: Journal, task: Record, now: str) -> bool:
    """Whether a step was done, by the code as it is `now` if that decides it; what was wrong is done again."""
    known = journal.latest(**task) if task["step"] in OF_THE_DEVICE else journal.latest(**task, code=now)
    if known is not None and "file" in known and not Path(known["file"]).expanduser().exists():
        return False  # rates that are kept on another machine are of no use here
    return known is not None and known["status"] == "ok" and known.get("right", True) and known.get("passed", True)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: study(parse())))
