"""Which of several whole plans to keep, from interleaved samples of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.measurement.timer import median, median_error

LEAST_GAIN = 0.01
"""Relative gain that is worth a decision."""
SIGMAS = 3.0
"""Standard errors that a gain must exceed to count."""


def paired_gain(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float]:
    """By how much the second plan is faster, in microseconds, and the standard error of that.

    The n-th samples of both were taken in one block, so that what slows the machine down for a while hits both.
    """
    gains = [a - b for a, b in zip(slow, fast, strict=True)]
    return median(gains), median_error(gains)


def fastest(samples: Sequence[Sequence[float]]) -> int:
    """The number of the plan to keep: the last one, unless another is faster by at least 1 % beyond 3 sigma.

    Plans stand in the order in which they should be preferred, the best last. Of those that are faster beyond doubt,
    the fastest is taken.
    """
    last = samples[-1]
    best = len(samples) - 1
    for number, other in enumerate(samples[:-1]):
        gain, error = paired_gain(last, other)
        beyond_doubt = gain - SIGMAS * error > LEAST_GAIN * median(last)
        if beyond_doubt and median(other) < median(samples[best]):
            best = number
    return best


def noise_floor(first: Sequence[float], second: Sequence[float]) -> float:
    """What an A/A run, two runs of one plan, shows as a gain: differences below this mean nothing here."""
    gain, error = paired_gain(first, second)
    return abs(gain) + SIGMAS * error
