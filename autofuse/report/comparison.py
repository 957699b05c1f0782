"""Calls timed side by side: blocks in random order, so that drift of the machine meets all of them alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.lazydataclass import asdict, dataclass
from autofuse.measurement.timer import (
    HOST,
    Timekeeper,
    fastest_call,
    median,
    median_interval,
    rest,
    rough_us,
    turn_of,
)
from autofuse.report.quantities import microseconds, table

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the things compared."""

    name: str
    call: Call
    kernels: int | None = None
    predicted_us: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One contender's result; microseconds."""

    name: str
    kernels: int | None
    predicted_us: float | None
    us: float
    """Median over blocks of the fastest call of each."""
    low_us: float
    """Ends of the 95 % interval of that median."""
    high_us: float
    speedup: float
    """Time of the reference over this one's, paired by block: above 1 is faster."""
    speedup_low: float
    """Ends of its 95 % interval."""
    speedup_high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A whole comparison."""

    reference: str
    """Name of the contender that the speed-ups refer to."""
    rows: tuple[Row, ...]
    noise: float
    """Share by which one contender differs from itself, timed twice: smaller differences mean nothing."""
    blocks: int

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare(
    contenders: Sequence[Contender],
    blocks: int = 15,
    block_us: float = 20_000.0,
    seed: int = 0,
    *,
    by: Timekeeper = HOST,
) -> Comparison:
    """Time all contenders; the first one is the reference. The last one is timed twice for the noise."""
    again = f"{contenders[-1].name} again"
    calls = {contender.name: contender.call for contender in contenders} | {again: contenders[-1].call}
    samples = interleave(calls, blocks, block_us, seed, by=by)
    reference = samples[contenders[0].name]
    rows = tuple(_row(contender, samples[contender.name], reference) for contender in contenders)
    return Comparison(contenders[0].name, rows, _noise(samples[contenders[-1].name], samples[again]), blocks)


def interleave(
    calls: Mapping[str, Call],
    blocks: int,
    block_us: float,
    seed: int,
    *,
    by: Timekeeper = HOST,
    resting: bool = True,
) -> dict[str, list[float]]:
    """Microseconds of the fastest call, by block; within a block each has its turn, in random order.

    A turn is one untimed call, then as many as fit into about `block_us` of the fastest one, the same number for all:
    what else the machine does can only add to them. What one turn leaves behind has settled before the next: threads of
    NumPy's BLAS that still spin would make whoever follows look slow. `resting=False` saves the wait for that.
    """
    rng = np.random.default_rng(seed)
    names = list(calls)
    batch, repeats = turn_of(block_us, [rough_us(calls[name], by.clock) for name in names])
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(blocks):
        for number in rng.permutation(len(names)):
            name = names[number]
            if resting:
                rest(by)
            calls[name]()
            samples[name].append(fastest_call(calls[name], batch, repeats, by.clock))
    return samples


def _row(contender: Contender, own: Sequence[float], reference: Sequence[float]) -> Row:
    ratios = [theirs / ours for theirs, ours in zip(reference, own, strict=True)]
    times, gains = median_interval(own), median_interval(ratios)
    return Row(contender.name, contender.kernels, contender.predicted_us, median(own), *times, median(ratios), *gains)


def _noise(one: Sequence[float], same: Sequence[float]) -> float:
    """The largest share in the 95 % interval of the A/A ratio."""
    low, high = median_interval([math.log(a / b) for a, b in zip(one, same, strict=True)])
    return math.exp(max(abs(low), abs(high))) - 1.0


def render(comparison: Comparison) -> str:
    """The comparison as a table."""
    rows = [
        (
            row.name,
            "-" if row.kernels is None else str(row.kernels),
            "-" if row.predicted_us is None else microseconds(row.predicted_us),
            microseconds(row.us),
            f"{microseconds(row.low_us)} .. {microseconds(row.high_us)}",
            f"{row.speedup:.2f} [{row.speedup_low:.2f}, {row.speedup_high:.2f}]",
        )
        for row in comparison.rows
    ]
    heading = ("", "kernels", "predicted", "measured", "95 % interval", f"times as fast as {comparison.reference}")
    return table(heading, rows) + f"noise floor {comparison.noise:.1%} over {comparison.blocks} blocks\n"
