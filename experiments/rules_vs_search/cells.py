"""The cells of the study: who chooses, among which kernels, at whose prices; and which combinations make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.search.plugins.registry import MEASURED

SCHEDULES = ("tuned", "default")
"""Every cell's kernels under tuned and under default schedules."""

REACHABLE, FULL = "rule-reachable", "full"
"""Spaces: the kernels that any of the rules makes and the single operations, or all candidates."""

TUNE = "tune"
"""The measuring search with the kernels of rules in its space, and their best plans in its final race."""

VARIANTS = "tune, graph variants"
"""The same, which also searches among the ways to clean the program up before fusion, within the same budget."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to make a plan."""

    name: str
    space: str
    """`REACHABLE` or `FULL`."""
    choice: str
    """`none`, `rule`, `greedy` or `search`."""
    oracle: str
    """Whose prices the choice goes by: `analytical`, `residual` (these, corrected per bottleneck by some measurements),
    `measured`, or `-`."""
    off: str = ""
    """What the search does without: one of `switches.PARTS`, or `model`."""


SENSELESS = (
    (
        "a rule over the full space",
        "a rule makes the kernels that it makes: choosing among others would be another rule",
    ),
    (
        "a rule with an analytical, residual or measured oracle",
        "rules ask for no prices; `rule:xla-priority` has a cost model of its own, which is part of the rule",
    ),
    (
        "no fusion with another space, oracle or choice",
        "there is one unfused plan",
    ),
    (
        "greedy among rule-reachable kernels, or at other prices",
        "it merges two kernels into the candidate of both, which the kernels of rules seldom have; at other prices it "
        "would be another search, and the question here is what exact search is worth",
    ),
)
"""Combinations that are not run, and why."""

OFF = {
    "recompute": "without recomputation",
    "stitch": "without stitching",
    "multi_output": "without several outputs",
    "horizontal": "without shared launches",
    "model": "without a model",
}
"""What the search can do without, and how that is called."""


def all_cells(rules: Sequence[str], ablations: Sequence[str]) -> list[Cell]:
    """Every cell, in the order of the report."""
    found = [Cell("unfused", FULL, "none", "-")]
    found += [Cell(rule, REACHABLE, "rule", "-") for rule in rules]
    found.append(Cell("greedy", FULL, "greedy", "analytical"))
    oracles = ("analytical", "residual", MEASURED)
    found += [Cell(f"reachable, {oracle}", REACHABLE, "search", oracle) for oracle in oracles]
    found += [Cell(oracle, FULL, "search", oracle) for oracle in oracles]
    found += [Cell(name, FULL, "search", MEASURED) for name in (TUNE, VARIANTS)]
    return found + [Cell(f"{MEASURED} {OFF[name]}", FULL, "search", MEASURED, name) for name in ablations]


def variant(cell: str, schedules: str) -> str:
    """The name of a cell's plan with its schedules."""
    return cell if schedules == "tuned" else f"{cell}, default schedules"
