"""The race of whole plans: who is out beyond doubt, when it is decided, who wins."""

import numpy as np
import pytest

from autofuse.measurement.racing import contenders, fastest, is_decided, noise_floor, paired_gain, ratios


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


def test_in_doubt_the_better_of_the_samples_counts():
    noisy = [samples(95.0, 0.1, seed=1), samples(100.0, 0.1, seed=2)]
    assert contenders(noisy) == [0, 1]
    assert not is_decided(noisy)
    assert fastest(noisy) == 0


def test_who_is_slower_beyond_doubt_is_out_and_stays_out():
    found = [samples(100.0, 0.01, seed=1), samples(80.0, 0.01, seed=2), samples(80.1, 0.01, seed=3)]
    assert contenders(found) == [1, 2]
    dropped = [found[0][:15], *found[1:]]
    assert contenders(dropped) == [1, 2]
    assert fastest(dropped) == 2


def test_who_takes_several_times_as_long_is_out_at_once():
    found = [samples(300.0, blocks=5), samples(80.0, blocks=5), samples(90.0, blocks=5)]
    assert contenders(found) == [1, 2]


def test_ratios_are_of_the_blocks_that_both_were_in():
    assert ratios([[20.0, 40.0], [10.0, 20.0, 1.0]], to=1) == [2.0, 1.0]


def test_few_blocks_leave_everybody_else_in():
    found = [samples(100.0, blocks=10), samples(80.0, blocks=10)]
    assert contenders(found) == [0, 1]
    assert not is_decided(found)
    assert fastest(found) == 1


def test_a_race_is_decided_when_the_rest_are_alike():
    assert is_decided([samples(100.0)])
    assert is_decided([samples(100.0, 0.002, seed=1), samples(100.2, 0.002, seed=2)])
    assert not is_decided([samples(100.0, 0.05, seed=1), samples(100.2, 0.05, seed=2)])
    assert not is_decided([samples(100.0), samples(80.0)])  # until the slow one is dropped
    assert is_decided([samples(100.0)[:15], samples(80.0)])


def test_early_luck_of_one_who_was_dropped_does_not_count():
    """Its samples are from a time when the machine was quiet."""
    lucky, steady = samples(70.0, blocks=15), samples(60.0, blocks=15) + samples(90.0, blocks=30)
    assert contenders([lucky, steady]) == [1]
    assert fastest([lucky, steady]) == 1


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


def test_of_few_blocks_the_largest_difference_is_the_noise():
    assert noise_floor([100.0, 101.0, 99.0], [100.0, 101.0, 104.0]) == 5.0
