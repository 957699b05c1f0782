"""Whole spaces: all kernels of a program measured, so that every choice among them has a known cost.

Choices that are made by measurements, the best one's too, are made by the first pass and paid at the last one: what
noise chose is not what noise pays for. Kernels cost what they take by themselves, as measured; models are those
for such kernels too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from regressors import Corrected, Predict
from samples import LEAST_US, Samples, model_of, target_of

from autofuse.cost_models.base import CostModel, KernelFacts, Prices
from autofuse.errors import SearchError
from autofuse.fusion.candidate import work_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.measurement.client import BenchCounts
from autofuse.measurement.kernelrecords import KernelTime, Trial
from autofuse.measurement.sources import graph_from
from autofuse.search.budget.budget import Budget, Clock
from autofuse.search.policies.analytical import solve_at
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.pricedkernels import Kernels
from autofuse.search.policies.unfused import Unfused
from autofuse.search.prices.pricing import KernelPrices, priced
from autofuse.search.prices.residual import Residual
from autofuse.search.solve.solver import Solution
from autofuse.search.space.candidates import Bounds
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.search.tune.measuringloop import MeasuringLoop
from autofuse.testing.partitions import context_of

_SOLVE_S = 20.0


@dataclass(frozen=True)
class WholeSpace:
    """One program on one machine."""

    name: str
    grouped: str
    context: Context
    """At the base model's prices, each asked for once."""
    us: Mapping[str, float]
    """Measured in the first pass, by class of the space; infinite for kernels that failed."""
    paid_us: Mapping[str, float]
    """In the last pass."""

    def at(self, predict: Predict) -> Context:
        """At the prices of a model; the kernels are the same."""
        base = self.context.kernels
        prices = KernelPrices(Corrected(self.context.model, predict), base.prices.compiler)
        _ = base.space
        builder = base.known
        assert builder is not None
        return replace(self.context, kernels=Kernels(prices, lambda: builder, base.bounds))


class Remembered:
    """A cost model that prices each kernel once."""

    def __init__(self, base: CostModel) -> None:
        self.base = base
        self._known: dict[TileProgram | OpaqueProgram, tuple[Any, ...]] = {}

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        """See `CostModel.price`. What compilers said is not looked at."""
        fresh = list({one.program: one for one in kernels if one.program not in self._known}.values())
        said = self.base.price(fresh)
        none = np.empty((len(fresh), 0))
        rows, terms = (none if given is None else given for given in (said.features, said.terms))
        for one, *row in zip(fresh, said.us, said.sigma, said.floor_us, said.bound, rows, terms, strict=True):
            self._known[one.program] = tuple(row)
        known = [self._known[one.program] for one in kernels]
        us, sigma, floor_us = (np.array([row[n] for row in known], np.float64) for n in range(3))
        features, terms = (
            None if given is None else np.array([row[place] for row in known] or given)
            for place, given in ((4, said.features), (5, said.terms))
        )
        return Prices(us, sigma, floor_us, tuple(row[3] for row in known), said.headroom, features, terms)

    def write_us(self, value: TensorType) -> float:
        """See `CostModel.write_us`."""
        return self.base.write_us(value)

    def describe(self) -> dict[str, Any]:
        """See `CostModel.describe`."""
        return self.base.describe()


@dataclass(frozen=True)
class Choice:
    """What a model chooses in a space."""

    regret: float
    """By how much the partition is dearer than the one that is the cheapest by the first pass."""
    loop_regret: float
    """The same of the partition that the measuring loop ends with."""
    measured: float
    """Share of the classes that the loop measured."""
    after_ten: float
    """Mean of |expected / measured - 1| of the other kernels when ten random ones were measured; NaN for few."""


@dataclass(frozen=True)
class Noise:
    """What no model can know of a space."""

    classes: int
    """Kernels that do different work."""
    regret: float
    """By how much the cheapest partition by the first pass is dearer, at the last one, than the cheapest by that."""


def whole_spaces(samples: Samples) -> list[WholeSpace]:
    """The programs of which all kernels were measured under the default schedule."""
    times: dict[tuple[int, str], tuple[float, float]] = {}
    found: dict[str, WholeSpace] = {}
    for one in samples.every:
        if one.schedule == Schedule():
            ok = one.status == "ok"
            times[id(target_of(one)), one.kernel] = (
                (one.passes[0].us, one.passes[-1].us) if ok else (math.inf, math.inf)
            )
    wholes = {(id(target_of(one)), one.program.name): one for one in samples.every if one.program.text}
    for (target, name), one in wholes.items():
        if name in found:
            continue
        graph, bounds = graph_from(one.program.text, name), Bounds(**one.program.bounds)
        model = Remembered(model_of(target_of(one)))
        context = context_of(graph, bounds=bounds, model=model, target=target_of(one))
        known = {digest: times.get((target, work_of(digest))) for digest in context.space.classes}
        us = {digest: pair for digest, pair in known.items() if pair is not None}
        if len(us) == len(known):
            first, last = ({digest: pair[n] for digest, pair in us.items()} for n in (0, 1))
            context.kernels.prices.saved(context.space)  # all prices that will be asked for
            found[name] = WholeSpace(name, one.program.grouped, context, first, last)
    return list(found.values())


