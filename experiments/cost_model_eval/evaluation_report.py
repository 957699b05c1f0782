"""The report of the study, from its records alone: tables in Markdown, and a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
_HELD = {"mape": "MAPE", "sigma": "sigma", "pairs": "pairs right", "covered": "in 90 % interval"}
_MORE = {"well_covered": "programs covered", "below_floor": "below floor", "top1": "top-1", "top3": "top-3"}
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
}


def report(records: Sequence[Record]) -> str:
    """All tables."""
    run = next(record for record in records if record["kind"] == "run")
    lines = [
        "# Cost models compared",
        "",
        f"{run['samples']} kernels under schedules, of at least 1 us, of {run['programs']} programs. Base model: "
        f"{run['base']} {run['base_version']}; features {run['feature_version']}. Data set {run['dataset'][:12]}; made "
        f"by `{run['command']}` at {run['commit']}.",
        "",
        f"Two passes over the same kernel are {_percent(run['noise'])} apart (median).",
        "",
        "MAPE: mean of |predicted / measured - 1|. Sigma: standard deviation of log(measured / predicted). Pairs: of "
        "one program, more than 5 % apart, ordered right. Programs covered: of ten kernels or more, those of which "
        "70 % lie in their intervals of 90 %. Top-1, top-3: the best schedule's time over that of the best of those "
        "predicted best.",
        "",
    ]
    held = [record for record in records if record["kind"] == "held out"]
    again = [{**r, "model": "first pass"} for r in records if r["kind"] == "measured again" and r["figures"]]
    lines += _table("What the first pass tells of the last one: no model does better", again, {**_HELD, **_MORE})
    for split, title in _SPLITS.items():
        rows = [r for r in held if r["split"] == split and r["share"] == 1.0 and "without" not in r["model"]]
        lines += _table(title, rows, {**_HELD, **_MORE})
    lines += _table("Without a group of features", [r for r in held if "without" in r["model"]], _HELD)
    curve = [{**r, "model": f"{r['share']:.0%} of the programs"} for r in held if r["model"] == "learned"]
    lines += _table("Learning curve", [r for r in curve if r["split"] == "grouped" and r["seed"] == 0], _HELD)
    choices = [record for record in records if record["kind"] == "choice" and record["figures"]]
    programs = len({record["program"] for record in choices})
    lines += _table(f"Choices in {programs} whole spaces, mean", choices, _CHOICES)
    lines += _table("The worst of them", choices, {name: _CHOICES[name] for name in ("regret", "loop_regret")}, max)
    return "\n".join(lines)


def _table(
    title: str, records: Sequence[Record], columns: Mapping[str, str], of: Callable[[list[float]], float] | None = None
) -> list[str]:
    """One row per model, the mean of its records, or another figure of them."""
    if not records:
        return []
    of = of or (lambda values: sum(values) / len(values))
    lines = [f"## {title}", "", f"| model | {' | '.join(columns.values())} |", "|---|" + "---:|" * len(columns)]
    for model in dict.fromkeys(record["model"] for record in records):
        cells: list[str] = []
        for name in columns:
            values = [float(r["figures"][name]) for r in records if r["model"] == model]
            known = [value for value in values if not math.isnan(value)]
            cells.append("" if not known else _shown(name, of(known)))
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return [*lines, ""]


def _shown(name: str, value: float) -> str:
    if name == "below_floor":
        return f"{value:.0f}"
    if name in ("regret", "loop_regret", "measured", "covered", "well_covered"):
        return _percent(value)
    return f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def picture(records: Sequence[Record], path: Path) -> None:
    """Error of prices beside regret of choices, by model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    held = [r for r in records if r["kind"] == "held out" and r["split"] == "grouped" and r["share"] == 1.0]
    choices = [r for r in records if r["kind"] == "choice" and r["figures"]]
    models = [m for m in dict.fromkeys(r["model"] for r in held) if "without" not in m]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for axis, found, name, title in (
        (axes[0], held, "mape", "mean absolute error of prices"),
        (axes[1], choices, "regret", "regret of partitions"),
    ):
        for place, model in enumerate(models):
            values = [float(r["figures"][name]) for r in found if r["model"] == model]
            axis.plot(values, [place] * len(values), "o", alpha=0.35, color="tab:blue")
            if values:
                axis.plot(sum(values) / len(values), place, "|", markersize=16, color="black")
        axis.set_title(title)
        axis.set_yticks(range(len(models)), models)
    axes[0].invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(figure)
