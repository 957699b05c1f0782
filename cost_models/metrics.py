"""How good a cost model is: by ranking, by what a search loses, and by error; always on programs it has not seen.

A search does not need right times, it needs the right order: a model off by a constant factor chooses perfectly. So
rank correlation and the loss of the chosen kernels stand first, the errors second.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autofuse.errors import ArgumentError


def kendall_tau(measured: ArrayLike, predicted: ArrayLike) -> float:
    """Rank correlation in -1..1: concordant minus discordant pairs over all pairs (Kendall 1945, tau-b for ties).

    0 when either side does not vary. Takes memory and time proportional to the square of the number of values.
    """
    a, b = _pair(measured, predicted, 2)
    x, y = np.sign(a[:, None] - a), np.sign(b[:, None] - b)
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale else 0.0


def top_k_regret(measured: ArrayLike, predicted: ArrayLike, k: int = 1) -> float:
    """What is lost by measuring only the `k` best predicted: their best time over the best of all, minus one."""
    a, b = _pair(measured, predicted, 1)
    if k < 1:
        raise ArgumentError(f"k={k}: at least one prediction must be looked at")
    chosen = np.argsort(b, kind="stable")[:k]
    return float(a[chosen].min() / a.min()) - 1.0


def mape(measured: ArrayLike, predicted: ArrayLike) -> float:
    """Mean absolute percentage error, as a fraction."""
    a, b = _pair(measured, predicted, 1)
    return float(np.mean(np.abs(b - a) / a))


def log_error(measured: ArrayLike, predicted: ArrayLike) -> tuple[float, float]:
    """(mean, standard deviation) of log(measured / predicted): the bias and the sigma that a model should state."""
    a, b = _pair(measured, predicted, 1)
    logs = np.log(a / b)
    return float(logs.mean()), float(logs.std())


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A model on the kernels of one program, or the mean over programs."""

    kernels: int
    kendall_tau: float
    top_1_regret: float
    top_5_regret: float
    mape: float
    log_bias: float
    log_sigma: float


def evaluate(measured: ArrayLike, predicted: ArrayLike) -> Evaluation:
    """All metrics of one set of kernels; at least two."""
    a, b = _pair(measured, predicted, 2)
    bias, sigma = log_error(a, b)
    return Evaluation(len(a), kendall_tau(a, b), top_k_regret(a, b, 1), top_k_regret(a, b, 5), mape(a, b), bias, sigma)


def evaluate_by_program(
    measured: ArrayLike, predicted: ArrayLike, programs: Sequence[str]
) -> tuple[Evaluation, dict[str, Evaluation]]:
    """(mean over programs, each program's). Programs of one kernel have no order and are left out.

    Raises ArgumentError if no program has two kernels.
    """
    a, b = _pair(measured, predicted, 2)
    if len(programs) != len(a):
        raise ArgumentError(f"programs names {len(programs)} kernels, measured has {len(a)}; give one name per kernel")
    names = np.array(programs)
    found = {
        name: evaluate(a[names == name], b[names == name])
        for name in dict.fromkeys(programs)
        if int((names == name).sum()) > 1
    }
    if not found:
        raise ArgumentError("no program has two kernels; ranks need at least two of one program")
    every = list(found.values())

    def mean(field: str) -> float:
        return float(np.mean([getattr(one, field) for one in every]))

    total = Evaluation(
        kernels=sum(one.kernels for one in every),
        kendall_tau=mean("kendall_tau"),
        top_1_regret=mean("top_1_regret"),
        top_5_regret=mean("top_5_regret"),
        mape=mean("mape"),
        log_bias=mean("log_bias"),
        log_sigma=mean("log_sigma"),
    )
    return total, found


def split_by_program(
    programs: Sequence[str], folds: int = 5, seed: int = 0
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """(training rows, test rows) of each fold: no program is on both sides, every row is tested once.

    Raises ArgumentError unless there are at least two folds and as many programs as folds.
    """
    names = sorted(set(programs))
    if not 2 <= folds <= len(names):
        raise ArgumentError(f"folds={folds}: give 2 to {len(names)}, the number of different programs")
    random.Random(seed).shuffle(names)
    fold_of = {name: number % folds for number, name in enumerate(names)}
    rows = np.array([fold_of[name] for name in programs])
    for fold in range(folds):
        yield np.flatnonzero(rows != fold), np.flatnonzero(rows == fold)


def _pair(measured: ArrayLike, predicted: ArrayLike, least: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(measured, np.float64), np.asarray(predicted, np.float64)
    if a.ndim != 1 or a.shape != b.shape or len(a) < least:
        raise ArgumentError(
            f"measured and predicted must be vectors of one length, at least {least}; got shapes {a.shape}, {b.shape}"
        )
    if not (np.isfinite(a).all() and np.isfinite(b).all() and (a > 0).all() and (b > 0).all()):
        raise ArgumentError("times must be finite and above zero")
    return a, b
