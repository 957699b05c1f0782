"""`autofuse calibrate`: measure this machine's throughputs, which the cost model then uses."""

from __future__ import annotations

import argparse
import sys

from autofuse.cli.output import print_json
from autofuse.cli.parser import count, positive
from autofuse.cli.streams import say, show
from autofuse.report.progress import progress_report
from autofuse.targets.base import find_backend
from autofuse.targets.registry import DEFAULT, offered


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--backend", choices=offered(), default=DEFAULT, help=f"what to calibrate (default {DEFAULT})")
    parser.add_argument("--seconds", type=positive, default=6.0, help="about how long to measure (default 6)")
    parser.add_argument("--threads", type=count, help="threads that plans will use (default one per core)")
    parser.add_argument("--force", action="store_true", help="keep the numbers of a busy machine too")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Calibrate and keep the numbers in the user's cache folder."""
    said: list[str] = []
    with progress_report(sys.stderr.isatty() and not options.json) as report:

        def progress(share: float, what: str) -> None:
            said.append(what)
            report("calibrating", share, 1.0)

        backend = find_backend(options.backend)
        found = backend.calibrate(options.seconds, progress, options.threads, force=options.force)
    warning = said[-1].removeprefix("done").lstrip("; ") if said else ""
    if warning:
        say(f"autofuse: {warning}")
    if options.json:
        print_json({"file": found.file, **found.facts})
    else:
        show(found.text, end="")
        show(f"kept in {found.file}; plans are priced with these numbers from now on")
    return 0
