"""Trees as arrays: the same numbers as scikit-learn's own prediction, in any batch."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from autofuse.cost_models.learned.forest import Forest
from autofuse.cost_models.learned.training import forest_of, mean_of

RANDOM = np.random.default_rng(0)
ROWS = np.round(RANDOM.normal(size=(700, 9)), 2)  # with ties, and values that are thresholds
LOGS = np.sin(3 * ROWS[:, 0]) + ROWS[:, 1] * (ROWS[:, 2] > 0) + 0.1 * RANDOM.normal(size=700)


def boosted(seed=0, **options):
    options = {"max_iter": 20, "max_depth": 4, "early_stopping": "auto", **options}
    booster = HistGradientBoostingRegressor(random_state=seed, **options)
    half = RANDOM.random(len(ROWS)) < 0.5
    return booster.fit(ROWS[half], LOGS[half])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_depth": 1},
        pytest.param({"max_depth": 7, "min_samples_leaf": 1}, marks=pytest.mark.slow),
        {"max_iter": 1},
    ],
)
def test_numpy_predicts_what_scikit_learn_predicts(options):
    booster = boosted(**options)
    assert forest_of(booster).predict(ROWS) == pytest.approx(booster.predict(ROWS), rel=1e-12, abs=1e-14)


def test_several_bags_are_their_mean_whatever_their_depths():
    bags = [boosted(seed, max_depth=depth) for seed, depth in enumerate((2, 5, 3))]
    expected = sum(bag.predict(ROWS) for bag in bags) / 3
    assert mean_of([forest_of(bag) for bag in bags]).predict(ROWS) == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_a_row_is_predicted_the_same_in_any_batch():
    forest = forest_of(boosted())
    together = forest.predict(ROWS).tolist()
    assert [forest.predict(ROWS[n : n + 1])[0] for n in range(len(ROWS))] == together
    assert forest.predict(ROWS[::-1]).tolist() == together[::-1]


def test_no_rows_and_no_trees():
    forest = forest_of(boosted())
    assert forest.predict(ROWS[:0]).shape == (0,)
    alone = Forest(1.5, np.zeros((0, 1), np.int16), np.zeros((0, 1)), np.zeros((0, 2)))
    assert alone.predict(ROWS[:3]).tolist() == [1.5] * 3


def test_a_constant_target_gives_leaves_without_nodes():
    booster = HistGradientBoostingRegressor(max_iter=3).fit(ROWS, np.ones(len(ROWS)))
    assert forest_of(booster).depth == 0
    assert forest_of(booster).predict(ROWS[:4]).tolist() == [1.0] * 4
