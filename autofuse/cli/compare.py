"""`autofuse compare`: the same function under several policies, timed side by side with NumPy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.api.amounts import DEADLINE_S
from autofuse.api.compiling import compile as compile_plan
from autofuse.api.plan import Plan
from autofuse.api.tunedplans import was_interrupted
from autofuse.api.tuning import tune
from autofuse.api.verifying import faults_of
from autofuse.cli.arguments import Target, add_numerics_option, add_plugin_options, add_target_options, target_of
from autofuse.cli.output import WRONG_ANSWER, print_json
from autofuse.cli.parser import count, positive
from autofuse.cli.run import with_random
from autofuse.cli.streams import say, show
from autofuse.errors import ArgumentError, AutofuseError
from autofuse.ir import tree
from autofuse.ir.parameters import in_order
from autofuse.report.comparison import Contender, compare, render
from autofuse.report.quantities import nearest
from autofuse.search.plugins.registry import ANALYTICAL, policy_names
from autofuse.targets.base import find_target
from autofuse.targets.registry import DEFAULT, offered


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_target_options(parser)
    parser.add_argument(
        "--policies", default="unfused,analytical,measured", help="separated by commas (default %(default)s)"
    )
    parser.add_argument("--budget", type=positive, default=20.0, help="seconds of tuning for each policy (default 20)")
    parser.add_argument("--untuned", default="", help="policies to compile without tuning, separated by commas")
    parser.add_argument(
        "--deadline",
        type=positive,
        default=DEADLINE_S,
        help="seconds for choosing the fusions of those that are not tuned (default %(default)g)",
    )
    parser.add_argument("--blocks", type=count, default=15, help="timed blocks (default 15)")
    parser.add_argument("--rules", type=Path, help="TOML file of fusions to force, forbid and pin")
    add_plugin_options(parser)
    add_numerics_option(parser)
    parser.add_argument("--backend", default=DEFAULT, help=f"{' or '.join(offered())} (default {DEFAULT})")
    parser.add_argument("--device", help="with --backend cuda: the GPU, by default this machine's")
    parser.add_argument("--threads", type=count, help="threads the plans use (default one per core)")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="save the plans as FOLDER/FUNC-POLICY.json")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Compare. A plan that cannot be made or answers wrongly is reported and not timed; the exit code is then 1."""
    policies = _names(options.policies, policy_names())
    if not policies:
        raise ArgumentError(
            f"--policies {options.policies!r:.80}: names none; give some of {', '.join(policy_names())}"
        )
    untuned = _names(options.untuned, policy_names())
    idle = [name for name in untuned if name not in policies]
    if idle:
        raise ArgumentError(f"--untuned {idle[0]}: must be among --policies {','.join(policies)}")
    place = find_target(options.backend, options.threads, options.device)
    place.clock()  # a device that is not here has none
    target = target_of(options)
    if options.save is not None:
        _make_folder(options.save)
    arguments, keywords = with_random((target.arguments, target.keywords), np.random.default_rng(options.seed))
    contenders = [Contender("numpy", _bound(target.function, arguments, keywords))]
    faults: dict[str, list[str]] = {}
    for policy in policies:
        try:
            plan = _plan(target, arguments, keywords, policy, policy in untuned, options)
        except AutofuseError as error:
            faults[policy] = [str(error)]
            continue
        values = tuple(in_order(plan.document.parameters, arguments, keywords, target.name))
        wrong = faults_of(plan, values)
        if wrong:
            faults[policy] = [f"WRONG: {'; '.join(wrong)}"]
            continue
        if options.save is not None:
            plan.save(options.save / f"{target.name}-{policy.replace(':', '-')}.json")
        predicted = [kernel.predicted_us for kernel in plan.kernels if kernel.predicted_us is not None]
        total = sum(predicted) if len(predicted) == len(plan.kernels) else None
        contenders.append(
            Contender(policy, _bound(_in_order(plan) if keywords else plan, values, {}), len(plan.kernels), total)
        )
    found = compare(contenders, options.blocks, seed=options.seed, by=place)
    if options.json:
        print_json({"name": target.name, **found.to_json(), "faults": faults})
    else:
        show(f"{target.name}, {'tuned' if not untuned else 'partly tuned'} with {options.budget:g} s each")
        show(render(found), end="")
        for policy, wrong in faults.items():
            show(f"{policy}: {'; '.join(wrong)}")
    return WRONG_ANSWER if faults else 0


def _plan(
    target: Target,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    policy: str,
    untuned: bool,
    options: argparse.Namespace,
) -> Plan:
    if sys.stderr.isatty() and not options.json:
        say(f"{policy} ...")
    own: dict[str, Any] = {
        "kwargs": keywords,
        "backend": options.backend,
        "device": options.device,
        "threads": options.threads,
        "rules": options.rules or (),
        "model": options.model or ANALYTICAL,
        "legality": options.legality,
        "numerics": options.numerics,
    }
    if untuned:
        return compile_plan(target.function, *arguments, policy=policy, deadline=options.deadline, **own)
    plan = tune(
        target.function,
        *arguments,
        policy=policy,
        budget=options.budget,
        seed=options.seed,
        progress=not options.json,
        **own,
    )
    if was_interrupted(plan):  # half tuned, it is nothing to compare with
        raise KeyboardInterrupt
    return plan


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ArgumentError(f"--save {folder}: {failure.strerror or failure}") from failure


def _bound(call: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Callable[[], Any]:
    """A call with its own copies of the arrays: functions that write into them do not meet each other."""
    leaves, structure = tree.flatten((arguments, keywords), lambda leaf: isinstance(leaf, np.ndarray | np.generic))
    own, named = tree.unflatten(structure, [leaf.copy() for leaf in leaves])
    return lambda: call(*own, **named)


def _in_order(plan: Plan) -> Callable[..., Any]:
    """A call of a plan that finds no argument by its name, which would be part of the plan's time."""
    return lambda *values: plan.in_order(values)


def _names(text: str, known: Any) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known and (name.startswith("rule:") or ":" not in name):
            raise ArgumentError(f"{name!r:.80} is no policy here{nearest(name, known)}")
    return names
