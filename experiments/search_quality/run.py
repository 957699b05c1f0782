"""How near to the best does the search come, after how many measurements? python experiments/search_quality/run.py.

On small programs the whole space is measured and every partition met; the plans of all policies, and of the measuring
search under several allowances and seeds, are held against the best. The parameters are in study.toml. Writes
search-quality.jsonl (a record per step, on disk before the next begins), search-quality.md and search-quality.png.
The same command again carries on, and makes again only what failed; --report draws from the records alone.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from pathlib import Path

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from children import exit_code
from command import parse, written
from journal import Journal, Record
from once import Once
from provenance import machine, open_run
from quality_figures import build_rows, search_times
from quality_report import render
from quality_settings import FREE, HERE, Study
from settings import chosen, comparable, read, recorded
from steps import Steps

from autofuse.measurement.workloads import Workload, discover
from autofuse.plan.identity import MEASUREMENT_POLICY
from autofuse.targets.cpu.identity import GENERATOR

Programs = list[Workload]


def programs_of(study: Study, wanted: str | None) -> tuple[Programs, Programs]:
    """The small programs and the workloads of a run. Raises ArgumentError for one that there is not."""
    small, large = discover(HERE / "programs"), discover()
    if wanted is None:
        return chosen(study.programs, small, "programs"), chosen(study.workloads, large, "workloads")
    found = chosen(wanted.split(","), [*small, *large], "--programs")
    return [program for program in found if program in small], [program for program in found if program in large]


def study_of(options: argparse.Namespace) -> None:
    """The whole study; the report is written even when it is interrupted."""
    study = read(options.study, Study, options.quick)
    programs = programs_of(study, options.programs)
    journal = Journal(options.out.with_suffix(".jsonl"), options.fresh)
    if options.report:
        write(recorded(journal), journal, study, programs, options.out)
        return
    run = open_run(
        journal,
        {**comparable(study, FREE), "generator": GENERATOR, "policy": MEASUREMENT_POLICY},
        machine(),
    )
    once = Once(journal, HERE / "child.py", options.work, {"size": study.size, "seed": study.seed})
    try:
        Steps(once, study).make_all(*programs)
    finally:
        write(run, journal, study, programs, options.out)


def write(run: Record, journal: Journal, study: Study, programs: tuple[Programs, Programs], out: Path) -> None:
    """The report and the picture, from what is in the journal."""
    small, large = ([program.name for program in some] for some in programs)
    rows, searched = build_rows(small, journal, study), search_times(large, journal, study)
    text = render(rows, searched, run, study)
    written(out, text, lambda path: importlib.import_module("quality_picture").draw(rows, searched, study, path))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = parse(__doc__, HERE, "search-quality")
    sys.exit(exit_code(lambda: study_of(command)))
