"""Writes a report on the tallies of campaigns: what came of the programs, and which functions none of them called.

python -m tests.programs.tallies A.json B.json --out experiments/results/generated-programs.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.programs.coverage import supported_functions

_KINDS = {
    "right": "as NumPy, in every way that was run",
    "refused": "not traced, with an error that names the line and the remedy",
    "raises": "NumPy raises, and so does tracing or the plan",
    "unchecked": "NumPy raises, and so does a plan with `check_bounds=True`",
    "wrong": "another answer than NumPy's",
    "raw": "an internal error",
    "accepted": "NumPy raises, the plan answers",
}


def report(tallies: Sequence[dict[str, Any]]) -> str:
    """Markdown: those that made plans and those of the front end alone, by verdict; failures by seed."""
    lines = [
        "# Generated programs",
        "",
        "Programs of `tests/programs`, each compared with NumPy",
        "([0012](../../docs/decisions/0012-programs-are-generated-by-running-numpy.md)). Made by",
        "`python -m tests.programs.campaign BEGIN:END --json BEGIN.json` (`--interpreted`: the front end alone) and",
        "`python -m tests.programs.tallies *.json --out THIS`. Failures are those of the campaigns: mends came later.",
        "",
        "| verdict | compiled | front end alone | meaning |",
        "|---|---:|---:|---|",
    ]
    groups = [[tally for tally in tallies if bool(tally["plans"]) is made] for made in (True, False)]
    counts = [sum((Counter[str](tally["kinds"]) for tally in group), Counter[str]()) for group in groups]
    lines += [f"| {kind} | {counts[0][kind]:,} | {counts[1][kind]:,} | {words} |" for kind, words in _KINDS.items()]
    lines += [f"| all | {counts[0].total():,} | {counts[1].total():,} | |", ""]
    used = set[str]().union(*(tally["used"] for tally in tallies))
    supported = supported_functions()
    unused = ", ".join(f"`{name}`" for name in sorted(supported - used))
    lines += [
        f"{sum(tally['plans'] for tally in tallies):,} plans were compiled and run, each also into poisoned results.",
        f"{len(supported & used)} of {len(supported)} supported functions are called by right programs"
        + (f"; not called: {unused}." if unused else "."),
        "",
        "## Failures of the campaigns",
        "",
        "| seed | verdict | where | what |",
        "|---:|---|---|---|",
    ]
    failures = sorted((failure for tally in tallies for failure in tally["failures"]), key=lambda found: found["seed"])
    lines += [
        f"| {f['seed']} | {f['kind']} | {f['where']} | {f['message'][:110].replace('|', '/')} |" for f in failures
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.tallies", description=__doc__.splitlines()[0])
    parser.add_argument("tallies", nargs="+", type=Path, help="files that campaigns wrote")
    parser.add_argument("--out", type=Path, help="file that gets the report; by default it is printed")
    given = parser.parse_args(arguments)
    text = report([json.loads(path.read_text()) for path in given.tallies])
    if given.out is None:
        print(text, end="")
    else:
        given.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
