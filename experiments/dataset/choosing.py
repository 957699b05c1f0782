"""Which kernels of a program are measured, under which schedules, on how many threads, and how often."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from programs import Made

from autofuse.api.partitioning import make_context
from autofuse.errors import AutofuseError
from autofuse.fusion.candidate import work_of
from autofuse.fusion.kind import kind_of
from autofuse.lower.decisions import Choices
from autofuse.lower.schedule import Schedule
from autofuse.measurement.sources import kernel_text
from autofuse.search.space.candidates import Bounds
from autofuse.targets.base import Target

RANGE_US = (1.0, 50_000.0)
"""Predicted times that are looked for."""
BINS = 16
"""Equal parts of that range, on a logarithmic scale."""
SWEPT = 7
"""Schedules other than the default one that are tried for some kernels."""
_SWEEP_SHARE = 0.5
"""Of the records under default schedules: how many there are under others."""
_BOTH = 0.2
"""Of kernels: measured on one and on all threads; the others on either."""
_OFTEN = 0.1
"""Of programs: measured in four passes, in place of two."""
_PASSES, _MANY_PASSES = 2, 4
_SLACK = 12
"""Kernels that a bin may be ahead of the median one."""
_AHEAD = 1.25
"""Times the median, the same."""
_MOST_SCHEDULES = 4096
WHOLE = 20
"""Programs of which every kernel is measured: the first workloads that are small enough."""
MOST_WHOLE = 150
"""Kernels of a space that is measured whole."""
BOUNDS = Bounds(classes=120, seconds=math.inf)
"""Of the spaces that kernels are chosen from."""


@dataclass(frozen=True)
class Chosen:
    """A kernel to be measured under a schedule."""

    kernel: str
    """Structural digest."""
    nodes: tuple[str, ...]
    outputs: tuple[str, ...]
    text: str
    kind: str
    schedule: Mapping[str, Any]
    threads: int | None
    """Workers; None where the target has no such number."""
    passes: int
    bin: int | None
    """The part of the range that its kernel's predicted time is in, under the default schedule and on all threads."""


@dataclass
class Balance:
    """What was chosen so far: what there is less of is looked for."""

    bins: Counter[int] = field(default_factory=Counter[int])
    """Kernels under the default schedule, by part of the range."""
    default: int = 0
    swept: int = 0
    seen: set[str] = field(default_factory=set[str])
    """Kernels that were chosen."""

    def note(self, kernels: Iterable[Chosen]) -> None:
        """Count what was chosen."""
        for one in kernels:
            self.count(one.kernel, one.schedule, one.bin)

    def count(self, kernel: str, schedule: Mapping[str, Any], bin_: int | None) -> None:
        """Count a kernel under a schedule."""
        self.seen.add(kernel)
        if schedule:
            self.swept += 1
            return
        self.default += 1
        if bin_ is not None:
            self.bins[bin_] += 1

    def takes(self, bin_: int | None) -> bool:
        """Whether a kernel of a bin is wanted."""
        if bin_ is None:
            return False
        median = sorted(self.bins[number] for number in range(BINS))[BINS // 2]
        return self.bins[bin_] <= _AHEAD * median + _SLACK

    def sweeps(self) -> bool:
        """Whether there are too few schedules other than the default one."""
        return self.swept < _SWEEP_SHARE * self.default


def bin_of(us: float) -> int | None:
    """The part of the range that a predicted time is in; None for none."""
    low, high = map(math.log, RANGE_US)
    place = (math.log(max(us, 1e-9)) - low) / (high - low)
    return int(place * BINS) if 0 <= place < 1 else None


def chosen(
    made: Made, targets: Sequence[Target], balance: Balance, rng: np.random.Generator, most: int, whole: bool
) -> tuple[list[Chosen], bool]:
    """The kernels of a program to be measured, and whether these are all that it has.

    `targets`: for one thread and for all, or a single one. `most`: kernels under the default schedule; all of them on
    all threads where `whole`. Notes in the balance what it chooses.
    """
    context = make_context(made.program, targets[-1], bounds=BOUNDS)
    prices = context.prices(context.space)
    first = {digest: candidates[0] for digest, candidates in context.space.classes.items()}
    texts = {digest: kernel_text(candidate.kernel) for digest, candidate in first.items()}
    whole = whole and len(first) <= MOST_WHOLE and all(texts.values())
    order = [list(first)[number] for number in rng.permutation(len(first))]
    order.sort(key=lambda digest: balance.bins[bin_of(prices[digest].predicted_us) or 0])
    found: list[Chosen] = []
    passes = _MANY_PASSES if rng.random() < _OFTEN else _PASSES
    taken = 0
    for digest in order:
        candidate, bin_ = first[digest], bin_of(prices[digest].predicted_us)
        text = texts[digest]
        wanted = whole or (taken < most and work_of(digest) not in balance.seen and balance.takes(bin_))
        if not text or not wanted:
            continue
        taken += 1
        choices = targets[-1].limits.decisions.choices(candidate.program)
        schedules = [Schedule(), *(others(choices, rng) if choices and balance.sweeps() else ())]
        some = [
            Chosen(
                kernel=work_of(digest),
                nodes=tuple(node.name for node in candidate.kernel.nodes),
                outputs=tuple(value.name for value in candidate.outputs),
                text=text,
                kind=kind_of(candidate.kernel),
                schedule=schedule.to_json(),
                threads=threads_of(target, targets),
                passes=passes,
                bin=bin_,
            )
            for target in _targets(targets, rng, whole)
            for schedule in schedules
        ]
        balance.note(some)
        found += some
    return found, whole


def _targets(targets: Sequence[Target], rng: np.random.Generator, whole: bool) -> Sequence[Target]:
    """Those that a kernel is measured for: all of them, or one; of a whole space the one of all threads, at least."""
    if len(targets) == 1 or rng.random() < _BOTH:
        return targets
    number = int(rng.integers(len(targets)))
    return targets[-1:] if whole else targets[number : number + 1]


def threads_of(target: Target, targets: Sequence[Target]) -> int | None:
    """How a target is told from the others of its device."""
    return target.threads if len(targets) > 1 else None


def others(choices: Choices, rng: np.random.Generator) -> list[Schedule]:
    """Some schedules other than the default one, drawn from all that there are."""
    count = math.prod(map(len, choices.values()))
    if count > _MOST_SCHEDULES:
        drawn = [{d: values[int(rng.integers(len(values)))] for d, values in choices.items()} for _ in range(4 * SWEPT)]
    else:
        combined = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
        drawn = [combined[number] for number in rng.permutation(len(combined))]
    distinct = dict.fromkeys(Schedule.of(values) for values in drawn)
    return [schedule for schedule in distinct if schedule != Schedule()][:SWEPT]


def targets_of(backend: str, find: Any) -> list[Target]:
    """The targets that kernels are measured for: one thread and all of them, where a target has threads."""
    every: Target = find(backend)
    try:
        one: Target = find(backend, 1)
    except AutofuseError:  # it has no such number
        return [every]
    return [every] if every.threads == 1 else [one, every]
