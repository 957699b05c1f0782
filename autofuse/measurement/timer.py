"""Timing a call: warm-up, repeats until the median is known well enough, and what differences mean nothing."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from autofuse.errors import MeasureError
from autofuse.lazydataclass import dataclass

Clock = Callable[[], int]
"""Monotonic nanoseconds."""
Call = Callable[[], object]


class Timekeeper(Protocol):
    """By whom calls are timed: a target, or the host."""

    @property
    def clock(self) -> Clock: ...
    @property
    def pause(self) -> Callable[[float], object]:
        """Lets so many seconds pass."""
        ...


@dataclass(frozen=True, slots=True)
class Host:
    """The host's own clock."""

    clock: Clock = time.perf_counter_ns
    pause: Callable[[float], object] = time.sleep


HOST = Host()

_NORMAL_95 = 1.96
_MAD_TO_SIGMA = 1.4826
"""For normal samples the standard deviation is this many median absolute deviations."""
_MEDIAN_SPREAD = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for normal samples."""
_REST_S = 0.15
_AA_SAMPLE_US = 50.0
_MIN_SAMPLE_US = 20.0
_PART = 1 / 64
"""Of warming up, that is worth a reading of the clock."""
_FEW_SAMPLES = 3
"""After so many, a call that is not worth timing is given up: one or two may have been disturbed."""
_LONG_CALL_US = 100_000.0
_LONGEST = 10
"""Times the cap of a time: after that, no more samples are waited for, however few there are."""


@dataclass(frozen=True, slots=True)
class TimingPolicy:
    """How one time is taken. All times in microseconds."""

    warmup_us: float = 2_000.0
    """Least time spent calling before anything counts; at least one call."""
    min_samples: int = 7
    max_samples: int = 200
    relative_interval: float = 0.02
    """Stop when the 95 % interval of the median is this narrow, relative to the median."""
    time_cap_us: float = 200_000.0
    """Stop after this time, whatever the interval; `min_samples` are taken first, within ten times this cap."""
    min_sample_us: float = _MIN_SAMPLE_US
    """Calls shorter than this are timed in batches, so that reading the clock does not count."""
    worth_us: float = math.inf
    """Stop after three samples if even the fastest of them takes longer: the call is not worth knowing better."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one call. Microseconds."""

    median_us: float
    low_us: float
    high_us: float
    """Ends of the 95 % interval of the median (order statistics)."""
    samples_us: tuple[float, ...]
    """Time per call, in the order in which the samples were taken."""
    pruned: bool
    """Whether it stopped because the call takes longer than `worth_us`."""

    @property
    def fastest_us(self) -> float:
        """The least sample: what else the machine does can only add to a call's time."""
        return min(self.samples_us)


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two. Raises MeasureError for no values."""
    if not values:
        raise MeasureError("no samples to take the median of")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median."""
    middle = median(values)
    return median([abs(value - middle) for value in values])


