"""The study of cost models: `python experiments/cost_model_eval/run.py [RECORDS]`.

Every table comes from the data set, without the machine that it was measured on. What is computed is kept as it comes;
the same command carries on where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from evaluation_plots import picture
from evaluation_report import report
from journal import Journal
from provenance import ROOT, commit
from samples import Samples, noise, samples_of, target_of
from spaces import whole_spaces
from study import Found, Key, Settings, Study, Task

from autofuse.errors import ArgumentError, AutofuseError
from autofuse.measurement.worker import die_with

RECORDS = ROOT / "datasets" / "measurements" / "cpu.npz"
OUT = ROOT / "experiments" / "results" / "cost-model-eval.md"
_QUICK = Settings(models=("analytical", "ridge", "learned"), seeds=1, folds=2, without=("ridge",))
_FIXED = ("dataset", "base", "base_version", "feature_version", "settings", "models", "seeds", "folds")
"""Of the record of a run: what must be equal for others to be comparable."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "records", type=Path, nargs="?", default=RECORDS, help="a file of records (default %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="the report (default %(default)s)")
    parser.add_argument("--fresh", action="store_true", help="throw away what was computed before")
    parser.add_argument("--quick", action="store_true", help="three models, one seed, two folds")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--report", action="store_true", help="write the report of what was computed, and no more")
    options = parser.parse_args(argv)
    try:
        return _run(options)
    except AutofuseError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; the same command carries on: {shlex.join(sys.argv)}", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.jobs < 1:
        raise ArgumentError(f"--jobs={options.jobs}: must be at least 1")
    journal = Journal(options.out.with_suffix(".jsonl"), options.fresh)
    if not options.report:
        settings = _QUICK if options.quick else Settings()
        samples = samples_of(options.records)
        _begin(journal, samples, options.records, "quick" if options.quick else "full", settings)
        _compute(journal, Study(samples, whole_spaces(samples), settings), options.jobs)
    if journal.latest(kind="run") is None:
        raise ArgumentError(f"{journal.path} holds no run to report: leave out --report")
    options.out.write_text(report(journal.records), encoding="utf-8")
    picture(journal.records, options.out.with_suffix(".png"))
    print(options.out)
    return 0


def _compute(journal: Journal, study: Study, jobs: int) -> None:
    """Compute what the journal lacks, in processes that share the samples."""
    tasks = [tuple(key for key in task if journal.latest(**key) is None) for task in study.tasks()]
    todo = [task for task in tasks if task]
    for done, cells in enumerate(_in_processes(study, todo, jobs) if jobs > 1 else map(study.computed, todo)):
        for key, found in cells:
            journal.append({**key, **found})
        _say(f"{done + 1} of {len(todo)} parts")


def _in_processes(study: Study, todo: Sequence[Task], jobs: int) -> Iterator[list[tuple[Key, Found]]]:
    """What tasks give, as they come."""
    study.prepare()
    _SHARED.append(study)
    pool = ProcessPoolExecutor(jobs, get_context("fork"), initializer=die_with, initargs=(os.getpid(),))
    try:
        for future in as_completed([pool.submit(_computed, task) for task in todo]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        _SHARED.clear()


_SHARED: list[Study] = []
"""What processes inherit: it would take minutes to make again, or to hand over."""


def _computed(task: Task) -> list[tuple[Key, Found]]:
    return list(_SHARED[0].computed(task))


def _begin(journal: Journal, samples: Samples, records: Path, name: str, settings: Settings) -> None:
    """Note what the run is about, or check that it is the one that was begun."""
    base = target_of(samples.seen[0]).cost_model().describe()
    shown = records.resolve().relative_to(ROOT) if ROOT in records.resolve().parents else records.name
    run = {
        "kind": "run",
        "command": f"python experiments/cost_model_eval/run.py {shown}{' --quick' * (name == 'quick')}",
        "commit": commit(),
        "dataset": hashlib.sha256(records.read_bytes()).hexdigest(),
        "base": base["name"],
        "base_version": base["version"],
        "feature_version": base["feature_version"],
        "samples": len(samples.seen),
        "programs": len(set(samples.numbered("grouped").tolist())),
        "noise": noise(samples.seen),
        "settings": name,
        "models": list(settings.models),
        "seeds": settings.seeds,
        "folds": settings.folds,
    }
    begun = journal.latest(kind="run")
    if begun is None:
        journal.append(run)
        return
    for name in _FIXED:
        if begun[name] != run[name]:
            raise ArgumentError(f"{journal.path} was begun with another {name}; give --fresh, or another --out")


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
