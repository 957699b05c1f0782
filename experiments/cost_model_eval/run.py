"""The study of cost models: `python experiments/cost_model_eval/run.py [RECORDS]`.

Every table comes from the data set, without the machine that it was measured on. What is computed is kept as it comes;
the same command carries on where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from evaluation_report import picture, report
from journal import Journal
from provenance import ROOT, commit
from samples import Samples, noise, samples_of, target_of
from study import Settings, cells

from autofuse.errors import ArgumentError, AutofuseError

RECORDS = ROOT / "datasets" / "measurements" / "cpu.npz"
OUT = ROOT / "experiments" / "results" / "cost-model-eval.md"
_QUICK = Settings(models=("analytical", "learned", "ridge"), seeds=1, folds=2)
_FIXED = ("dataset", "base", "base_version", "feature_version", "settings")
"""Of the record of a run: what must be equal for others to be comparable."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "records", type=Path, nargs="?", default=RECORDS, help="a file of records (default %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="the report (default %(default)s)")
    parser.add_argument("--fresh", action="store_true", help="throw away what was computed before")
    parser.add_argument("--quick", action="store_true", help="three models, one seed, two folds")
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
    journal = Journal(options.out.with_suffix(".jsonl"), options.fresh)
    if not options.report:
        settings = _QUICK if options.quick else Settings()
        samples = samples_of(options.records)
        _begin(journal, samples, options.records, "quick" if options.quick else "full")
        for key, compute in cells(samples, settings):
            if journal.latest(**key) is None:
                _say(" ".join(str(value) for value in key.values()))
                journal.append({**key, "figures": compute()})
    if journal.latest(kind="run") is None:
        raise ArgumentError(f"{journal.path} holds no run to report: leave out --report")
    options.out.write_text(report(journal.records), encoding="utf-8")
    picture(journal.records, options.out.with_suffix(".png"))
    print(options.out)
    return 0


def _begin(journal: Journal, samples: Samples, records: Path, settings: str) -> None:
    """Note what the run is about, or check that it is the one that was begun."""
    base = target_of(samples.seen[0]).cost_model().describe()
    shown = records.resolve().relative_to(ROOT) if ROOT in records.resolve().parents else records.name
    run = {
        "kind": "run",
        "command": f"python experiments/cost_model_eval/run.py {shown}",
        "commit": commit(),
        "dataset": hashlib.sha256(records.read_bytes()).hexdigest(),
        "base": base["name"],
        "base_version": base["version"],
        "feature_version": base["feature_version"],
        "samples": len(samples.seen),
        "programs": len(set(samples.numbered("grouped").tolist())),
        "noise": noise(samples.seen),
        "settings": settings,
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
