"""Is search worth it against the rules of other compilers? python experiments/rules_vs_search/run.py.

Every workload is fused by the rules of other compilers, by greedy search and by exact search, over the kernels that the
rules make and over all candidates, at modelled, corrected and measured prices, with and without tuned schedules, and
without single parts of the search; every plan with the same budget on one code generator. The parameters are in
study.toml. Writes rules-vs-search.jsonl (a record per step, on disk before the next begins), rules-vs-search.md and
rules-vs-search.png. The same command again carries on, and makes again only what failed; --report draws from the
records alone.
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
from rivals_figures import build_rows
from rivals_report import render
from rivals_settings import FREE, HERE, Study
from rivals_steps import Steps
from settings import chosen, comparable, read, recorded

from autofuse.measurement.workloads import Workload, discover
from autofuse.plan.identity import MEASUREMENT_POLICY
from autofuse.targets.cpu.identity import GENERATOR


def study_of(options: argparse.Namespace) -> None:
    """The whole study; the report is written even when it is interrupted."""
    study = read(options.study, Study, options.quick)
    wanted = study.programs if options.programs is None else options.programs.split(",")
    programs = chosen(wanted, discover(), "programs")
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
        Steps(once, study).make_all(programs)
    finally:
        write(run, journal, study, programs, options.out)


def write(run: Record, journal: Journal, study: Study, programs: list[Workload], out: Path) -> None:
    """The report and the picture, from what is in the journal."""
    rows = build_rows([program.name for program in programs], journal, study)
    text = render(rows, run, study)
    written(out, text, lambda path: importlib.import_module("rivals_picture").draw(rows, study, path))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = parse(__doc__, HERE, "rules-vs-search")
    sys.exit(exit_code(lambda: study_of(command)))
