"""The command line of a study whose parameters are in a study.toml beside it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from provenance import ROOT


def parse(about: str | None, here: Path, name: str) -> argparse.Namespace:
    """The options of this command; exits with code 2 for what cannot be. `name`: of the report."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="names, separated by commas; default those in study.toml")
    parser.add_argument("--study", type=Path, default=here / "study.toml", help="the parameters")
    parser.add_argument("--work", type=Path, default=ROOT / "plans" / name, help="folder for plans and measurements")
    parser.add_argument("--out", type=Path, help=f"the report; default experiments/results/{name}.md")
    parser.add_argument("--quick", action="store_true", help="a smoke run under [quick], by default into --work")
    parser.add_argument("--report", action="store_true", help="draw from the records there are; measure nothing")
    parser.add_argument("--fresh", action="store_true", help="throw away the records there are")
    options = parser.parse_args()
    if options.report and options.fresh:
        parser.error("--report draws from the records that --fresh throws away")
    options.work = options.work / ("quick" if options.quick else "full")
    options.out = options.out or (options.work if options.quick else ROOT / "experiments" / "results") / f"{name}.md"
    return options


def written(out: Path, text: str, draw: Callable[[Path], bool]) -> None:
    """Write a report and, where there is something to draw and something to draw with, its picture; say so."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    files = [str(out), str(out.with_suffix(".jsonl"))]
    try:
        if draw(out.with_suffix(".png")):
            files.append(str(out.with_suffix(".png")))
    except ImportError as error:
        print(f"no picture: {error}", file=sys.stderr)
    print(f"wrote {', '.join(files)}", file=sys.stderr)
