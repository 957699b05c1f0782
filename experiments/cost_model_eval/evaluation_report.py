"""The report of the study, from its records alone: tables in Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
_HELD = {"mape": "MAPE", "sigma": "sigma", "pairs": "pairs right"}
_INTERVALS = {"covered": "in 90 % interval", "well_covered": "programs covered", "least_covered": "nine in ten reach"}
_MORE = {"below_floor": "below floor", "top1": "top-1", "top3": "top-3"}
_CHOICES = {
    "regret": "regret",
    "loop_regret": "regret of the loop",
    "measured": "measured",
    "after_ten": "MAPE after 10",
}
_SPLITS = {
    "grouped": "Programs held out, whatever their sizes",
    "family": "Families of programs held out",
    "record": "Single records held out: a warning, as kernels of one program leak into one another",
    "machine": "Machines held out",
}
_SHORT = {"grouped": "programs", "family": "families", "record": "records", "machine": "machines"}
_PERCENT = ("regret", "loop_regret", "measured", "covered", "well_covered", "least_covered")
_INTRODUCTION = (
    "MAPE: mean of |predicted / measured - 1|. Sigma: standard deviation of log(measured / predicted). Pairs: of one "
    "program, more than 5 % apart, ordered right. Intervals: the share of kernels that are in theirs of 90 %; of "
    "programs of ten kernels or more, the share of which 70 % of the kernels are, and the share of their kernels that "
    "nine in ten of them reach. Top-1, top-3: the best schedule's time over that of the best of those predicted best. "
    "Figures are means of the seeds; behind ±, their standard deviation."
)
_CHOOSING = (
    "All kernels of these programs were measured. Regret: by how much the partition that is the cheapest at a model's "
    "prices is dearer, at the last pass, than the one that is the cheapest by the first pass. The loop is the tuner's, "
    "without a limit on measurements: the regret of what it ends with, and the share of the classes that it measured. "
    "MAPE after 10: of the other kernels, when ten random ones are measured. Noise: by how much the first pass's best "
    "partition is dearer, at the last pass, than the last pass's best."
)


def report(records: Sequence[Record]) -> str:
    """All tables."""
    run = next(record for record in records if record["kind"] == "run")
    cells = sorted((r for r in records if r["kind"] != "run" and r["figures"]), key=lambda r: _order(run, r))
    held = [r for r in cells if r["kind"] == "held out"]
    whole = [r for r in held if r["share"] == 1.0 and not r["without"]]
    again = [{**r, "model": "first pass"} for r in cells if r["kind"] == "measured again"]
    lines = [
        "# Cost models compared",
        "",
        f"{run['samples']} kernels under schedules, of at least 1 us, of {run['programs']} programs. Base model: "
        f"{run['base']} {run['base_version']}; features {run['feature_version']}. Data set {run['dataset'][:12]}; "
        f"{run['folds']} folds, {run['seeds']} seeds; made by `{run['command']}` at {run['commit']}.",
        "",
        f"Two passes over the same kernel are {_percent(run['noise'])} apart (median).",
        "",
        _INTRODUCTION,
        "",
    ]
    lines += _table(
        "What the first pass tells of the last one: no model does better", again, _HELD | _INTERVALS | _MORE
    )
    for split, title in _SPLITS.items():
        lines += _table(title, [r for r in whole if r["split"] == split], _HELD | _INTERVALS | _MORE)
    if all(r["split"] != "machine" for r in held):
        lines += [
            "## Machines held out",
            "",
            "The data set is of one machine: what a model of another one says is not known.",
            "",
        ]
    lines += _groups([r for r in held if r["share"] == 1.0])
    lines += _curves([r for r in held if r["split"] == "grouped" and not r["without"]])
    return "\n".join([*lines, *_choices(run, cells)])


def _order(run: Record, record: Record) -> tuple[Any, ...]:
    """Models as the study names them; the order in which cells were computed does not count."""
    place = run["models"].index(record["model"]) if "model" in record else -1
    return place, json.dumps({key: value for key, value in record.items() if key != "figures"}, sort_keys=True)


def _groups(held: Sequence[Record]) -> list[str]:
    """What is lost without a group of features."""
    models = {r["model"] for r in held if r["without"]}
    chosen = sorted((r for r in held if r["model"] in models), key=lambda r: (r["model"], r["without"]))
    rows = [{**r, "model": f"{r['model']}: {_but(r['without'])}"} for r in chosen]
    lines: list[str] = []
    if models:
        splits = [split for split in _SPLITS if any(r["split"] == split for r in rows)]
        columns = [(split, name) for split in splits for name in ("mape", "sigma")]
        head = [f"{_SHORT[split]}: {_HELD[name]}" for split, name in columns]
        of = {(r["model"], r["split"]): [] for r in rows}
        for r in rows:
            of[r["model"], r["split"]].append(r["figures"])
        lines = ["## Without a group of features", "", f"| model | {' | '.join(head)} |", _rule(len(head))]
        for model in dict.fromkeys(r["model"] for r in rows):
            shown = [_cell(name, [f[name] for f in of.get((model, split), [])]) for split, name in columns]
            lines.append(f"| {model} | {' | '.join(shown)} |")
        lines.append("")
    return lines


def _but(without: str) -> str:
    return f"without {without}" if without else "all features"


def _curves(held: Sequence[Record]) -> list[str]:
    """Figures by the share of the programs that are learned from."""
    models = {r["model"] for r in held if r["share"] < 1.0}
    chosen = sorted((r for r in held if r["model"] in models), key=lambda r: (r["model"], r["share"]))
    rows = [{**r, "model": f"{r['model']}: {100 * r['share']:.0f} % of the programs"} for r in chosen]
    return _table("Learning curves", rows, _HELD | _INTERVALS)


def _choices(run: Record, cells: Sequence[Record]) -> list[str]:
    """What models choose, on average, at worst, and by program."""
    choices = [r for r in cells if r["kind"] == "choice"]
    spaces = {r["program"]: r["figures"] for r in cells if r["kind"] == "space"}
    if not choices or not spaces:
        return []
    lines = _table(f"Choices in {len(spaces)} whole spaces, mean", choices, _CHOICES, note=_CHOOSING)
    worst = {name: _CHOICES[name] for name in ("regret", "loop_regret")}
    lines += _table("The worst of them", choices, worst, max)
    models = [model for model in run["models"] if any(r["model"] == model for r in choices)]
    shown = ["classes", "noise", *models, "measured by the loop"]
    lines += ["## Regret by program", "", f"| program | {' | '.join(shown)} |", _rule(len(shown))]
    for program, space in spaces.items():
        mine = [r for r in choices if r["program"] == program]
        values = [_cell("regret", [r["figures"]["regret"] for r in mine if r["model"] == model]) for model in models]
        measured = [r["figures"]["measured"] for r in mine if r["model"] == models[0]]
        columns = [str(space["classes"]), _percent(space["regret"]), *values, _cell("measured", measured)]
        lines.append(f"| {program} | {' | '.join(columns)} |")
    return [*lines, ""]


def _table(
    title: str,
    records: Sequence[Record],
    columns: Mapping[str, str],
    of: Callable[[Iterable[float]], float] | None = None,
    note: str = "",
) -> list[str]:
    """One row per model, the mean of its records, or another figure of them."""
    if not records:
        return []
    lines = [f"## {title}", "", *([note, ""] if note else [])]
    lines += [f"| model | {' | '.join(columns.values())} |", _rule(len(columns))]
    for model in dict.fromkeys(record["model"] for record in records):
        mine = [record for record in records if record["model"] == model]
        shown = [_figure(mine, name, of) for name in columns]
        lines.append(f"| {model} | {' | '.join(shown)} |")
    return [*lines, ""]


def _figure(records: Sequence[Record], name: str, of: Callable[[Iterable[float]], float] | None) -> str:
    """A figure of a model: of each seed first, then of all."""
    if of is not None:
        known = [r["figures"][name] for r in records if not math.isnan(r["figures"][name])]
        return _shown(name, of(known)) if known else ""
    seeds: dict[int, list[float]] = {}
    for record in records:
        if not math.isnan(record["figures"][name]):
            seeds.setdefault(record.get("seed", 0), []).append(float(record["figures"][name]))
    return _cell(name, [sum(values) / len(values) for values in seeds.values()])


def _cell(name: str, values: Sequence[float]) -> str:
    """The mean of the seeds, and how far they are apart where that shows."""
    if not values:
        return ""
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))
    shown, apart = _shown(name, mean), _shown(name, deviation)
    return shown if not float(apart.removesuffix(" %")) else f"{shown} ± {apart}"


def _rule(columns: int) -> str:
    return "|---|" + "---:|" * columns


def _shown(name: str, value: float) -> str:
    if name == "below_floor":
        return f"{value:.0f}"
    return _percent(value) if name in _PERCENT else f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %".replace("-0.0 %", "0.0 %")
