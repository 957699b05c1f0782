"""autofuse beside its peers: the command line of the study. `make peers` runs it with everything installed.

The same command again carries on where it stopped, and makes again only what failed or whose code has changed since.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import numpy as np
from children import exit_code, in_child
from figures import build_rows, small_things
from journal import Journal, Record
from measuring import CHILD, LIMIT_S, Measurements, list_frameworks, settings_of
from provenance import ROOT, machine, open_run
from report import render
from variants import HERE, QUICK, VARIANTS, applicable, environment

from autofuse.measurement.workloads import Workload, discover, load

OVERHEAD = HERE / "programs"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="names, separated by commas; default all")
    parser.add_argument("--variants", help=f"of {', '.join(VARIANTS)}; separated by commas; default all")
    parser.add_argument("--rounds", type=int, default=3, help="timing processes per program and variant (default 3)")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tuning per plan (default 20)")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--blocks", type=int, default=7, help="repetitions within a round (default 7)")
    parser.add_argument("--block-ms", type=float, default=50.0, help="timed milliseconds per block (default 50)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=ROOT / "plans" / "peers", help="folder for plans and caches")
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results" / "peers.md")
    parser.add_argument("--fresh", action="store_true", help="throw away the records there are")
    parser.add_argument("--quick", action="store_true", help="one short round, untuned plans, medians on stdout")
    options = parser.parse_args(argv)
    default = QUICK if options.quick else VARIANTS
    options.variants = options.variants.split(",") if options.variants else list(default)
    unknown = sorted(set(options.variants) - set(VARIANTS))
    if unknown:
        parser.error(f"--variants: must be among {', '.join(VARIANTS)}; got {', '.join(unknown)}")
    return options


def chosen(options: argparse.Namespace) -> list[Workload]:
    """The programs of the command line. Raises ArgumentError for one that there is not."""
    return [load(name) for name in options.programs.split(",")] if options.programs else discover()


def study(options: argparse.Namespace) -> None:
    """The whole study; the report is written even when it is interrupted."""
    programs = chosen(options)
    journal = Journal(options.out.with_suffix(".jsonl"), options.fresh)
    settings = settings_of(options)
    found = list_frameworks(settings["threads"])
    for name in found["catalogue"]["missing"]:
        print(f"{name} is not installed: its variants are left out", file=sys.stderr)
    run = open_run(journal, settings, machine() | {"versions": found["versions"]})
    try:
        Measurements(journal, options, [*programs, *discover(OVERHEAD)], found["catalogue"]).make_all()
    finally:
        write(journal, run, options, programs)


def write(journal: Journal, run: Record, options: argparse.Namespace, programs: list[Workload]) -> None:
    """The report and the picture, from what is in the journal."""
    rows = build_rows([program.name for program in programs], journal, options.rounds)
    small = small_things([program.name for program in discover(OVERHEAD)], journal, options.rounds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(render(rows, small, run, options.rounds))
    written = [str(options.out), str(journal.path)]
    try:
        from picture import draw
    except ImportError as error:
        print(f"no picture: {error}", file=sys.stderr)
    else:
        picture = options.out.with_suffix(".png")
        if draw(rows, picture):
            written.append(str(picture))
    print(f"wrote {', '.join(written)}", file=sys.stderr)


def quick(options: argparse.Namespace) -> None:
    """One line per program: median milliseconds of a call with fresh results; plans are not tuned."""
    programs = chosen(options)
    settings = settings_of(options) | {"blocks": 3, "round": 0, "cold": False, "brief": True}
    catalogue = list_frameworks(settings["threads"])["catalogue"]
    env = environment(settings["threads"], options.work / "caches" / "quick")
    print(f"{'ms, results fresh':28s}" + "".join(f"{variant:>18s}" for variant in options.variants))
    for program in programs:
        here = applicable(program.name, catalogue, True, options.variants)
        line = f"{program.name:28s}"
        for variant in options.variants:
            task = {**settings, "kind": "round", "file": str(program.file), "variant": variant}
            line += f"{_brief(in_child(CHILD, task, LIMIT_S, env)) if variant in here else '-':>18s}"
        print(line, flush=True)


def _brief(record: Record) -> str:
    if record["status"] != "ok" or "fault" in record:
        print(record.get("fault") or record["error"], file=sys.stderr)
        return "wrong" if "fault" in record else "failed"
    return f"{np.median([np.median(block) for block in record['samples']['fresh']]) / 1e3:.3f}"


def main() -> int:
    options = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return exit_code(lambda: (quick if options.quick else study)(options))
