import random

import pytest

from autofuse.errors import MeasureError
from autofuse.measurement.timer import (
    TimingPolicy,
    fastest_call,
    mad,
    measure,
    median,
    median_interval,
    noise_floor,
    rough_us,
    turn_of,
)


class FakeTime:
    """A clock that only calls move, so that tests of timing do not depend on time."""

    def __init__(self) -> None:
        self.now_ns = 0

    def clock(self) -> int:
        return self.now_ns

    def call(self, *durations_us: float):
        """A call that takes these times in turn, the last one for ever."""
        left = list(durations_us)

        def run() -> None:
            self.now_ns += int(1e3 * (left.pop(0) if len(left) > 1 else left[0]))

        return run


def test_steady_call_takes_the_fewest_samples():
    fake = FakeTime()
    timing = measure(fake.call(100.0), TimingPolicy(min_samples=9), clock=fake.clock)
    assert timing.median_us == timing.low_us == timing.high_us == 100.0
    assert len(timing.samples_us) == 9


def test_slow_first_calls_are_warmed_away():
    fake = FakeTime()
    timing = measure(fake.call(5_000.0, 900.0, 100.0), TimingPolicy(warmup_us=6_000.0), clock=fake.clock)
    assert timing.samples_us == (100.0,) * 7


def test_short_calls_are_batched():
    fake = FakeTime()
    timing = measure(fake.call(0.5), TimingPolicy(min_sample_us=20.0), clock=fake.clock)
    assert fake.now_ns > 7 * 40 * 500  # seven samples of forty calls
    assert timing.median_us == pytest.approx(0.5)


def test_a_noisy_call_stops_at_the_sample_limit():
    fake = FakeTime()
    noise = random.Random(1)
    call = fake.call(*(noise.choice([100.0, 300.0]) for _ in range(500)))
    timing = measure(call, TimingPolicy(max_samples=50, time_cap_us=1e9), clock=fake.clock)
    assert len(timing.samples_us) == 50
    assert timing.low_us <= timing.median_us <= timing.high_us


def test_time_cap_ends_long_calls():
    fake = FakeTime()
    timing = measure(fake.call(1e6, 2e6), TimingPolicy(time_cap_us=1e6), clock=fake.clock)
    assert len(timing.samples_us) == 5  # ten times the cap, before the seven samples were taken


def test_statistics_of_known_samples():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert mad([1.0, 2.0, 3.0, 100.0, 2.0]) == 1.0
    with pytest.raises(MeasureError, match="no samples"):
        median([])


def test_median_interval_covers_the_true_median_as_often_as_it_says():
    source = random.Random(7)
    inside = 0
    for _ in range(1000):
        low, high = median_interval([source.expovariate(1.0) for _ in range(25)])
        inside += low <= 0.6931 <= high
    assert inside >= 930  # 95 %, less three standard errors of 1000 trials


def test_noise_floor_of_a_steady_machine_is_zero():
    fake = FakeTime()
    assert noise_floor(fake.call(100.0), clock=fake.clock) == 0.0


def test_the_noise_floor_is_above_what_an_unsteady_machine_shows_as_a_gain():
    fake, noise = FakeTime(), random.Random(3)
    times = [100.0 + noise.gauss(0, 10) for _ in range(60)]
    assert 2.0 < noise_floor(fake.call(*times), clock=fake.clock) < 30.0


def test_a_machine_that_favours_one_turn_of_two_has_a_floor():
    fake = FakeTime()
    assert noise_floor(fake.call(100.0, *[100.0, 90.0] * 30), clock=fake.clock) >= 10.0


def test_too_few_blocks_are_refused():
    fake = FakeTime()
    with pytest.raises(MeasureError, match="blocks=2"):
        noise_floor(fake.call(1.0), 2, clock=fake.clock)


def test_a_call_that_is_not_worth_timing_is_given_up_after_three_samples():
    fake = FakeTime()
    policy = TimingPolicy(worth_us=99.0)
    given_up = measure(fake.call(100.0), policy, clock=fake.clock)
    assert given_up.samples_us == (100.0,) * 3
    assert given_up.pruned
    timed = measure(fake.call(98.0), policy, clock=fake.clock)
    assert len(timed.samples_us) == 7
    assert not timed.pruned


def test_a_very_long_call_is_given_up_too():
    """It never comes to three samples."""
    fake = FakeTime()
    policy = TimingPolicy(worth_us=300_000.0)
    given_up = measure(fake.call(1_000_000.0), policy, clock=fake.clock)
    assert len(given_up.samples_us) < 3
    assert given_up.pruned
    timed = measure(fake.call(200_000.0), policy, clock=fake.clock)
    assert not timed.pruned


def test_one_fast_sample_of_the_first_three_is_reason_to_go_on():
    fake = FakeTime()
    call = fake.call(2_500.0, 100.0, 100.0, 50.0, 100.0)  # the first one warms up
    timing = measure(call, TimingPolicy(worth_us=60.0), clock=fake.clock)
    assert len(timing.samples_us) >= 7
    assert not timing.pruned


def test_the_fastest_of_as_many_calls_as_fit_is_kept():
    fake = FakeTime()
    assert fastest_call(fake.call(100.0, 90.0, 110.0, 95.0, 10.0), 1, 4, clock=fake.clock) == 90.0


def test_short_calls_are_timed_in_batches():
    fake = FakeTime()
    assert fastest_call(fake.call(*[1.0] * 10, *[0.5] * 10, *[2.0] * 20), 10, 2, clock=fake.clock) == 0.5


@pytest.mark.parametrize(
    ("calls_us", "turn"),
    [
        ([2.0], (10, 100)),  # short: in batches that last long enough
        ([100.0, 120.0], (1, 20)),
        ([5000.0, 9000.0], (1, 1)),  # long: one call
        ([100.0, 50_000.0], (1, 1)),  # the slowest has no turn of hours
        ([100.0, 2000.0], (1, 10)),
        ([0.0], (20_000, 100)),
    ],
)
def test_turns_are_the_same_for_all_that_are_compared(calls_us, turn):
    assert turn_of(2000.0, calls_us) == turn


def test_what_a_call_takes_is_found_by_few_calls_or_by_one_long_one():
    fake = FakeTime()
    assert rough_us(fake.call(50.0, 4.0, 3.0, 5.0, 1.0), clock=fake.clock) == 3.0
    assert rough_us(fake.call(200_000.0, 1.0), clock=fake.clock) == 200_000.0
