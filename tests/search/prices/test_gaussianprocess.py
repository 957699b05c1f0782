"""A Gaussian process over a handful of values: its formulas, and what it makes of like and unlike rows."""

import numpy as np
import pytest

from autofuse.search.prices import gaussianprocess
from autofuse.search.prices.gaussianprocess import GaussianProcess

COLUMN = np.linspace(-2.0, 2.0, 9)[:, None]


def test_one_shape_is_the_textbooks_posterior(monkeypatch):
    monkeypatch.setattr(gaussianprocess, "_OWN", (0.1,))
    monkeypatch.setattr(gaussianprocess, "_LENGTHS", (1.0,))
    values = np.array([0.5, -1.0, 2.0])
    rows, new = np.array([[0.0], [1.0], [3.0]]), np.array([[0.5]])
    mean, sigma = GaussianProcess.of(rows, values).predict(new)
    covariance = 9.0 + 0.9 * np.exp(-0.5 * (rows - rows.T) ** 2) + 0.1 * np.eye(3)
    across = (9.0 + 0.9 * np.exp(-0.5 * (new - rows.T) ** 2))[0]
    solved = np.linalg.solve(covariance, values)
    amplitude = (2.0 + values @ solved) / (2.0 + 3)
    assert mean == pytest.approx([across @ solved])
    assert sigma == pytest.approx([np.sqrt(amplitude * (10.0 - across @ np.linalg.solve(covariance, across)))])


def test_shapes_are_weighted_by_how_well_they_explain_the_values():
    smooth, rough = np.sin(COLUMN[:, 0]), np.array([1.0, -1.0] * 4 + [1.0])
    between = COLUMN[:-1] + 0.25
    said, sure = GaussianProcess.of(COLUMN, smooth).predict(between)
    assert said == pytest.approx(np.sin(between[:, 0]), abs=0.1)
    unsaid, unsure = GaussianProcess.of(COLUMN, rough).predict(between)
    assert np.abs(unsaid).max() < 0.5
    assert unsure.min() > 5 * sure.max()


def test_what_is_unlike_all_that_was_seen_gets_the_common_level_and_less_certainty():
    process = GaussianProcess.of(COLUMN, 3.0 + 0.5 * np.sin(COLUMN[:, 0]))
    mean, sigma = process.predict(np.array([[0.1], [50.0]]))
    assert mean[1] == pytest.approx(3.0, abs=0.5)
    assert sigma[1] > 2 * sigma[0]


def test_one_value_moves_all_means_and_leaves_them_uncertain():
    mean, sigma = GaussianProcess.of(np.zeros((1, 2)), np.array([1.0])).predict(np.array([[0.0, 0.0], [9.0, 9.0]]))
    assert 0.8 < mean[1] < mean[0] < 1.0
    assert np.isfinite(sigma).all()
    assert (sigma > 0.2).all()


def test_without_values_or_columns_there_are_answers():
    mean, sigma = GaussianProcess.of(np.zeros((0, 2)), np.zeros(0)).predict(np.zeros((3, 2)))
    assert mean.tolist() == [0.0] * 3
    assert sigma == pytest.approx([np.sqrt(10.0)] * 3)
    mean, sigma = GaussianProcess.of(np.zeros((4, 0)), np.ones(4)).predict(np.zeros((2, 0)))
    assert mean == pytest.approx([1.0] * 2, abs=0.05)
    assert GaussianProcess.of(COLUMN, COLUMN[:, 0]).predict(np.zeros((0, 1)))[0].shape == (0,)


@pytest.mark.slow
def test_equal_rows_and_many_values_do_not_break_it():
    random = np.random.default_rng(0)
    values = random.normal(2.0, 0.3, 300)
    mean, sigma = GaussianProcess.of(np.ones((300, 5)), values).predict(np.ones((1, 5)))
    assert mean == pytest.approx([values.mean()], abs=1e-2)
    assert sigma == pytest.approx([values.std()], rel=0.1)
