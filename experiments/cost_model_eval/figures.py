"""How good predictions are, of kernels by themselves and of pairs of kernels of one program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from samples import Samples

from autofuse.lazydataclass import replace

APART = math.log(1.05)
"""Pairs of kernels nearer than that are not worth ordering."""
_NINETY = 1.645
_LEAST = 10
"""Kernels of a program of which the share within intervals is told."""


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of predictions of held-out kernels."""

    mape: float
    """Mean of |predicted / measured - 1|."""
    sigma: float
    """Standard deviation of log(measured / predicted)."""
    pairs: float
    """Share of pairs of one program, more than 5 % apart, that are ordered right; mean over programs."""
    covered: float
    """Share of kernels in their intervals of 90 %."""
    well_covered: float
    """Share of programs, of ten kernels or more, of which at least 70 % are in their intervals."""
    least_covered: float
    """Of these programs, the share of kernels in their intervals that nine in ten reach."""
    below_floor: int
    """Kernels that were faster than their floor."""
    top1: float
    """Time of the best schedule of a kernel over that of the one predicted best, mean over kernels with a sweep."""
    top3: float
    """The same of the best of the three predicted best."""


def figures(samples: Samples, mean: NDArray[Any], sigma: NDArray[Any], of: NDArray[Any]) -> Figures:
    """Figures of predictions of the samples of some numbers, f64[n] each. NaN where there is nothing to count."""
    logs = samples.logs[of]
    predicted_us = np.maximum(samples.us[of] * np.exp(mean), samples.floor_us[of])
    measured_us = samples.measured_us[of]
    error = np.log(measured_us / predicted_us)
    inside = np.abs(logs - mean) <= _NINETY * sigma
    by_program = _by_program(samples, of)
    covered = _covered(inside, by_program)
    top = _tops(samples, predicted_us, measured_us, of)
    return Figures(
        mape=float(np.mean(np.abs(predicted_us / measured_us - 1))),
        sigma=float(np.std(error)),
        pairs=_mean([ordered(measured_us[n], predicted_us[n]) for n in by_program]),
        covered=float(np.mean(inside)),
        well_covered=_mean([share >= 0.7 for share in covered]),
        least_covered=float(np.quantile(covered, 0.1)) if covered else math.nan,
        below_floor=int(np.sum(measured_us < samples.floor_us[of])),
        top1=_mean([one for one, _ in top]),
        top3=_mean([three for _, three in top]),
    )


def measured_again(samples: Samples) -> Figures | None:
    """What the first pass tells of the last one: no model does better. None for samples of one pass."""
    of = np.array([n for n, one in enumerate(samples.seen) if len(one.passes) > 1], np.int64)
    if not len(of):
        return None
    first, last = (np.array([samples.seen[n].passes[place].us for n in of], np.float64) for place in (0, -1))
    seen = [replace(samples.seen[n], passes=samples.seen[n].passes[-1:]) for n in of]
    again = dataclasses.replace(samples, seen=seen, us=first, floor_us=samples.floor_us[of], sigma=samples.sigma[of])
    spread = np.full(len(of), float(np.std(np.log(last / first))))
    return figures(again, np.zeros(len(of)), spread, np.arange(len(of)))


def coverage(samples: Samples, mean: NDArray[Any], sigma: NDArray[Any]) -> list[float]:
    """Of each program of ten kernels or more, the share of kernels in their intervals of 90 %, the least first."""
    inside = np.abs(samples.logs - mean) <= _NINETY * sigma
    return sorted(_covered(inside, _by_program(samples, np.arange(len(inside)))))


def _by_program(samples: Samples, of: NDArray[Any]) -> list[NDArray[Any]]:
    """Places in `of` of the kernels of each program."""
    programs = np.unique([one.program.name for one in samples.seen], return_inverse=True)[1][of]
    order = np.argsort(programs, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(programs[order])) + 1)


def _covered(inside: NDArray[Any], by_program: Sequence[NDArray[Any]]) -> list[float]:
    return [float(inside[n].mean()) for n in by_program if len(n) >= _LEAST]


def ordered(measured_us: NDArray[Any], predicted_us: NDArray[Any]) -> float:
    """Share of pairs more than 5 % apart that are ordered right; ties count half. NaN without such a pair."""
    true = np.subtract.outer(np.log(measured_us), np.log(measured_us))
    said = np.subtract.outer(np.log(predicted_us), np.log(predicted_us))
    matters = true > APART
    if not matters.any():
        return math.nan
    return float(np.mean(np.where(said[matters] == 0, 0.5, said[matters] > 0)))


def _tops(
    samples: Samples, predicted_us: NDArray[Any], measured_us: NDArray[Any], of: NDArray[Any]
) -> list[tuple[float, float]]:
    """Of each kernel on each number of threads with four schedules or more."""
    sweeps: dict[tuple[str, int | None], list[int]] = {}
    for place, number in enumerate(of):
        one = samples.seen[number]
        sweeps.setdefault((one.kernel, one.threads), []).append(place)
    found: list[tuple[float, float]] = []
    for places in sweeps.values():
        if len(places) >= 4:
            order = np.argsort(predicted_us[places], kind="stable")
            us = measured_us[places]
            found.append((float(us.min() / us[order[0]]), float(us.min() / us[order[:3]].min())))
    return found


def _mean(values: list[Any]) -> float:
    kept = [float(value) for value in values if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else math.nan
