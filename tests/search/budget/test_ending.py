"""What is kept of a budget for the last race, and what of it a race may use."""

import math

import pytest

from autofuse.search.budget.budget import Budget, Clock
from autofuse.search.budget.ending import SCHEDULE_SHARE, Ending
from autofuse.testing.sketches import softmax_graph
from tests.fixtures.benches import CountedBench


def ending_of(budget):
    """The end of a search that begins now, and the bench whose clock it goes by."""
    bench = CountedBench(softmax_graph(8, 8))
    return Ending(budget, budget.seconds, Clock(budget, bench, bench.clock)), bench


def search_s(ending):
    """When the search is over."""
    return SCHEDULE_SHARE * ending.clock.budget.seconds


def test_the_last_race_has_a_share_of_the_budget():
    ending, bench = ending_of(Budget(100.0))
    assert search_s(ending) == pytest.approx(82.0)  # 10 s for it, 5 for the winner once more, 3 for the certificate
    bench.wait(82.0 - bench.clock())
    assert ending.race() == pytest.approx((10.0, 10.0))
    bench.wait(92.0 - bench.clock())
    assert ending.holdout(0.1) == pytest.approx((5.0, 5.0))


def test_where_plans_take_long_to_build_more_is_kept_for_it():
    ending, bench = ending_of(Budget(20.0))
    bench.wait(5.0 - bench.clock())
    ending.reserve(each_s=1.5)
    assert search_s(ending) == pytest.approx(20.0 - 4 * 1.5 - 0.6)
    ending.reserve(each_s=60.0)
    assert search_s(ending) == pytest.approx(12.5)  # half of what is left


def test_screening_has_half_of_what_is_left_of_the_search():
    ending, bench = ending_of(Budget(100.0))
    bench.wait(52.0 - bench.clock())
    assert ending.screening() == pytest.approx((5.0, 15.0))


def test_what_is_too_little_for_screening_is_for_tuning():
    ending, bench = ending_of(Budget(100.0))
    bench.wait(61.0 - bench.clock())
    assert ending.screening() is not None
    bench.wait(63.0 - bench.clock())
    assert ending.screening() is None


def test_a_race_that_begins_late_has_what_is_left():
    ending, bench = ending_of(Budget(100.0))
    bench.wait(91.0 - bench.clock())
    assert ending.race() == pytest.approx((4.0, 4.0))  # and 2 s for the winner once more
    bench.wait(99.5 - bench.clock())
    assert ending.race() == (0.1, 0.1)
    assert ending.holdout(0.1) is None
    assert not ending.is_over()
    bench.wait(100.5 - bench.clock())
    assert ending.is_over()


def test_the_winner_runs_once_more_only_if_it_can_twice():
    ending, bench = ending_of(Budget(100.0))
    bench.wait(95.0 - bench.clock())
    assert ending.holdout(0.9) == pytest.approx((2.0, 2.0))
    assert ending.holdout(1.1) is None


def test_a_budget_in_measurements_limits_no_race():
    ending, bench = ending_of(Budget(math.inf, 10))
    bench.wait(1e6 - bench.clock())
    ending.reserve(100.0)
    assert ending.clock.budget == Budget(math.inf, 10)
    assert ending.screening() == (3.0, None)
    assert ending.race() == (6.0, None)
    assert ending.holdout(50.0) == (3.0, None)
    assert not ending.is_over()