def choice(space: WholeSpace, predict: Predict, seed: int) -> Choice | None:
    """What a model chooses; None where the kernels that do not fail compute no plan."""
    context = space.at(predict)
    try:
        best = solve_at(context, context.space, space.us, _SOLVE_S)
        failing = {digest: us for digest, us in space.us.items() if us == math.inf}
        prices = context.prices(context.space)
        said = {digest: price.predicted_us for digest, price in prices.items()} | failing
        chosen = solve_at(context, context.space, said, _SOLVE_S)
    except SearchError:
        return None
    ended, measured = _replayed(context, space, chosen)
    cost = _cost(context, space.paid_us)
    regret, loop_regret = (cost(found) / cost(best) - 1 for found in (chosen, ended))
    return Choice(regret, loop_regret, measured, _after_ten(context, space, seed))


def noise_of(space: WholeSpace) -> Noise | None:
    """See `Noise`; None where the kernels that do not fail compute no plan."""
    try:
        first, last = (solve_at(space.context, space.context.space, us, _SOLVE_S) for us in (space.us, space.paid_us))
    except SearchError:
        return None
    cost = _cost(space.context, space.paid_us)
    return Noise(len(space.us), cost(first) / cost(last) - 1)


def _cost(context: Context, us: Mapping[str, float]) -> Callable[[Solution | Partition], float]:
    """What a partition takes at measured times, outputs that it need not write left out."""
    saved = context.kernels.prices.saved(context.space)
    known = {id(one.candidate): one for one in priced(context.space, us, context.model, saved)}

    def cost(found: Solution | Partition) -> float:
        total = 0.0
        for kernel in found.kernels:
            if id(kernel.candidate) not in known:
                return math.inf
            one = known[id(kernel.candidate)]
            total += one.price_us + sum(us for value, us in one.write_us.items() if value in kernel.outputs)
        return total

    return cost


class _ReplayedBench:
    """Knows the time of every kernel."""

    ahead_s = 0.0

    def __init__(self, us: Mapping[str, float]) -> None:
        self.us, self.counts = us, BenchCounts()
        self.asked: set[str] = set()

    def kernels(self, trials: Sequence[Trial], go_on: Callable[[], bool] = lambda: True) -> list[KernelTime]:
        """As `Bench.kernels`."""
        found: list[KernelTime] = []
        for trial in trials:
            if not go_on():
                break
            self.asked.add(trial.digest)
            us = self.us.get(trial.digest, math.inf)
            found.append(KernelTime("ok" if us < math.inf else "refused", us))
        return found


class _Kept:
    """Stands for `Drafts`: partitions are not made plans of."""

    failure = "a kernel failed when it was measured"

    def __init__(self, times: KernelTimes, context: Context) -> None:
        self.times, self.context = times, context

    def keep(self, partition: Partition) -> None:
        """Do nothing."""

    def solved(self, solution: Solution) -> Partition:
        """As `Drafts.solved`, without what plans need."""
        return Partition(self.context.space.atom_graph, solution.kernels, {}, solution.price_us, solution)

    def has_failed(self, partition: Partition) -> bool:
        """Whether a kernel is known to fail."""
        return self.times.any_fails(partition)

    def fits(self, partition: Partition) -> bool:
        """Memory is not limited."""
        del partition
        return True


def _replayed(context: Context, space: WholeSpace, chosen: Solution) -> tuple[Partition, float]:
    """The partition that the measuring loop ends with, and the share of classes that it asked for."""
    bench = _ReplayedBench(space.us)
    clock = Clock(Budget(math.inf), bench, lambda: 0.0)  # pyright: ignore[reportArgumentType] - as much of a bench as it takes
    times = KernelTimes(context, bench, clock)  # pyright: ignore[reportArgumentType] - the same
    drafts = _Kept(times, context)
    loop = MeasuringLoop(context, drafts, times, clock, lambda *_: None)  # pyright: ignore[reportArgumentType] - the same
    baselines = [Unfused().partition(context), drafts.solved(chosen)]
    found = loop.run(baselines)
    return found, len(bench.asked & space.us.keys()) / len(space.us)


def _after_ten(context: Context, space: WholeSpace, seed: int) -> float:
    """See `Choice.after_ten`."""
    known = {digest for digest, us in space.us.items() if LEAST_US <= us < math.inf}
    prices = {digest: price for digest, price in context.prices(context.space).items() if digest in known}
    if len(prices) < 15:
        return math.nan
    drawn = np.random.default_rng(seed).permutation(sorted(prices))
    mean, _ = Residual(prices, {str(d): space.us[d] for d in drawn[:10]}).predict([prices[d] for d in drawn[10:]])
    expected = np.array([prices[d].predicted_us for d in drawn[10:]]) * np.exp(mean)
    measured = np.array([space.us[d] for d in drawn[10:]])
    return float(np.mean(np.abs(expected / measured - 1)))
