"""`autofuse explain`: what a plan does and why; `--why-not [A B]`: why things are not one kernel."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from autofuse.api.plan import Plan, load
from autofuse.cli.output import print_json
from autofuse.cli.streams import show
from autofuse.errors import ArgumentError
from autofuse.lazydataclass import asdict
from autofuse.report.explanation import build_report, kernel_named, render, render_kernel


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file; it may be another machine's")
    parser.add_argument("--kernel", metavar="NAME", help="only this kernel")
    parser.add_argument(
        "--why-not",
        nargs="*",
        metavar=("A", "B"),
        help="why these two (nodes, values or kernels) are not in one kernel; without names: all kernels of which one "
        "reads what the other writes",
    )
    parser.add_argument("--model", help="with --why-not: the cost model to ask, module:Class or an entry point")
    parser.add_argument("--legality", help="with --why-not: a legality of your own, module:function or an entry point")
    parser.add_argument("--rules", type=Path, help="with --why-not: TOML file of the rules to ask under")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Explain."""
    given = [f"--{name}" for name in ("model", "legality", "rules") if getattr(options, name) is not None]
    if given and options.why_not is None:
        raise ArgumentError(f"{given[0]}: is for --why-not; a plan's kernels and times are what they are")
    plan = load(options.plan, on_mismatch="run")
    data, text = _report(plan, options) if options.why_not is None else _answer(plan, options)
    if options.json:
        print_json(data)
    else:
        show(text, end="")
    return 0


def _report(plan: Plan, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    report = build_report(plan.document, plan.lowered, plan.remarks)
    if options.kernel is None:
        return report.to_json(), render(report)
    kernel = kernel_named(report, options.kernel)
    return asdict(kernel), render_kernel(kernel)


def _answer(plan: Plan, options: argparse.Namespace) -> tuple[Any, str]:
    from autofuse.api.apart import why_apart
    from autofuse.search.plugins.registry import ANALYTICAL

    if len(options.why_not) not in (0, 2):
        raise ArgumentError(f"--why-not: takes two names, or none; got {', '.join(options.why_not)}")
    model = options.model or ANALYTICAL
    return why_apart(plan.document, plan.target, options.why_not, options.rules or (), model, options.legality)
