"""What measurements say about the model: the formulas, by hand."""

import math

import pytest

from autofuse.search.prices.residual import ClassPrice, Residual, optimistic

SPREAD = 0.3
"""What the model says of itself."""


def test_without_measurements_the_model_is_taken_at_its_word():
    assert Residual().predict("memory", SPREAD) == (0.0, pytest.approx(2 * SPREAD))


def test_one_measurement_is_shrunk_towards_the_prior():
    residual = Residual()
    residual.observe("memory", 10.0, 20.0)
    mean, sigma = residual.predict("memory", SPREAD)
    # the centre of all groups is log 2; the group's one value agrees with it
    assert mean == pytest.approx(math.log(2))
    assert sigma == pytest.approx(math.sqrt(2 * (2 * SPREAD) ** 2 / 3))


def test_groups_are_shrunk_towards_the_mean_of_all():
    residual = Residual()
    residual.observe("memory", 1.0, math.e)
    residual.observe("compute", 1.0, 1.0)
    # the centre is 1/2, worth two measurements
    assert residual.predict("memory", SPREAD)[0] == pytest.approx((1 + 2 * 0.5) / 3)
    assert residual.predict("compute", SPREAD)[0] == pytest.approx((0 + 2 * 0.5) / 3)
    assert residual.predict("overhead", SPREAD)[0] == pytest.approx(0.5)


def test_the_spread_is_that_of_the_group_about_its_mean():
    residual = Residual()
    for log in (0.0, 0.4, -0.4, 0.8, -0.8):
        residual.observe("memory", 1.0, math.exp(log))
    mean, sigma = residual.predict("memory", SPREAD)
    assert mean == pytest.approx(0.0)
    assert sigma == pytest.approx(math.sqrt((2 * 0.4**2 + 2 * 0.8**2 + 2 * (2 * SPREAD) ** 2) / 7))


def test_a_model_that_is_always_right_never_becomes_certain():
    residual = Residual()
    for _ in range(10_000):
        residual.observe("memory", 3.0, 3.0)
    assert residual.predict("memory", SPREAD) == (0.0, 0.05)


@pytest.mark.parametrize(("predicted", "measured"), [(0.0, 1.0), (1.0, math.inf), (1.0, 0.0), (-1.0, 1.0)])
def test_what_has_no_logarithm_is_not_counted(predicted, measured):
    residual = Residual()
    residual.observe("memory", predicted, measured)
    assert residual.predict("memory", SPREAD) == Residual().predict("memory", SPREAD)


def test_a_model_that_is_less_sure_of_a_kernel_gets_a_wider_spread_for_it():
    residual = Residual()
    residual.observe("memory", 1.0, 1.0)
    assert residual.predict("memory", 0.8)[1] == pytest.approx(math.sqrt(2 * (2 * 0.8) ** 2 / 3))
    prices = {"sure": ClassPrice(10.0, "memory", 1.0, 0.1), "unsure": ClassPrice(10.0, "memory", 1.0, 0.5)}
    found = optimistic(prices, {}, Residual(), k=1.0)
    assert found["unsure"] < found["sure"] < 10.0


def test_optimistic_prices_are_measured_or_below_the_expected_and_never_below_the_floor():
    prices = {
        "known": ClassPrice(10.0, "memory", 1.0, SPREAD),
        "guessed": ClassPrice(10.0, "memory", 1.0, SPREAD),
        "floored": ClassPrice(10.0, "memory", 9.0, SPREAD),
        "failed": ClassPrice(10.0, "memory", 1.0, SPREAD),
    }
    found = optimistic(prices, {"known": 12.0, "failed": math.inf}, Residual(), k=1.0)
    assert found == {
        "known": 12.0,
        "guessed": pytest.approx(10.0 * math.exp(-0.6)),
        "floored": 9.0,
        "failed": math.inf,
    }
    assert optimistic(prices, {}, Residual(), k=0.0)["guessed"] == pytest.approx(10.0)