def median_error(values: Sequence[float]) -> float:
    """Standard error of the median, from the median absolute deviation; exact for normal samples."""
    return _MEDIAN_SPREAD * _MAD_TO_SIGMA * mad(values) / math.sqrt(len(values))


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics; no distribution is assumed (David & Nagaraja, 7.1).

    With fewer than 6 values there is no such interval, and the extremes are returned.
    """
    ordered = sorted(values)
    if not ordered:
        raise MeasureError("no samples to take an interval of")
    count = len(ordered)
    reach = _NORMAL_95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return ordered[low], ordered[max(high, low)]


def rest(of: Timekeeper = HOST) -> None:
    """Wait until threads that other libraries left spinning have gone to sleep.

    After a product the threads of OpenBLAS, and so NumPy's, wait in a loop for up to 2^28 cycles (its THREAD_TIMEOUT; a
    ninth of a second at 2.4 GHz) and take a CPU from whatever runs meanwhile: a plan on two threads takes twice as
    long.
    """
    of.pause(_REST_S)


def measure(call: Call, policy: TimingPolicy | None = None, clock: Clock = time.perf_counter_ns) -> Timing:
    """Time `call()` as `policy` says (by default `TimingPolicy()`). What `call` raises passes through."""
    policy = policy or TimingPolicy()
    batch = _warm_up(call, policy, clock)
    samples: list[float] = []
    start = clock()
    while not _done(samples, policy, (clock() - start) / 1e3):
        samples.append(_sample(call, batch, clock))
    low, high = median_interval(samples)
    pruned = _worthless(samples, policy, (clock() - start) / 1e3)
    return Timing(median(samples), low, high, tuple(samples), pruned)


def _warm_up(call: Call, policy: TimingPolicy, clock: Clock) -> int:
    """Call for a while; the calls per sample that the fastest of them asks for.

    Short calls come in ever larger batches: a clock may need much longer for a reading than they take.
    """
    start = now = clock()
    fastest, batch = math.inf, 1
    while True:
        for _ in range(batch):
            call()
        before, now = now, clock()
        fastest = min(fastest, (now - before) / 1e3 / batch)
        if (now - start) / 1e3 >= policy.warmup_us:
            break
        if (now - before) / 1e3 < _PART * policy.warmup_us:
            batch *= 2
    if fastest >= policy.min_sample_us:
        return 1
    return math.ceil(policy.min_sample_us / max(fastest, 1e-3))


def rough_us(call: Call, clock: Clock = time.perf_counter_ns) -> float:
    """Roughly what a call takes, in microseconds: the least of a few calls, or of one that is long."""
    first = _sample(call, 1, clock)
    return first if first > _LONG_CALL_US else min(first, *(_sample(call, 1, clock) for _ in range(_FEW_SAMPLES)))


def turn_of(about_us: float, calls_us: Sequence[float]) -> tuple[int, int]:
    """Calls per batch and batches per turn, for turns of about `about_us`: the same for all that are to be compared.

    `calls_us`: roughly what a call of each takes. The least of more samples is less, so nobody may have more of them
    than others. The fastest one's turn is as long as asked for, the slowest one's not more than ten times that if a
    batch takes no longer. Short calls are timed in batches, so that reading the clock does not count.
    """
    least, most = max(min(calls_us), 1e-3), max(*calls_us, 1e-3)
    batch = max(1, math.ceil(min(about_us, _MIN_SAMPLE_US) / least))
    return batch, max(1, round(min(about_us / (batch * least), _LONGEST * about_us / (batch * most))))


def fastest_call(call: Call, batch: int, samples: int, clock: Clock = time.perf_counter_ns) -> float:
    """The least time of a call, in microseconds, of so many batches of calls."""
    return min(_sample(call, batch, clock) for _ in range(samples))


def _sample(call: Call, batch: int, clock: Clock) -> float:
    before = clock()
    for _ in range(batch):
        call()
    return (clock() - before) / 1e3 / batch


def _done(samples: list[float], policy: TimingPolicy, spent_us: float) -> bool:
    if not samples:
        return False
    if _worthless(samples, policy, spent_us):
        return True
    if len(samples) < policy.min_samples:
        return spent_us >= _LONGEST * policy.time_cap_us
    return spent_us >= policy.time_cap_us or len(samples) >= policy.max_samples or _settled(samples, policy)


def _worthless(samples: list[float], policy: TimingPolicy, spent_us: float) -> bool:
    enough = len(samples) >= _FEW_SAMPLES or spent_us >= _LONGEST * policy.time_cap_us
    return enough and min(samples) > policy.worth_us


def _settled(samples: list[float], policy: TimingPolicy) -> bool:
    if len(samples) < policy.min_samples:
        return False
    low, high = median_interval(samples)
    return high - low <= policy.relative_interval * median(samples)


def noise_floor(call: Call, blocks: int = 20, *, seed: int = 0, clock: Clock = time.perf_counter_ns) -> float:
    """Microseconds below which a difference means nothing here: an A/A run's apparent gain plus 3 sigma.

    Each block times the call twice and calls one of the two the first, in shuffled order: the gain of the second is
    taken over all blocks, and over those of either order alone. Raises MeasureError for fewer than 6 blocks.
    """
    if blocks < 6:
        raise MeasureError(f"blocks={blocks}: at least 6 are needed to tell a gain from noise")
    batch = _warm_up(call, TimingPolicy(warmup_us=_AA_SAMPLE_US, min_sample_us=_AA_SAMPLE_US), clock)
    orders = [index % 2 == 0 for index in range(blocks)]
    random.Random(seed).shuffle(orders)
    gains: list[float] = []
    for in_order in orders:
        one, other = _sample(call, batch, clock), _sample(call, batch, clock)
        gains.append(one - other if in_order else other - one)
    apart = [[gain for gain, order in zip(gains, orders, strict=True) if order == which] for which in (True, False)]
    return max(abs(median(part)) for part in (gains, *apart)) + 3 * median_error(gains)
