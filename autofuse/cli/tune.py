"""`autofuse tune`: search and measure, save a plan, print a summary."""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path

from autofuse.api.plan import Plan
from autofuse.api.tunedplans import was_interrupted
from autofuse.api.tuning import tune
from autofuse.cli.arguments import Target, add_numerics_option, add_plugin_options, add_target_options, target_of
from autofuse.cli.interrupts import termination_interrupts
from autofuse.cli.output import INTERRUPTED, TERMINATED, print_json
from autofuse.cli.parser import count, nbytes, positive
from autofuse.cli.streams import say, show
from autofuse.errors import ArgumentError, AutofuseError, PlanError
from autofuse.plan.atomic import require_replaceable
from autofuse.report.summary import render, summarise
from autofuse.search.plugins.registry import ANALYTICAL, HERE, MEASURED
from autofuse.targets.registry import DEFAULT, offered


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_target_options(parser)
    parser.add_argument("--backend", default=DEFAULT, help=f"{' or '.join(offered())} (default {DEFAULT})")
    parser.add_argument("--budget", type=positive, help="seconds (default 60, without --max-trials)")
    parser.add_argument("-o", "--output", type=Path, help="plan file to write (default FUNC.plan.json)")
    parser.add_argument(
        "--policy",
        default="measured",
        help=f"{MEASURED} (default), or a policy whose fusions are kept: {', '.join(HERE)}, or module:Class",
    )
    parser.add_argument("--max-trials", type=count, help="most kernel measurements; no limit on time then")
    parser.add_argument("--db", type=Path, help="file that keeps every measurement: a later run resumes from it")
    parser.add_argument("--inputs", type=Path, help=".npz with the arguments' values, where values matter")
    parser.add_argument("--rules", type=Path, help="TOML file of fusions to force, forbid and pin")
    add_plugin_options(parser)
    parser.add_argument(
        "--variants",
        default="default",
        help="how the program is cleaned up: default, auto (searched), or choices such as columns=joined,tables=large",
    )
    add_numerics_option(parser)
    parser.add_argument("--max-memory", type=nbytes, help="most memory of a call, arguments included: 512M, 2GiB")
    parser.add_argument("--device", help="with --backend cuda: the GPU, by default this machine's")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="measure on the workers of a Dask cluster: tcp://host:8786"
    )
    where.add_argument("--workers", type=count, help="measure on so many devices of this machine at a time")
    parser.add_argument("--threads", type=count, help="threads the plan uses (default one per core)")
    parser.add_argument(
        "--on-unsupported",
        choices=("numpy", "eager", "error"),
        default="numpy",
        help="calls no kernel computes (default numpy)",
    )
    parser.add_argument("--check-bounds", action="store_true", help="calls raise where an index is out of bounds")
    parser.add_argument(
        "--no-roll", dest="roll", action="store_false", help="trace every iteration of Python loops by itself"
    )
    parser.add_argument(
        "--cold", action="store_true", help="time kernels and plans on operands in memory, in place of caches"
    )
    parser.add_argument("--no-progress", action="store_true", help="no progress bar on a terminal either")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(options: argparse.Namespace) -> int:
    """Tune. A plan that was interrupted is saved all the same; the exit code is then 130, after SIGTERM 143."""
    with termination_interrupts() as termination:
        try:
            code = _run(options)
        except KeyboardInterrupt:
            if not termination.came:
                raise
            say("autofuse: terminated; nothing was measured yet that could be saved")
            return TERMINATED
    return TERMINATED if termination.came and code == INTERRUPTED else code


def _run(options: argparse.Namespace) -> int:
    target = target_of(options)
    output = options.output or Path(f"{target.name}.plan.json")
    _require_place(output)
    try:
        plan = _tuned(options, target)
    except AutofuseError as failure:
        if not isinstance(failure.best, Plan):
            raise
        kept = f"the best plan so far is saved in {output}"
        try:
            _save(failure.best, output)
        except PlanError as also:
            kept = str(also)
        raise type(failure)(f"{failure}; {kept}") from None
    _save(plan, output)
    summary = {**summarise(plan.document), "plan": str(output)}
    if options.json:
        print_json(summary)
    else:
        show(render(plan.document), end="")
        show(f"saved {output}")
    return _interrupted(options) if was_interrupted(plan) else 0


def _tuned(options: argparse.Namespace, target: Target) -> Plan:
    return tune(
        target.function,
        *target.arguments,
        kwargs=target.keywords,
        backend=options.backend,
        budget=options.budget,
        policy=options.policy,
        seed=options.seed,
        progress=not options.no_progress,
        max_trials=options.max_trials,
        db=options.db,
        inputs=options.inputs,
        threads=options.threads,
        device=options.device,
        rules=options.rules or (),
        model=options.model or ANALYTICAL,
        legality=options.legality,
        variants=options.variants,
        max_memory=options.max_memory,
        numerics=options.numerics,
        on_unsupported=options.on_unsupported,
        check_bounds=options.check_bounds,
        roll=options.roll,
        cold=options.cold,
        cluster=options.workers if options.scheduler is None else options.scheduler,
    )


def _require_place(output: Path) -> None:
    """Raise ArgumentError, before any time is spent, for a place where no plan can be written."""
    if output.is_dir() or not output.absolute().parent.is_dir():
        problem = "is a folder" if output.is_dir() else f"there is no folder {output.parent}"
        raise ArgumentError(f"--output {output}: {problem}; name a file in a folder that there is")
    try:
        require_replaceable(output)
        with tempfile.TemporaryFile(dir=output.absolute().parent):
            pass
    except OSError as failure:
        raise ArgumentError(f"--output {output}: no file can be written there: {failure.strerror or failure}") from None


def _save(plan: Plan, output: Path) -> None:
    """Save the plan; where that fails after all, among temporary files, so that tuning was not for nothing."""
    try:
        plan.save(output)
    except PlanError as failure:
        try:
            kept = plan.save(Path(tempfile.mkdtemp(prefix="autofuse-plan-"), output.name))
        except (OSError, PlanError):
            raise failure from None
        raise PlanError(f"{failure}; the plan is in {kept}") from None


def _interrupted(options: argparse.Namespace) -> int:
    if options.db is not None:
        say("autofuse: interrupted; the same command resumes from where it stopped")
    else:
        command = shlex.join(["autofuse", "tune", options.target, "...", "--db", "tune.db"])
        say(f"autofuse: interrupted; to be able to resume, keep measurements: {command}")
    return INTERRUPTED
