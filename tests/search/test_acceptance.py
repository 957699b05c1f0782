"""The decision between whole plans: paired, beyond doubt, ties to the last."""

import numpy as np
import pytest

from autofuse.search.acceptance import fastest, noise_floor, paired_gain


def samples(us, spread=0.0, seed=0, drift=0.0, blocks=25):
    """Times around `us`; `drift` is common to all plans that are sampled with one seed of their own."""
    common = np.random.default_rng(99).standard_normal(blocks) * drift
    own = np.random.default_rng(seed).standard_normal(blocks) * spread
    return (us * (1 + common + own)).tolist()


def test_the_faster_plan_is_kept():
    assert fastest([samples(100.0), samples(90.0), samples(80.0)]) == 2
    assert fastest([samples(100.0), samples(70.0), samples(80.0)]) == 1
    assert fastest([samples(60.0), samples(70.0), samples(80.0)]) == 0


def test_ties_go_to_the_last():
    assert fastest([samples(100.0), samples(100.0)]) == 1
    assert fastest([samples(99.5), samples(100.0)]) == 1  # less than one per cent


def test_a_gain_within_the_noise_does_not_count():
    assert fastest([samples(97.0, 0.2, seed=1), samples(100.0, 0.2, seed=2)]) == 1


def test_drift_that_hits_all_plans_alike_hides_nothing():
    slow, fast = samples(100.0, drift=0.3), samples(97.0, drift=0.3)
    assert fastest([fast, slow]) == 0
    assert paired_gain(slow, fast)[0] == pytest.approx(3.0, rel=0.2)


def test_one_plan_is_kept():
    assert fastest([samples(5.0)]) == 0


def test_the_noise_floor_covers_what_two_runs_of_one_plan_differ_by():
    first, second = samples(100.0, 0.05, seed=1), samples(100.0, 0.05, seed=2)
    assert noise_floor(first, first) == 0.0
    assert noise_floor(first, second) >= abs(paired_gain(first, second)[0])
    assert noise_floor(first, second) < 20.0
