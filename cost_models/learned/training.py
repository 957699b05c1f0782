"""Training the learned cost model with scikit-learn, which nothing else of it needs.

The target is the logarithm of measured over predicted time, clipped to what the model may correct. The mean is a sum of
boosted trees, bagged over *programs*: kernels of one program err together, and a bag that lacks a program shows what is
known without it. Squared error: under absolute and quantile losses scikit-learn overwrites the leaves' values. The
spread is what is left of programs that were held out, itself a function of the features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from autofuse.cost_models.covariates import COLUMNS
from autofuse.cost_models.learned.forest import Forest
from autofuse.errors import ModelError
from autofuse.lazydataclass import dataclass

FOLDS = 5
"""Parts of the programs, each held out once."""
_TINY = 0.01
"""Residuals below are as good as none: that is how far times of two passes are apart."""
_NINETY = 1.645
"""Nine in ten values of a normal lie within so many standard deviations."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the model is trained."""

    bags: int = 5
    rounds: int = 60
    """Trees of each bag."""
    depth: int = 5
    rate: float = 0.1
    least_leaf: int = 20
    """Records in a leaf."""
    l2: float = 5.0
    most_log: float = 1.5
    """Largest correction of the logarithm of a price."""
    centred: float = 0.0
    """Share of each program's mean residual that is left out of the target: 1 = only what differs within programs."""


USUAL = Settings()


@dataclass(frozen=True, slots=True)
class Examples:
    """What is learned from; n records."""

    rows: NDArray[Any]
    """f64[n, len(COLUMNS)]: `covariates`."""
    logs: NDArray[Any]
    """f64[n]: log of measured over predicted time."""
    groups: NDArray[Any]
    """i64[n]: records with equal numbers are of one program, whatever its sizes."""

    def __post_init__(self) -> None:
        """Raises ModelError for what cannot be learned from."""
        if self.rows.shape != (len(self.logs), len(COLUMNS)) or self.groups.shape != self.logs.shape:
            raise ModelError(
                f"rows, logs and groups have the shapes {self.rows.shape}, {self.logs.shape} and {self.groups.shape}; "
                f"they must be (n, {len(COLUMNS)}), (n,) and (n,)"
            )
        bad = np.argwhere(~np.isfinite(self.rows))
        if len(bad):
            raise ModelError(f"rows[{bad[0][0]}]: feature {COLUMNS[bad[0][1]]!r} is {self.rows[tuple(bad[0])]}")
        if not np.isfinite(self.logs).all():
            raise ModelError(f"logs[{int(np.argmin(np.isfinite(self.logs)))}]: must be finite")

    def only(self, chosen: NDArray[Any]) -> Examples:
        """Those of a mask, or of numbers."""
        return Examples(self.rows[chosen], self.logs[chosen], self.groups[chosen])


@dataclass(frozen=True, slots=True)
class Fitted:
    """What training gives; see `trained.Trained`."""

    mean: Forest
    spread: Forest
    spread_scale: float
    held_out: NDArray[Any]
    """f64[n]: the mean predicted for each record by models that saw nothing of its program."""


def train(examples: Examples, settings: Settings = USUAL, seed: int = 0) -> Fitted:
    """Fit mean and spread. The same examples, settings and seed give the same model.

    Raises ModelError for examples of less than five programs.
    """
    folds = folds_of(examples.groups, FOLDS, seed)
    held_out = np.zeros(len(examples.logs))
    for fold in range(FOLDS):
        mean = fit_mean(examples.only(folds != fold), settings, seed)
        held_out[folds == fold] = _clipped(mean.predict(examples.rows[folds == fold]), settings)
    left = examples.logs - held_out
    widths = np.zeros(len(left))
    for fold in range(FOLDS):
        spread = fit_spread(examples.rows[folds != fold], left[folds != fold], seed)
        widths[folds == fold] = spread.predict(examples.rows[folds == fold])
    mean, spread = fit_mean(examples, settings, seed), fit_spread(examples.rows, left, seed)
    return Fitted(mean, spread, scale_of(left, widths), held_out)


def folds_of(groups: NDArray[Any], folds: int, seed: int) -> NDArray[Any]:
    """The number of the fold of each record, i64[n]; a group lies in one fold. Raises ModelError for too few groups."""
    names, members = np.unique(groups, return_inverse=True)
    if len(names) < folds:
        raise ModelError(f"groups: {len(names)} programs are too few to learn from; at least {folds} are needed")
    return (np.random.default_rng(seed).permutation(len(names)) % folds)[members]


