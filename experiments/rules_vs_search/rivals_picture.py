"""The picture of the study: each rule's time, and greedy search's, over the measured plan's, by program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from rivals_figures import Row, best_rules
from rivals_settings import Study

mpl.use("Agg")
from matplotlib import pyplot as plt

MARKERS = "os^DvP*X"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc3377", "#cc9900", "#56b4e9", "#999999", "#000000")
TICKS = (0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)


def draw(rows: Sequence[Row], study: Study, path: Path) -> bool:
    """Write the picture; False where there is nothing to draw."""
    ordered = sorted(best_rules(rows, study), key=lambda pair: pair[1].over.value)
    if not ordered:
        return False
    figure, axes = plt.subplots(figsize=(10, 2.2 + 0.27 * len(ordered)), layout="constrained")
    for place, (row, best) in enumerate(ordered):
        axes.plot([best.over.low, best.over.high], [place, place], color="#333333", linewidth=1.2, zorder=1)
        sides = [place - 0.5, place + 0.5]
        axes.fill_betweenx(sides, 1 / (1 + row.noise), 1 + row.noise, color="#dddddd", linewidth=0, zorder=0)
    for number, name in enumerate((*study.rules, "greedy")):
        points = [
            (row.against[name].over.value, place) for place, (row, _) in enumerate(ordered) if name in row.against
        ]
        if points:
            across, up = zip(*points, strict=True)
            marker, colour = MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)]
            axes.scatter(across, up, marker=marker, c=colour, s=28, label=name, alpha=0.9, linewidths=0, zorder=2)
    axes.axvline(1.0, color="black", linewidth=1.0, zorder=1)
    axes.set_xscale("log")
    ticks = [tick for tick in TICKS if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    names = [f"{row.program}{' *' if row.marks else ''}" for row, _ in ordered]
    axes.set_yticks(range(len(ordered)), names, fontsize=9)
    axes.set_ylim(-0.6, len(ordered) - 0.4)
    axes.grid(axis="x", color="#eeeeee", zorder=-1)
    axes.set_xlabel(
        "time of the other / time of the measured plan, schedules tuned (right of 1: the measured plan is faster)\n"
        "grey band: noise floor; bar: 95 % interval of the fastest rule; asterisk: marked program"
    )
    figure.legend(loc="outside upper center", ncols=4, frameon=False, markerscale=1.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return True
