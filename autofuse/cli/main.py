"""`autofuse`: the command line. Errors a user can cause are one line on stderr and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import autofuse
from autofuse.cli.output import BAD_INPUT, BROKEN_PIPE, INTERRUPTED
from autofuse.cli.parser import CommandParser
from autofuse.errors import ArgumentError, AutofuseError
from autofuse.report.quantities import nearest

COMMANDS = {
    "tune": "search and measure the best way to fuse a function, and save it as a plan",
    "run": "load a plan and call it",
    "explain": "say what a plan does and why; --why-not A B asks for a fusion that it lacks",
    "compare": "tune and time several policies side by side, with NumPy as the reference",
    "repro": "write a self-contained bundle that rebuilds, checks and times one kernel",
    "db": "look into, export and merge files of measurements; make Optuna studies of them",
    "calibrate": "measure this machine's throughputs for the cost model",
    "doctor": "report toolchain, machine, caches and noise",
}
"""Subcommands and what they are for; each is the module of `autofuse.cli` of that name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (by default that of the process) and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except AutofuseError as error:
        print(f"autofuse: {one_line(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("autofuse: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone: let the exit be quiet
        return BROKEN_PIPE
    return code


def one_line(message: str) -> str:
    """An error message on one line."""
    return " | ".join(line.strip() for line in message.splitlines() if line.strip())


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help"):
        print(usage())
        return 0
    if first in ("-V", "--version"):
        print(f"autofuse {autofuse.__version__}")
        return 0
    if first not in COMMANDS:
        given = f"{first!r} is no subcommand{nearest(first, [*COMMANDS, '--help', '--version'])}" if first else ""
        raise ArgumentError(f"{given or 'give a subcommand: ' + ', '.join(COMMANDS)} (see `autofuse --help`)")
    command = import_module(f"autofuse.cli.{first}")
    parser = CommandParser(prog=f"autofuse {first}", description=COMMANDS[first])
    command.configure(parser)
    code: int = command.run(parser.parse_args(arguments[1:]))
    return code


def usage() -> str:
    """The top-level help."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        (
            "usage: autofuse COMMAND ...",
            "",
            "Search, measure and save the best way to fuse a tensor program into kernels.",
            "",
            *lines,
            "",
            "autofuse COMMAND --help says more; autofuse --version prints the version.",
        )
    )
