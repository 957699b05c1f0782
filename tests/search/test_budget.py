"""Budgets: shares of the time, and what is no budget."""

import math

import pytest

from autofuse.errors import SearchError
from autofuse.search.budget import Budget, require_positive
from autofuse.testing.benches import SyntheticBench
from autofuse.testing.sketches import softmax_graph
from autofuse.testing.tuning import tuner_of


def test_whole_plans_are_raced_for_a_share_of_the_time():
    assert Budget(100.0).race_s(0.1) == pytest.approx(10.0)
    assert Budget(2.0).race_s(0.1) == 1.0
    assert Budget(math.inf, 5).race_s(0.1) == Budget().race_s(0.1) == pytest.approx(6.0)


def test_enumeration_has_a_quarter_of_the_time():
    assert Budget(100.0).enumeration_s == pytest.approx(25.0)
    assert Budget(16.0).enumeration_s == 5.0
    assert Budget(2.0).enumeration_s == 1.0
    assert Budget(math.inf, 5).enumeration_s == math.inf


def test_what_enumeration_takes_is_taken_from_all_that_follows():
    class Slow(SyntheticBench):
        def clock(self):
            self.now_s += 20.0
            return self.now_s

    graph = softmax_graph()
    tuner = tuner_of(graph, Slow(graph), Budget(100.0))
    assert tuner._clock.budget.seconds == 80.0
    assert tuner._clock.used() == pytest.approx(0.25)


@pytest.mark.parametrize("amount", [0, -1, math.inf, math.nan, "60", None])
def test_budgets_are_positive_numbers(amount):
    with pytest.raises(SearchError, match=r"budget=.* must be a positive number"):
        require_positive("budget", amount)
