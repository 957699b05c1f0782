"""The models compared: each learns from some samples the mean of the residual of others.

What is said of the spread is one of three: the base model's own, one number, or a function of the features, learned as
the model that autofuse has learns it. The last two come from what is left of programs that were held out
(`heldout.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from samples import Samples
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from autofuse.cost_models.base import CostModel, KernelFacts, Prices
from autofuse.cost_models.covariates import COLUMNS, OWN, covariates
from autofuse.cost_models.learned.training import USUAL, Examples, Settings, fit_mean
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace

Mean = Callable[[NDArray[Any]], NDArray[Any]]
"""Of rows of `covariates`, f64[n]: the mean of log(measured / predicted)."""
Spread = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
"""Of rows, and of the base model's own spreads, f64[n]: the standard deviation of log(measured / predicted)."""
Predict = Callable[[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]
"""Of the same: mean and standard deviation."""
Fit = Callable[[NDArray[Any], Samples, NDArray[Any], int], Mean]
"""(rows of all samples, the samples, numbers of those to learn from, seed) -> what predicts others."""


@dataclass(frozen=True)
class Model:
    """One way to learn."""

    fit: Fit
    spread: Literal["own", "one", "learned"] = "one"


GROUPS: Mapping[str, Callable[[str], bool]] = {
    "price": lambda name: COLUMNS.index(name) < OWN,
    "memory": lambda name: (
        name.startswith(("traffic", "read", "written", "workspace", "scratch", "contiguous", "strided"))
        or name in ("gathers", "uniform", "masked", "gathered_elements", "vector_bytes", "far_steps")
    ),
    "operations": lambda name: name.startswith(("op_", "dot_", "opaque", "sort", "scattered", "packed")),
}
"""Groups of features by name; what is in none of them is `shape`."""


def group_of(column: str) -> str:
    """The group of a column."""
    return next((name for name, holds in GROUPS.items() if holds(column)), "shape")


def shown(without: str) -> NDArray[Any]:
    """bool[columns]: those of other groups than `without`; all, where that is empty."""
    return np.array([group_of(name) != without for name in COLUMNS])


def analytical(rows: NDArray[Any], samples: Samples, chosen: NDArray[Any], seed: int) -> Mean:
    """The base model as it is: it learns nothing."""
    del rows, samples, chosen, seed
    return lambda others: np.zeros(len(others))


def levelled(rows: NDArray[Any], samples: Samples, chosen: NDArray[Any], seed: int) -> Mean:
    """The base model times one factor: what a calibration could do."""
    del rows, seed
    mean = float(np.median(samples.logs[chosen]))
    return lambda others: np.full(len(others), mean)


def learned(settings: Settings = USUAL) -> Fit:
    """The model that autofuse has."""

    def fit(rows: NDArray[Any], samples: Samples, chosen: NDArray[Any], seed: int) -> Mean:
        examples = Examples(rows[chosen], samples.logs[chosen], samples.numbered("grouped")[chosen])
        forest = fit_mean(examples, settings, seed)
        return lambda others: np.clip(forest.predict(others), -settings.most_log, settings.most_log)

    return fit


def plain(make: Callable[[int], Any]) -> Fit:
    """A regressor of scikit-learn, by seed."""

    def fit(rows: NDArray[Any], samples: Samples, chosen: NDArray[Any], seed: int) -> Mean:
        logs = np.clip(samples.logs[chosen], -USUAL.most_log, USUAL.most_log)
        with threadpool_limits(limits=1), warnings.catch_warnings():  # processes share the cores
            warnings.simplefilter("ignore", ConvergenceWarning)  # a network learns for a number of rounds
            fitted = make(seed).fit(rows[chosen], logs)
        return lambda others: np.clip(fitted.predict(others), -USUAL.most_log, USUAL.most_log)

    return fit


class Corrected:
    """A cost model whose prices are corrected by what was learned from some samples."""

    def __init__(self, base: CostModel, predict: Predict) -> None:
        self.base, self.predict = base, predict

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        """See `CostModel.price`."""
        prices = self.base.price(kernels)
        if not kernels:
            return prices
        mean, sigma = self.predict(covariates(prices.us, prices.bound, prices.features, prices.terms), prices.sigma)
        return replace(prices, us=np.maximum(prices.us * np.exp(mean), prices.floor_us), sigma=sigma)

    def write_us(self, value: TensorType) -> float:
        """See `CostModel.write_us`."""
        return self.base.write_us(value)

    def describe(self) -> dict[str, Any]:
        """See `CostModel.describe`."""
        return self.base.describe()


MODELS: Mapping[str, Model] = {
    "analytical": Model(analytical, "own"),
    "analytical, one factor": Model(levelled),
    "ridge": Model(plain(lambda seed: make_pipeline(StandardScaler(), Ridge(alpha=10.0, random_state=seed)))),
    "MLP": Model(
        plain(
            lambda seed: make_pipeline(
                StandardScaler(),
                MLPRegressor(
                    hidden_layer_sizes=(64, 32), alpha=1.0, batch_size=512, max_iter=40, tol=0.0, random_state=seed
                ),
            )
        )
    ),
    "random forest": Model(
        plain(
            lambda seed: RandomForestRegressor(
                60, min_samples_leaf=5, max_features=0.25, max_samples=0.25, random_state=seed
            )
        )
    ),
    "learned, two bags": Model(learned(replace(USUAL, bags=2)), "learned"),
    "learned": Model(learned(), "learned"),
    "learned, centred": Model(learned(replace(USUAL, centred=0.5)), "learned"),
}
"""By name. The first is what the others are judged against."""
