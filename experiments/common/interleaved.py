"""Interleaved timing of several ways to compute the same thing, and the statistics drawn from it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.measurement.timer import rest

Samples = list[list[float]]
"""Microseconds of each call, by block."""

# Largest accepted |got - expected| / (|expected| + rms(expected)). The orders of the sums differ between NumPy and a
# plan; 2e-4 is the rounding of a sum of 10^7 f32 terms with random signs, whose total is small beside its terms.
TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-2, "float32": 2e-4, "float64": 1e-9}
# Integers come from rounding (bytes), comparisons or argmin, where a last-bit difference may flip a value on an edge.
FLIPPED_SHARE = 1e-3
_MOST_ALIKE = 4
"""Times the calls that the slowest variant has time for: no more where all get as many."""


def interleave(
    variants: Mapping[str, Callable[[], Any]],
    blocks: int,
    block_seconds: float,
    seed: int,
    *,
    resting: bool = False,
    alike: bool = False,
) -> dict[str, Samples]:
    """Time each variant in `blocks` blocks, whose order within each repetition is drawn anew.

    `alike`: every variant is called as often as the others in a block, so that the fastest calls of blocks compare.

    `resting`: before every block, threads that the one before may have left spinning go to sleep, as those of NumPy's
    BLAS do; without it only before the first.

    A block runs its variant once untimed (so that every variant finds its own data and code warm), then at least
    three times, and until about `block_seconds` are spent. The results of a call are dropped before the next call.
    """
    rng = np.random.default_rng(seed)
    calls = {name: _calls_per_block(call, block_seconds) for name, call in variants.items()}
    if alike:
        calls = dict.fromkeys(calls, min(max(calls.values()), _MOST_ALIKE * min(calls.values())))
    samples: dict[str, Samples] = {name: [] for name in variants}
    names = list(variants)
    collecting = gc.isenabled()
    gc.disable()
    rest()
    try:
        for _ in range(blocks):
            for position in rng.permutation(len(names)):
                name = names[position]
                if resting:
                    rest()
                samples[name].append(_block(variants[name], calls[name]))
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return samples


def _calls_per_block(call: Callable[[], Any], block_seconds: float) -> int:
    call()
    start = time.perf_counter()
    call()
    elapsed = time.perf_counter() - start
    return int(min(200, max(3, np.ceil(block_seconds / max(elapsed, 1e-7)))))


def _block(call: Callable[[], Any], calls: int) -> list[float]:
    call()
    times: list[float] = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return times


def mismatch(expected: Sequence[NDArray[Any]], got: Sequence[NDArray[Any]]) -> str | None:
    """What is wrong with `got`, or None where it agrees with NumPy's answer within the dtype's tolerance."""
    if len(expected) != len(got):
        return f"{len(got)} arrays where NumPy gives {len(expected)}"
    for index, (right, answer) in enumerate(zip(expected, got, strict=True)):
        if (right.shape, right.dtype) != (answer.shape, answer.dtype):
            return f"array {index} is {answer.dtype}{list(answer.shape)}, NumPy's {right.dtype}{list(right.shape)}"
        fault = _float_fault(right, answer) if right.dtype.name in TOLERANCE else _exact_fault(right, answer)
        if fault:
            return f"array {index}: {fault}"
    return None


def _float_fault(right: NDArray[Any], answer: NDArray[Any]) -> str | None:
    a, b = right.astype(np.float64), answer.astype(np.float64)
    scale = np.abs(a) + np.sqrt(np.mean(a * a))
    error = np.abs(a - b) / np.where(scale > 0.0, scale, 1.0)
    worst, allowed = float(np.max(error, initial=0.0)), TOLERANCE[right.dtype.name]
    return None if worst <= allowed else f"relative error {worst:.1e}, allowed {allowed:.0e}"


def _exact_fault(right: NDArray[Any], answer: NDArray[Any]) -> str | None:
    differs = right != answer
    if right.dtype.name == "uint8" and np.any(np.abs(right.astype(np.int16) - answer.astype(np.int16)) > 1):
        return "bytes differ by more than one"
    share = float(np.mean(differs)) if differs.size else 0.0
    return None if share <= FLIPPED_SHARE else f"{share:.1%} of the values differ"


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster one variant is than another."""

    value: float
    """Median over rounds of the median over blocks of the paired ratios."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end."""

    def __str__(self) -> str:
        """For a table."""
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def beyond(self, noise: float) -> bool:
        """Whether the whole interval lies further from 1 than `noise`, a share such as 0.02."""
        return self.low > 1.0 + noise or self.high < 1.0 / (1.0 + noise)


def fastest_calls(blocks: Samples) -> Samples:
    """Of each block the fastest call alone.

    What else a machine does can only add to a call's time, and does so for seconds on shared ones: the fastest calls of
    blocks differ between repetitions half as much as their medians.
    """
    return [[min(block)] for block in blocks]


def block_medians(rounds: Sequence[Samples]) -> NDArray[Any]:
    """Median microseconds of each block, shape [rounds, blocks]; rounds must have equally many blocks."""
    return np.array([[np.median(block) for block in blocks] for blocks in rounds])


def ratio(slower: Sequence[Samples], faster: Sequence[Samples], seed: int = 0, draws: int = 2000) -> Ratio:
    """Times of `slower` over times of `faster`, paired by block.

    The interval is a bootstrap that redraws whole rounds (processes) first and blocks within them second, since
    processes differ by more than blocks do (Kalibera and Jones, ISMM 2013).
    """
    paired = np.log(block_medians(slower) / block_medians(faster))
    rounds, blocks = paired.shape
    rng = np.random.default_rng(seed)
    which_round = rng.integers(rounds, size=(draws, rounds, 1))
    which_block = rng.integers(blocks, size=(draws, rounds, blocks))
    drawn = np.median(np.median(paired[which_round, which_block], axis=2), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Ratio(float(np.exp(np.median(np.median(paired, axis=1)))), float(np.exp(low)), float(np.exp(high)))


def noise_floor(one: Sequence[Samples], same: Sequence[Samples]) -> float:
    """The largest change that two timings of the same thing show, as a share: below it nothing is claimed."""
    found = ratio(one, same)
    return max(found.high, 1.0 / found.low) - 1.0
