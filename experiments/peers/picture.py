"""The picture of the study: each other variant's time over autofuse's, by program, on a log axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from figures import Row
from variants import AUTOFUSE, NUMPY, PEERS

mpl.use("Agg")
from matplotlib import pyplot as plt

STYLES = {
    NUMPY: ("s", "#999999", 26),
    "jax": ("o", "#0072b2", 34),
    "jax idiomatic": ("o", "#56b4e9", 22),
    "torch": ("^", "#d55e00", 38),
    "torch autotune": ("^", "#cc9900", 24),
    "torch idiomatic": ("D", "#cc3377", 28),
    "numba": ("v", "#009e73", 36),
}
"""Marker, colour and size by variant."""


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Write the picture of the column with fresh results; False where there is nothing to draw."""
    known = [(best.over.value, row) for row in rows if (best := row.best("fresh"))]
    if not known:
        return False
    ordered = [row for _, row in sorted(known, key=lambda pair: pair[0])]
    figure, axes = plt.subplots(figsize=(10, 2.2 + 0.27 * len(ordered)), layout="constrained")
    for place, row in enumerate(ordered):
        best = row.best("fresh")
        assert best is not None  # `known` holds only rows with one
        axes.plot([best.over.low, best.over.high], [place, place], color="#333333", linewidth=1.2, zorder=1)
        axes.fill_betweenx(
            [place - 0.5, place + 0.5], 1 / (1 + best.noise), 1 + best.noise, color="#dddddd", linewidth=0, zorder=0
        )
    for variant in (NUMPY, *PEERS):
        points = [
            (row.against["fresh"][variant].over.value, place)
            for place, row in enumerate(ordered)
            if variant in row.against["fresh"]
        ]
        if points:
            marker, colour, size = STYLES[variant]
            across, up = zip(*points, strict=True)
            axes.scatter(across, up, marker=marker, c=colour, s=size, label=variant, alpha=0.9, linewidths=0, zorder=2)
    axes.axvline(1.0, color="black", linewidth=1.0, zorder=1)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if _within(tick, axes.get_xlim())]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(ordered)), [row.program for row in ordered], fontsize=9)
    axes.set_ylim(-0.6, len(ordered) - 0.4)
    axes.grid(axis="x", color="#eeeeee", zorder=-1)
    axes.set_xlabel(
        f"time of the other / time of {AUTOFUSE}, results fresh (right of 1: {AUTOFUSE} is faster)\n"
        "grey band: noise floor; bar: 95 % interval of the fastest other"
    )
    figure.legend(loc="outside upper center", ncols=4, frameon=False, markerscale=1.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return True


def _within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]
