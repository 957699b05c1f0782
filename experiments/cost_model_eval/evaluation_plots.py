"""The picture of the study, from its records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
_SPLITS = {
    "grouped": ("programs", "o"),
    "family": ("families", "s"),
    "record": ("records", "^"),
    "machine": ("machines", "D"),
}
_SHOWN = ("analytical", "learned")
"""Models that are compared program by program."""
_GROUPS = ("price", "memory", "operations", "shape")


def picture(records: Sequence[Record], path: Path) -> None:
    """Errors, intervals, learning curves, groups of features, and choices."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    run = next(record for record in records if record["kind"] == "run")
    cells = [record for record in records if record["kind"] != "run" and record["figures"]]
    held = [r for r in cells if r["kind"] == "held out"]
    whole = [r for r in held if r["share"] == 1.0 and not r["without"]]
    floor = next((r["figures"]["mape"] for r in cells if r["kind"] == "measured again"), None)
    figure, axes = pyplot.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    _errors(axes[0, 0], whole, run["models"], floor)
    _groups(axes[0, 1], held, run["models"])
    _curves(axes[0, 2], held, run, floor)
    _coverage(axes[1, 0], sorted(whole, key=lambda r: run["models"].index(r["model"])))
    _regret(axes[1, 1], cells, run["models"])
    _measured(axes[1, 2], cells)
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def _errors(axis: Any, whole: Sequence[Record], models: Sequence[str], floor: float | None) -> None:
    """MAPE of each model, by what was held out."""
    for split, (label, marker) in _SPLITS.items():
        found = [
            (_mean(r["figures"]["mape"] for r in whole if (r["split"], r["model"]) == (split, model)), place)
            for place, model in enumerate(models)
        ]
        known = [(value, place) for value, place in found if value is not None]
        if known:
            axis.plot(*zip(*known, strict=True), marker, label=label, alpha=0.8)
    if floor is not None:
        axis.axvline(floor, color="black", linestyle=":", label="a second pass")
    axis.set_yticks(range(len(models)), models)
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_xlabel("mean absolute error of prices")
    axis.legend(title="held out", fontsize="small")


def _groups(axis: Any, held: Sequence[Record], models: Sequence[str]) -> None:
    """MAPE without each group of features, programs held out."""
    mine = [r for r in held if r["split"] == "grouped" and r["share"] == 1.0]
    shown = [model for model in models if any(r["model"] == model and r["without"] for r in mine)]
    for number, model in enumerate(shown):
        for place, group in enumerate(("", *_GROUPS)):
            values = [r["figures"]["mape"] for r in mine if (r["model"], r["without"]) == (model, group)]
            at = place + 0.15 * (number - (len(shown) - 1) / 2)
            label = model if place == 0 else None
            axis.plot([at] * len(values), values, "o", alpha=0.6, color=f"C{number}", label=label)
    axis.set_xticks(range(1 + len(_GROUPS)), ["none", *_GROUPS], fontsize="small")
    axis.set_xlim(-0.5, len(_GROUPS) + 0.5)
    axis.set_ylabel("mean absolute error of prices")
    axis.set_xlabel("group of features left out, programs held out; a point per seed")
    if shown:
        axis.legend(fontsize="small")


def _curves(axis: Any, held: Sequence[Record], run: Record, floor: float | None) -> None:
    """MAPE by the number of programs that are learned from."""
    mine = [r for r in held if r["split"] == "grouped" and not r["without"]]
    for model in dict.fromkeys(r["model"] for r in mine if r["share"] < 1.0):
        points: dict[float, list[float]] = {}
        for r in mine:
            if r["model"] == model:
                points.setdefault(r["share"] * run["programs"] * (1 - 1 / run["folds"]), []).append(
                    r["figures"]["mape"]
                )
        counts = sorted(points)
        axis.plot(counts, [sum(points[n]) / len(points[n]) for n in counts], "o-", label=model)
        axis.fill_between(counts, [min(points[n]) for n in counts], [max(points[n]) for n in counts], alpha=0.2)
    base = _mean(r["figures"]["mape"] for r in mine if r["model"] == "analytical")
    if base is not None:
        axis.axhline(base, color="grey", linestyle="--", label="analytical")
    if floor is not None:
        axis.axhline(floor, color="black", linestyle=":", label="a second pass")
    axis.set_xscale("log")
    ticks = sorted({round(r["share"] * run["programs"] * (1 - 1 / run["folds"])) for r in mine})
    axis.set_xticks(ticks, [str(count) for count in ticks])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set_xlabel("programs learned from")
    axis.set_ylabel("mean absolute error of prices")
    axis.legend(fontsize="small")


def _coverage(axis: Any, whole: Sequence[Record]) -> None:
    """How many programs have so many of their kernels within intervals."""
    for record in whole:
        if record.get("coverage"):
            shares = record["coverage"]
            axis.step(shares, [(n + 1) / len(shares) for n in range(len(shares))], where="post", label=record["model"])
    axis.axvline(0.9, color="black", linestyle=":")
    axis.set_xlim(0.3, 1)
    axis.set_ylim(0, 0.6)
    axis.set_xlabel("share of a program's kernels within intervals of 90 %")
    axis.set_ylabel("share of programs with no more")
    axis.legend(fontsize="small")


def _regret(axis: Any, cells: Sequence[Record], models: Sequence[str]) -> None:
    """Regret of each program's partition, and their mean."""
    for place, model in enumerate(models):
        programs: dict[str, list[float]] = {}
        for r in cells:
            if r["kind"] == "choice" and r["model"] == model:
                programs.setdefault(r["program"], []).append(100 * r["figures"]["regret"])
        values = [sum(of) / len(of) for of in programs.values()]
        axis.plot(values, [place] * len(values), "o", alpha=0.35, color="tab:blue")
        if values:
            axis.plot(sum(values) / len(values), place, "|", markersize=18, markeredgewidth=2, color="black")
    axis.set_yticks(range(len(models)), models)
    axis.invert_yaxis()
    axis.set_xlabel("regret of partitions in whole spaces, %; bar: mean")


def _measured(axis: Any, cells: Sequence[Record]) -> None:
    """How many of a program's classes the loop measures."""
    classes = {r["program"]: r["figures"]["classes"] for r in cells if r["kind"] == "space"}
    for model in _SHOWN:
        mine = [r for r in cells if r["kind"] == "choice" and r["model"] == model and r["program"] in classes]
        if mine:
            axis.plot(
                [classes[r["program"]] for r in mine],
                [100 * r["figures"]["measured"] for r in mine],
                "o",
                alpha=0.6,
                label=model,
            )
    axis.set_xscale("log")
    axis.set_ylim(0, 105)
    axis.set_xticks((1, 3, 10, 30, 100), ["1", "3", "10", "30", "100"])
    axis.minorticks_off()
    axis.set_xlabel("classes of a whole space")
    axis.set_ylabel("measured by the loop, %")
    axis.legend(fontsize="small")


def _mean(values: Any) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
