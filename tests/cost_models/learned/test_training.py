"""Training: held-out programs, bad examples, and the same model from the same examples."""

import numpy as np
import pytest

from autofuse.cost_models.covariates import COLUMNS
from autofuse.cost_models.learned.training import Examples, Settings, fit_mean, folds_of, train
from autofuse.errors import ModelError
from tests.fixtures.trainedmodels import examples

SMALL = Settings(bags=2, rounds=20, depth=3)


def test_what_programs_have_in_common_is_learned_and_the_spread_is_what_is_left():
    fitted = train(examples(), SMALL)
    left = examples().logs - fitted.held_out
    assert np.std(left) < 0.2 < np.std(examples().logs)
    others = examples(seed=1)
    sigma = np.exp(fitted.spread.predict(others.rows)) * fitted.spread_scale
    within = np.abs(others.logs - fitted.mean.predict(others.rows)) <= 1.645 * sigma
    assert np.mean(within) == pytest.approx(0.9, abs=0.05)


@pytest.mark.slow
def test_the_same_examples_give_the_same_model():
    one, two, other = train(examples(), SMALL), train(examples(), SMALL), train(examples(), SMALL, seed=1)
    assert one.mean.value.tobytes() == two.mean.value.tobytes()
    assert one.spread_scale == two.spread_scale
    assert one.mean.value.tobytes() != other.mean.value.tobytes()


def test_targets_are_clipped():
    wild = Examples(examples().rows, np.full(600, 50.0), examples().groups)
    assert fit_mean(wild, SMALL).predict(wild.rows) == pytest.approx(1.5)


def test_what_differs_between_programs_only_can_be_left_out():
    shifted = Examples(examples().rows, examples().logs + examples().groups, examples().groups)
    mean = fit_mean(shifted, Settings(bags=2, rounds=20, depth=3, centred=1.0, most_log=50.0)).predict(shifted.rows)
    assert np.abs(mean).max() < 1.0


def test_a_program_lies_in_one_fold():
    folds = folds_of(examples().groups, 5, seed=3)
    for program in range(20):
        assert len(set(folds[examples().groups == program])) == 1
    assert np.bincount(folds).tolist() == [120] * 5


def test_too_few_programs():
    with pytest.raises(ModelError, match="4 programs are too few"):
        train(examples(programs=4))


@pytest.mark.parametrize(
    ("rows", "logs", "message"),
    [
        (np.full((3, len(COLUMNS)), np.nan), np.zeros(3), r"rows\[0\]: feature 'log_us' is nan"),
        (np.zeros((3, len(COLUMNS))), np.array([0.0, np.inf, 0.0]), r"logs\[1\]"),
        (np.zeros((3, 2)), np.zeros(3), r"shapes \(3, 2\)"),
    ],
)
def test_examples_that_are_no_numbers(rows, logs, message):
    with pytest.raises(ModelError, match=message):
        Examples(rows, logs, np.zeros(3, np.int64))
