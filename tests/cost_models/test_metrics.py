"""Metrics on vectors small enough to count by hand."""

import math

import numpy as np
import pytest

from autofuse.cost_models.metrics import (
    evaluate_by_program,
    kendall_tau,
    log_error,
    mape,
    split_by_program,
    top_k_regret,
)
from autofuse.errors import ArgumentError


def test_kendall_tau_counts_pairs_in_the_right_order():
    assert kendall_tau([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert kendall_tau([1, 2, 3], [5, 5, 5]) == 0


def test_ties_count_half():
    # 5 of 6 pairs differ in `measured`, all of them in the right order: 5 / sqrt(5 * 6)
    assert kendall_tau([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(5 / math.sqrt(30))


def test_regret_is_what_the_best_guess_loses():
    measured, predicted = [10.0, 12.0, 30.0], [3.0, 1.0, 2.0]
    assert top_k_regret(measured, predicted, 1) == pytest.approx(0.2)
    assert top_k_regret(measured, predicted, 3) == 0


def test_errors():
    assert mape([10, 20], [11, 15]) == pytest.approx((0.1 + 0.25) / 2)
    bias, sigma = log_error([10, 40], [20, 20])
    assert bias == pytest.approx(0)
    assert sigma == pytest.approx(math.log(2))


def test_a_constant_factor_hurts_no_rank():
    measured = np.array([1.0, 5.0, 2.0, 8.0])
    total, each = evaluate_by_program(measured, 3 * measured, ["a", "a", "b", "b"])
    assert (total.kendall_tau, total.top_1_regret, total.kernels) == (1, 0, 4)
    assert total.log_bias == pytest.approx(-math.log(3))
    assert set(each) == {"a", "b"}


def test_folds_never_share_a_program():
    programs = ["a", "b", "c", "a", "d", "b", "e"]
    tested = []
    for train, test in split_by_program(programs, folds=3, seed=7):
        assert not {programs[i] for i in train} & {programs[i] for i in test}
        tested += test.tolist()
    assert sorted(tested) == list(range(len(programs)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kendall_tau([1], [1]), "at least 2"),
        (lambda: mape([1, 2], [1]), "one length"),
        (lambda: mape([1, -2], [1, 1]), "above zero"),
        (lambda: top_k_regret([1, 2], [1, 2], 0), "k=0"),
        (lambda: list(split_by_program(["a", "a"], folds=2)), "folds=2"),
        (lambda: evaluate_by_program([1, 2], [1, 2], ["a"]), "names 1 kernels"),
        (lambda: evaluate_by_program([1, 2], [1, 2], ["a", "b"]), "two kernels"),
    ],
)
def test_unfit_arguments_are_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
