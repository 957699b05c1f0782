"""Rows that regressions read of kernels."""

import numpy as np

from autofuse.cost_models.base import BOUNDS
from autofuse.cost_models.covariates import COLUMNS, covariates
from autofuse.cost_models.features import COLUMNS as FEATURES


def test_a_row_is_the_price_its_bound_its_terms_as_shares_and_the_features():
    features = np.arange(len(FEATURES), dtype=np.float64)
    (row,) = covariates(np.array([np.e]), ["serial"], features[None], np.e * np.array([[0.5, 0.25, 0.0, 1.0, 0.0]]))
    told = dict(zip(COLUMNS, row, strict=True))
    assert told["log_us"] == 1.0
    assert [told[f"bound_{bound}"] for bound in BOUNDS] == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert [told[f"share_{bound}"] for bound in BOUNDS] == [0.5, 0.25, 0.0, 1.0, 0.0]
    assert [told[name] for name in FEATURES] == features.tolist()


def test_what_a_model_does_not_say_is_zero():
    rows = covariates(np.array([1.0, 10.0]), ["memory", "compute"], None)
    assert rows.shape == (2, len(COLUMNS))
    assert rows.sum() == np.log(10.0) + 2
    assert covariates(np.empty(0), [], None).shape == (0, len(COLUMNS))
