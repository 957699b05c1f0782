"""The models compared: each learns from some samples and predicts the mean and the spread of the residual of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from samples import Samples
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from autofuse.cost_models.base import CostModel, KernelFacts, Prices
from autofuse.cost_models.covariates import COLUMNS, OWN, covariates
from autofuse.cost_models.learned.training import USUAL, Examples, Settings, train
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace

Predicted = tuple[NDArray[Any], NDArray[Any]]
"""Mean and standard deviation of log(measured / predicted), f64[n] each."""
Predict = Callable[[NDArray[Any], NDArray[Any]], Predicted]
"""Of rows of `covariates`, and of the base model's own spreads."""
Fit = Callable[[Samples, NDArray[Any], int], Predict]
"""(all samples, numbers of those to learn from, seed) -> what predicts others."""
GROUPS: Mapping[str, Callable[[str], bool]] = {
    "price": lambda name: COLUMNS.index(name) < OWN,
    "memory": lambda name: (
        name.startswith(("traffic", "read", "written", "workspace", "scratch", "contiguous", "strided"))
        or name in ("gathers", "uniform", "masked", "gathered_elements", "vector_bytes", "far_steps")
    ),
    "operations": lambda name: name.startswith(("op_", "dot_", "opaque", "sort", "scattered", "packed")),
}
"""Groups of features by name; what is in none of them is `shape`."""
_NINETY = 1.645


def group_of(column: str) -> str:
    """The group of a column."""
    return next((name for name, holds in GROUPS.items() if holds(column)), "shape")


def analytical(samples: Samples, chosen: NDArray[Any], seed: int) -> Predict:
    """The base model as it is: it learns nothing."""
    del samples, chosen, seed
    return lambda rows, sigma: (np.zeros(len(rows)), sigma)


def levelled(samples: Samples, chosen: NDArray[Any], seed: int) -> Predict:
    """The base model times one factor, with one spread: what a calibration could do."""
    del seed
    mean, sigma = float(np.median(samples.logs[chosen])), float(np.std(samples.logs[chosen]))
    return lambda rows, _: (np.full(len(rows), mean), np.full(len(rows), sigma))


def learned(settings: Settings = USUAL, without: str = "", only: str = "") -> Fit:
    """The model that autofuse has. `without`, `only`: a group of features that it does not see, or only this."""
    shown = np.array([group_of(name) != without and only in ("", group_of(name)) for name in COLUMNS])

    def fit(samples: Samples, chosen: NDArray[Any], seed: int) -> Predict:
        groups = samples.numbered("grouped")[chosen]
        fitted = train(Examples(samples.rows[chosen] * shown, samples.logs[chosen], groups), settings, seed)

        def predict(rows: NDArray[Any], sigma: NDArray[Any]) -> Predicted:
            del sigma
            mean = np.clip(fitted.mean.predict(rows * shown), -settings.most_log, settings.most_log)
            return mean, np.exp(fitted.spread.predict(rows * shown)) * fitted.spread_scale

        return predict

    return fit


def plain(make: Callable[[int], Any]) -> Fit:
    """A regressor of scikit-learn, with the spread that holds 90 % of a tenth of the programs, held out for that."""

    def fit(samples: Samples, chosen: NDArray[Any], seed: int) -> Predict:
        logs = np.clip(samples.logs, -USUAL.most_log, USUAL.most_log)
        groups = np.unique(samples.numbered("grouped")[chosen], return_inverse=True)[1]
        apart = np.random.default_rng(seed).permutation(int(groups.max()) + 1)[groups] % 10 == 0
        part = make(seed).fit(samples.rows[chosen[~apart]], logs[chosen[~apart]])
        left = np.abs(samples.logs[chosen[apart]] - part.predict(samples.rows[chosen[apart]]))
        sigma = float(np.quantile(left, 0.9)) / _NINETY
        whole = make(seed).fit(samples.rows[chosen], logs[chosen])

        def predict(rows: NDArray[Any], _: NDArray[Any]) -> Predicted:
            return np.clip(whole.predict(rows), -USUAL.most_log, USUAL.most_log), np.full(len(rows), sigma)

        return predict

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
        mean, sigma = self.predict(covariates(prices.us, prices.bound, prices.features), prices.sigma)
        return replace(prices, us=np.maximum(prices.us * np.exp(mean), prices.floor_us), sigma=sigma)

    def write_us(self, value: TensorType) -> float:
        """See `CostModel.write_us`."""
        return self.base.write_us(value)

    def describe(self) -> dict[str, Any]:
        """See `CostModel.describe`."""
        return self.base.describe()


MODELS: Mapping[str, Fit] = {
    "analytical": analytical,
    "analytical, one factor": levelled,
    "learned": learned(),
    "learned, centred": learned(replace(USUAL, centred=0.5)),
    "ridge": plain(lambda seed: make_pipeline(StandardScaler(), Ridge(alpha=10.0, random_state=seed))),
    "random forest": plain(
        lambda seed: RandomForestRegressor(
            100, min_samples_leaf=3, max_features=0.4, max_samples=0.5, random_state=seed
        )
    ),
    "MLP": plain(
        lambda seed: make_pipeline(
            StandardScaler(),
            MLPRegressor(hidden_layer_sizes=(64, 32), alpha=1e-2, max_iter=300, early_stopping=True, random_state=seed),
        )
    ),
}
"""By name. The first is what the others are judged against."""
