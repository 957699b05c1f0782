"""The picture of the study: quality against measurements, and search time against the size of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from quality_figures import Row, Searched, curve
from quality_settings import Study

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import PercentFormatter


def draw(rows: Sequence[Row], searched: Sequence[Searched], study: Study, path: Path) -> bool:
    """Write the picture; False where there is nothing to draw."""
    points = curve(rows, study)
    if not points and not searched:
        return False
    drawn = [lambda axes: _draw_quality(axes, rows, study)] if points else []
    drawn += [lambda axes: _draw_times(axes, searched)] if searched else []
    figure, panels = plt.subplots(1, len(drawn), figsize=(6 * len(drawn), 4.6), layout="constrained", squeeze=False)
    for axes, draw_on in zip(panels[0], drawn, strict=True):
        draw_on(axes)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return True


def _draw_quality(axes: Any, rows: Sequence[Row], study: Study) -> None:
    for row in rows:
        across, up = [], []
        for share in sorted(study.trials):
            found = [choice for choice in row.choices if choice.share == share]
            if found:
                across.append(float(np.median([choice.measured for choice in found])))
                up.append(float(np.median([choice.gap for choice in found])))
        axes.plot(across, up, linewidth=0.9, alpha=0.7, label=row.program)
    points = curve(rows, study)
    across = [point.measured[1] for point in points]
    axes.plot(across, [point.gap[1] for point in points], color="black", linewidth=2.0, label="all: median")
    low, high = [point.gap[0] for point in points], [point.gap[2] for point in points]
    axes.fill_between(across, low, high, color="#bbbbbb", alpha=0.5, linewidth=0, label="all: middle half")
    for share, gap in zip(study.target_shares, study.target_gaps, strict=True):
        axes.plot([share], [gap], marker="v", color="#cc3311", linestyle="none")
    axes.set_xlabel("classes measured, of the space's (triangles: targets)")
    axes.set_ylabel("sum of kernels, from the smallest")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(color="#eeeeee")
    axes.legend(fontsize=7, frameon=False)


def _draw_times(axes: Any, searched: Sequence[Searched]) -> None:
    for one in searched:
        low, middle, high = one.seconds
        axes.plot([one.nodes, one.nodes], [low, high], color="#999999", linewidth=1.0)
        axes.plot([one.nodes], [middle], marker="o", color="#0072b2", markersize=4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("nodes of the cleaned-up graph")
    axes.set_ylabel("seconds of compile")
    axes.grid(color="#eeeeee")
