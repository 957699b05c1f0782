"""Which of several whole plans is the fastest, from samples of all of them taken in turns.

The n-th samples of all plans were taken in one block, one right after another, so that what slows the machine down for
a while meets all of them. A plan that is slower beyond doubt is dropped: it has fewer samples than the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.lazydataclass import asdict, dataclass
from autofuse.measurement.timer import median, median_error

LEAST_GAIN = 0.01
"""Relative gain that is worth a decision."""
SIGMAS = 3.0
"""Standard errors that a gain must exceed to be beyond doubt."""
MOST_BLOCKS, TURN_US = 150, 2000.0
"""Of a race: blocks, and microseconds of the fastest plan's turn in each."""
SAME_BLOCKS = 31
"""Of a race of a plan with itself, which nothing but the time ends early: it shows the noise of the machine."""
LEAST_BLOCKS = 3
"""Fewer samples of a plan say nothing. Only plans that take long have so few: a race is a second or more."""
FEW_BLOCKS = 7
"""With fewer, a standard error says nothing: gains are taken to be off by as much as the largest of them."""
SURE_BLOCKS, SURE_S = 15, 0.5
"""Of fewer blocks, or of less time, the spread may look small by luck."""
NO_TIME = "there was no time to run it"
"""What is wrong with a plan that a race had no time for."""
_HOPELESS = 3.0
"""Times the leader's slowest sample: a plan whose fastest takes longer is out after a few blocks."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How whole plans are timed against one another."""

    seed: int
    """Of the order of plans in each block."""
    seconds: float
    """A race ends after so long, building the plans not counted, but not before `LEAST_BLOCKS`."""
    blocks: int = MOST_BLOCKS
    """The most there are; they end when more cannot decide which plan is the fastest."""
    turn_us: float = TURN_US
    """Time of the fastest plan's turn in a block."""
    decides: bool = True
    """Whether plans are dropped, and blocks end early, at all."""
    replica: int = 0
    """Races of another number than the one before run in a process of their own: where a process has its memory may
    make one plan faster and another slower, by some percent, for as long as it lives."""
    limit_s: float | None = None
    """Most seconds for all of it, building and checking the plans included; None: as long as it takes. Where that is
    too little, the last plans are run, and no block is begun that would end later; the very last plan is run in any
    case."""

    def stored(self) -> dict[str, float]:
        """What decides a race, by the names that records have for it; `limit_s` cut nothing short."""
        names = {"replica": "sitting"}
        return {names.get(name, name): value for name, value in asdict(self).items() if name != "limit_s"}


def paired_gain(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float]:
    """By how much the second plan is faster, in microseconds, and the standard error of that.

    Over the blocks in which both ran.
    """
    gains = [a - b for a, b in zip(slow, fast, strict=False)]
    return median(gains), median_error(gains)


def ratios(samples: Sequence[Sequence[float]], to: int) -> list[float]:
    """How many times as long each plan takes as the one numbered `to`, over the blocks in which both ran.

    Times themselves do not compare: a plan that was dropped early may have met no quiet moment.
    """
    return [median([a / b for a, b in zip(own, samples[to], strict=False)]) for own in samples]


def contenders(samples: Sequence[Sequence[float]]) -> list[int]:
    """The numbers of the plans that may yet be the fastest: the leader, and those that it does not beat beyond doubt.

    Beyond doubt is by 1 % and three standard errors, after some blocks, or several times as slow at any time.
    """
    leader, running = _leader(samples)
    hopeless_us = _HOPELESS * max(samples[leader])
    running = [number for number in running if number == leader or min(samples[number]) <= hopeless_us]
    if len(samples[leader]) < SURE_BLOCKS:
        return running
    return [number for number in running if number == leader or not _beats(samples[leader], samples[number])]


def is_decided(samples: Sequence[Sequence[float]]) -> bool:
    """Whether no further block can matter: the contenders are known to be within 1 % of each other's time."""
    leader, running = _leader(samples)
    if len(samples[leader]) < SURE_BLOCKS:
        return False
    return all(_is_alike(samples[leader], samples[number]) for number in running if number != leader)


def fastest(samples: Sequence[Sequence[float]]) -> int:
    """The number of the plan to keep: the last one within 1 % of the fastest, as far as the samples tell.

    Plans stand in the order in which they should be preferred, the best last.
    """
    leader, _ = _leader(samples)
    worth = LEAST_GAIN * median(samples[leader])
    near = [number for number in contenders(samples) if paired_gain(samples[number], samples[leader])[0] <= worth]
    return near[-1]


def noise_floor(first: Sequence[float], second: Sequence[float]) -> float:
    """What an A/A race, two runs of one plan, shows as a gain: differences below this mean nothing here."""
    gains = [abs(a - b) for a, b in zip(first, second, strict=False)]
    if len(gains) < FEW_BLOCKS:
        return max(gains)
    gain, error = paired_gain(first, second)
    return abs(gain) + SIGMAS * error


def _leader(samples: Sequence[Sequence[float]]) -> tuple[int, list[int]]:
    """The plan with the least median, and all that it is compared with: those that were not dropped."""
    most = max(len(own) for own in samples)
    running = [number for number, own in enumerate(samples) if len(own) == most]
    return min(running, key=lambda number: median(samples[number])), running


def _beats(fast: Sequence[float], slow: Sequence[float]) -> bool:
    gain, error = paired_gain(slow, fast)
    return gain - SIGMAS * error > LEAST_GAIN * median(fast)


def _is_alike(one: Sequence[float], other: Sequence[float]) -> bool:
    return noise_floor(one, other) <= LEAST_GAIN * median(one)