def fit_mean(examples: Examples, settings: Settings = USUAL, seed: int = 0) -> Forest:
    """Bagged boosted trees. A bag draws programs, then their records; a program counts by the root of its records."""
    names, members, counts = np.unique(examples.groups, return_inverse=True, return_counts=True)
    logs = np.clip(examples.logs, -settings.most_log, settings.most_log)
    means = np.bincount(members, logs) / counts
    logs = logs - settings.centred * means[members]
    random = np.random.default_rng(seed)
    bags: list[Forest] = []
    for bag in range(settings.bags):
        drawn = np.bincount(random.integers(0, len(names), len(names)), minlength=len(names))
        weights = (drawn / np.sqrt(counts))[members]
        seen = random.choice(len(logs), len(logs), p=weights / weights.sum())  # weights in a fit cost it seconds
        options = {
            "max_iter": settings.rounds,
            "max_depth": settings.depth,
            "max_leaf_nodes": 1 << settings.depth,
            "learning_rate": settings.rate,
            "min_samples_leaf": settings.least_leaf,
            "l2_regularization": settings.l2,
        }
        bags.append(_boosted(options, seed + bag, examples.rows[seen], logs[seen]))
    return mean_of(bags)


def fit_spread(rows: NDArray[Any], left: NDArray[Any], seed: int) -> Forest:
    """The logarithm of how far off the mean is; `left`, f64[n]: what was left of records that were held out.

    Few and shallow trees: that cannot be told as well as where the mean is.
    """
    options = {"max_iter": 40, "max_depth": 3, "learning_rate": 0.1, "min_samples_leaf": 50, "l2_regularization": 10.0}
    return _boosted(options, seed, rows, np.log(np.maximum(np.abs(left), _TINY)))


def scale_of(left: NDArray[Any], widths: NDArray[Any]) -> float:
    """The factor of exp(`widths`), f64[n], that makes intervals of 90 % hold 90 % of what was left, f64[n]."""
    return float(np.quantile(np.abs(left) / np.exp(widths), 0.9)) / _NINETY


def _boosted(options: Mapping[str, Any], seed: int, rows: NDArray[Any], logs: NDArray[Any]) -> Forest:
    """All rounds are made: stopping early would hold out records, not programs.

    In one thread: the trees of thousands of records are too small to be shared.
    """
    booster = HistGradientBoostingRegressor(**options, early_stopping=cast("Any", False), random_state=seed)
    with threadpool_limits(limits=1, user_api="openmp"):
        return forest_of(booster.fit(rows, logs))


def forest_of(booster: HistGradientBoostingRegressor) -> Forest:
    """The trees of a fitted booster, which must not have met NaN."""
    fitted: Any = booster
    trees = [stage[0].nodes for stage in fitted._predictors]  # scikit-learn has no public way to its trees
    depth = max((int(nodes["depth"].max()) for nodes in trees), default=0)
    feature = np.zeros((len(trees), (1 << depth) - 1), np.int16)
    threshold = np.full(feature.shape, np.inf)
    value = np.zeros((len(trees), 1 << depth))
    for number, nodes in enumerate(trees):
        _complete(nodes, feature[number], threshold[number], value[number])
    return Forest(float(fitted._baseline_prediction.item()), feature, threshold, value)


def _complete(nodes: Any, feature: NDArray[Any], threshold: NDArray[Any], value: NDArray[Any]) -> None:
    """Write one tree of scikit-learn as a complete one."""
    waiting = [(0, 0)]
    while waiting:
        number, place = waiting.pop()
        node = nodes[number]
        if node["is_leaf"]:
            while place < len(feature):
                place = 2 * place + 1
            value[place - len(feature)] = node["value"]
        else:
            feature[place], threshold[place] = node["feature_idx"], node["num_threshold"]
            waiting += [(int(node["left"]), 2 * place + 1), (int(node["right"]), 2 * place + 2)]


def mean_of(bags: Sequence[Forest]) -> Forest:
    """One forest for the mean of several; shallower trees are made as deep as the others."""
    depth = max(bag.depth for bag in bags)
    deep = [_deepened(bag, depth) for bag in bags]
    return Forest(
        sum(bag.base for bag in bags) / len(bags),
        np.concatenate([bag.feature for bag in deep]),
        np.concatenate([bag.threshold for bag in deep]),
        np.concatenate([bag.value for bag in deep]) / len(bags),
    )


def _deepened(forest: Forest, depth: int) -> Forest:
    while forest.depth < depth:
        trees, leaves = forest.value.shape
        feature = np.hstack([forest.feature, np.zeros((trees, leaves), np.int16)])
        threshold = np.hstack([forest.threshold, np.full((trees, leaves), np.inf)])
        value = np.stack([forest.value, np.zeros((trees, leaves))], axis=2).reshape(trees, 2 * leaves)
        forest = Forest(forest.base, feature, threshold, value)
    return forest


def _clipped(logs: NDArray[Any], settings: Settings) -> NDArray[Any]:
    return np.clip(logs, -settings.most_log, settings.most_log)
