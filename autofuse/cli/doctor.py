"""`autofuse doctor`: toolchain, machine, caches and noise."""

from __future__ import annotations

import argparse

from autofuse.cli.output import print_json
from autofuse.cli.streams import show
from autofuse.report.installation import diagnose, render


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--devices", action="store_true", help="ask drivers for their devices too (slow)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Diagnose."""
    found = diagnose(ask_driver=options.devices)
    if options.json:
        print_json(found.to_json())
    else:
        show(render(found), end="")
    return 0
