"""What measurements say about the model's prices of other kernels."""

import math

import numpy as np
import pytest

from autofuse.cost_models.features import COLUMNS
from autofuse.search.prices.residual import ClassPrice, Residual, optimistic

SPREAD = 0.3
"""What the model says of itself."""


def price(us: float = 10.0, bound: str = "memory", sigma: float = SPREAD, floor_us: float = 1.0, **features: float):
    row = np.array([features.get(name, 0.0) for name in COLUMNS])
    return ClassPrice(us, bound, floor_us, sigma, features=row)


def test_without_measurements_the_model_is_taken_at_its_word():
    mean, sigma = Residual({}, {}).predict([price(), price(sigma=0.0)])
    assert mean.tolist() == [0.0, 0.0]
    assert sigma == pytest.approx([2 * SPREAD, 0.05])


def test_one_measurement_gives_a_finite_spread():
    prices = {"a": price(), "b": price(20.0)}
    mean, sigma = Residual(prices, {"a": 20.0}).predict([prices["b"]])
    assert 0.5 * math.log(2) < mean[0] < math.log(2)
    assert 0.05 < sigma[0] < 1.0


def test_kernels_that_do_like_work_err_alike():
    kernels = {f"{name}{n}": price(10.0 + n, **{name: 8.0}) for n in range(6) for name in ("op_exp_f32", "far_steps")}
    measured = {f"op_exp_f32{n}": 2 * (10.0 + n) for n in range(4)} | {
        f"far_steps{n}": (10.0 + n) / 4 for n in range(4)
    }
    mean, sigma = Residual(kernels, measured).predict([kernels["op_exp_f325"], kernels["far_steps5"]])
    # drawn a little to what both have in common
    assert mean == pytest.approx([math.log(2), -math.log(4)], abs=0.35)
    assert (sigma < 0.45).all()


def test_a_model_without_features_is_corrected_by_bound_and_size():
    kernels = {
        f"{bound}{n}": ClassPrice(10.0 + n, bound, 1.0, SPREAD) for n in range(6) for bound in ("memory", "serial")
    }
    measured = {d: p.predicted_us * (2 if p.bound == "memory" else 0.25) for d, p in kernels.items() if "5" not in d}
    mean, _ = Residual(kernels, measured).predict([kernels["memory5"], kernels["serial5"]])
    assert mean == pytest.approx([math.log(2), -math.log(4)], abs=0.35)


@pytest.mark.slow
def test_a_model_that_is_always_right_never_becomes_certain():
    kernels = {str(n): price(3.0 + n) for n in range(600)}  # more than are looked at
    measured = {digest: kernel.predicted_us for digest, kernel in kernels.items()}
    mean, sigma = Residual(kernels, measured).predict([price()])
    assert (mean[0], sigma[0]) == (pytest.approx(0.0, abs=1e-9), 0.05)


def test_the_order_of_measurements_does_not_matter():
    kernels = {str(n): price(3.0 + n, far_steps=float(n % 3)) for n in range(9)}
    measured = {digest: kernel.predicted_us * (1 + int(digest) % 2) for digest, kernel in kernels.items()}
    backwards = dict(reversed(measured.items()))
    found, same = (Residual(kernels, seen).predict([price(7.0)]) for seen in (measured, backwards))
    assert [array.tolist() for array in found] == [array.tolist() for array in same]


@pytest.mark.parametrize(("predicted", "measured"), [(0.0, 1.0), (1.0, math.inf), (1.0, 0.0), (-1.0, 1.0)])
def test_what_has_no_logarithm_is_not_counted(predicted, measured):
    prices = {"a": price(predicted), "b": price()}
    mean, sigma = Residual(prices, {"a": measured, "unpriced": 5.0}).predict([prices["b"]])
    assert (mean[0], sigma[0]) == (0.0, pytest.approx(2 * SPREAD))


def test_a_model_that_is_less_sure_of_a_kernel_gets_a_wider_spread_for_it():
    prices = {"sure": price(sigma=0.1), "unsure": price(sigma=0.5), "seen": price(11.0)}
    for measured in ({}, {"seen": 11.0}):
        found = optimistic(prices, measured, Residual(prices, measured), k=1.0)
        assert found["unsure"] < found["sure"] < 10.0


def test_optimistic_prices_are_measured_or_below_the_expected_and_never_below_the_floor():
    prices = {"known": price(), "guessed": price(), "floored": price(floor_us=9.0), "failed": price()}
    found = optimistic(prices, {"known": 12.0, "failed": math.inf}, Residual({}, {}), k=1.0)
    assert found == {
        "known": 12.0,
        "guessed": pytest.approx(10.0 * math.exp(-0.6)),
        "floored": 9.0,
        "failed": math.inf,
    }
    assert list(found) == list(prices)
    assert optimistic(prices, {}, Residual({}, {}), k=0.0)["guessed"] == pytest.approx(10.0)
