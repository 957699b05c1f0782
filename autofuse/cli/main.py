"""`autofuse`: the command line. Errors a user can cause are one line on stderr and exit code 2."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from types import ModuleType

import autofuse
from autofuse.cli.interrupts import interrupts_wait
from autofuse.cli.output import BAD_INPUT, BROKEN_PIPE, INTERRUPTED
from autofuse.cli.parser import CommandParser
from autofuse.cli.streams import data_alone, drop, output_fails, say, standard_streams
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
_PROGRAM = "_autofuse_"
"""How the names of modules begin that programs are loaded as."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (by default that of the process) and return the exit code."""
    with standard_streams():
        try:
            code = _code_of(list(sys.argv[1:] if argv is None else argv))
        except OSError:
            if output_fails() is None:
                raise
            code = 0
        failure = output_fails()
        if failure is None:
            return code
        drop(sys.stdout)
        if isinstance(failure, BrokenPipeError):  # the reader has seen enough
            return BROKEN_PIPE
        say(f"autofuse: cannot write to standard output: {failure.strerror or failure}")
        return code or BAD_INPUT


def _code_of(arguments: list[str]) -> int:
    """The exit code of a command line, after what is wrong with it was said."""
    try:
        return _dispatch(arguments)
    except AutofuseError as error:
        say(f"autofuse: {one_line(str(error))}")
        return BAD_INPUT
    except MemoryError as failure:
        say(f"autofuse: not enough memory: {one_line(str(failure)) or 'the arrays are too large for this machine'}")
        return BAD_INPUT
    except KeyboardInterrupt:
        say("autofuse: interrupted")
        return INTERRUPTED


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
        given = f"{first!r:.80} is no subcommand{nearest(first, [*COMMANDS, '--help', '--version'])}" if first else ""
        raise ArgumentError(f"{given or 'give a subcommand: ' + ', '.join(COMMANDS)} (see `autofuse --help`)")
    with interrupts_wait():
        command = import_module(f"autofuse.cli.{first}")
    parser = CommandParser(prog=f"autofuse {first}", description=COMMANDS[first])
    command.configure(parser)
    try:
        options = parser.parse_args(arguments[1:])
    except SystemExit:  # it has printed help
        return 0
    return _run(command, options)


def _run(command: ModuleType, options: argparse.Namespace) -> int:
    try:
        with data_alone() if getattr(options, "json", False) else nullcontext():
            code: int = command.run(options)
    except SystemExit as left:
        raise ArgumentError(f"the program ended the process: sys.exit({left.code!r:.80}); it must not") from None
    except Exception as failure:
        place = place_in_program(failure)
        if place is None or isinstance(failure, AutofuseError):
            raise
        raise ArgumentError(f"{place}: the program failed: {type(failure).__name__}: {failure}") from failure
    return code


def place_in_program(failure: Exception) -> str | None:
    """Where a user's program raised an exception, as FILE:LINE in FUNC; None if autofuse, or nobody's program, did."""
    frames = list(traceback.walk_tb(failure.__traceback__))
    if isinstance(failure, RecursionError):  # it is raised wherever the depth ends: what repeats is to blame
        often, _ = Counter(frame.f_code for frame, _ in frames).most_common(1)[0]
        frames = [(frame, line) for frame, line in frames if frame.f_code is often]
    for frame, line in reversed(frames):
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] == "autofuse":
            return None
        if name.startswith(_PROGRAM):
            return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
    return None


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
