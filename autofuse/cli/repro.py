"""`autofuse repro`: a self-contained bundle that rebuilds, checks and times one kernel of a plan."""

from __future__ import annotations

import argparse
from pathlib import Path

from autofuse import __version__
from autofuse.api.plan import load
from autofuse.api.verifying import leaves_of
from autofuse.cli.run import add_input_options, values_of
from autofuse.cli.streams import show
from autofuse.report.reproduction import write_bundle


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file")
    parser.add_argument("kernel", metavar="KERNEL", help="name of one of its kernels (see `autofuse explain`)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    add_input_options(parser)


def run(options: argparse.Namespace) -> int:
    """Write the bundle."""
    plan = load(options.plan, on_mismatch="run")
    arguments = leaves_of(values_of(plan, options))
    files = write_bundle(plan.document, options.kernel, arguments, options.output, plan.target, __version__)
    for file in files:
        show(str(file))
    show(f"run it: python {options.output / 'repro.py'}")
    return 0
