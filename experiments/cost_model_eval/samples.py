"""A data set as a regression reads it: a row per kernel under a schedule, its features derived again from its graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.base import CostModel, KernelFacts
from autofuse.cost_models.covariates import covariates
from autofuse.cost_models.learned.model import differing
from autofuse.errors import AutofuseError, MeasureError
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram
from autofuse.measurement.columns import read_columns
from autofuse.measurement.observations import Observation, observations
from autofuse.measurement.sources import kernel_from
from autofuse.plan.identity import Identity
from autofuse.strictjson import parse
from autofuse.targets.base import Target, target_for
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.device.describe import CpuDescription, calibration_from
from autofuse.targets.cpu.identity import GENERATOR
from autofuse.targets.cpu.target import CpuTarget

LEAST_US = 1.0
"""Shorter kernels do not count: calling them takes as long as they do."""
_BATCH = 64


@dataclass(frozen=True)
class Samples:
    """n kernels under schedules, with the base model's prices."""

    every: Sequence[Observation]
    """All that was seen, failures too."""
    seen: Sequence[Observation]
    """Those that are samples."""
    us: NDArray[Any]
    """f64[n]: predicted by the base model."""
    floor_us: NDArray[Any]
    sigma: NDArray[Any]
    bound: Sequence[str]
    features: NDArray[Any]
    """f64[n, m]: `Prices.features`."""
    terms: NDArray[Any]
    """f64[n, 5]: `Prices.terms`."""
    faults: Sequence[str] = ()
    """Why some cannot be lowered by this autofuse, once each."""

    @cached_property
    def measured_us(self) -> NDArray[Any]:
        """f64[n]: fastest sample."""
        return np.array([one.us for one in self.seen], np.float64)

    @cached_property
    def logs(self) -> NDArray[Any]:
        """f64[n]: log of measured over predicted time."""
        return np.log(self.measured_us / self.us)

    @cached_property
    def rows(self) -> NDArray[Any]:
        """What regressions read."""
        return covariates(self.us, self.bound, self.features, self.terms)

    def numbered(self, by: str) -> NDArray[Any]:
        """i64[n]: equal for records of one program (`grouped`), `family`, `kernel` or `machine`, whatever its threads.

        `record`: all different.
        """
        if by == "record":
            return np.arange(len(self.seen))
        return self._numbers[by]

    @cached_property
    def _numbers(self) -> Mapping[str, NDArray[Any]]:
        names = {by: [getattr(one.program, by) for one in self.seen] for by in ("grouped", "family")}
        names["kernel"] = [one.kernel for one in self.seen]
        machines = _machines(dict.fromkeys(one.identity for one in self.seen))
        numbers = {by: np.unique(of, return_inverse=True)[1] for by, of in names.items()}
        return {**numbers, "machine": np.array([machines[one.identity] for one in self.seen])}

    @property
    def default(self) -> NDArray[Any]:
        """bool[n]: under the default schedule."""
        return np.array([one.schedule == Schedule() for one in self.seen])


def _machines(identities: Iterable[Identity]) -> dict[Identity, int]:
    """A number for each identity, equal for one machine and toolchain."""
    known: list[Identity] = []
    found: dict[Identity, int] = {}
    for one in identities:
        alike = (n for n, other in enumerate(known) if not differing(other, one))
        found[one] = next(alike, len(known))
        if found[one] == len(known):
            known.append(one)
    return found


def samples_of(path: Path) -> Samples:
    """The samples of a file of records. Raises MeasureError for a file that is none, or has none."""
    seen = observations(read_columns(path))
    kept: list[Observation] = []
    facts: list[tuple[Target, KernelFacts]] = []
    faults: dict[str, None] = {}
    for one in seen:
        if one.status != "ok" or one.us < LEAST_US:
            continue
        try:
            target = target_of(one)
            program = lowered(one, target)
            if _ran_other_code(program, one):
                raise MeasureError(f"{one.identity.generator} had other code for scatters and sorts")
            facts.append((target, KernelFacts(program)))
            kept.append(one)
        except AutofuseError as fault:
            faults[f"{type(fault).__name__}: {fault}"[:200]] = None
    if not kept:
        raise MeasureError(
            f"{path}: holds no kernel that can be learned from; {next(iter(faults), 'all are too short')}"
        )
    return _priced(seen, kept, facts, tuple(faults))


def _priced(
    seen: list[Observation], kept: list[Observation], facts: list[tuple[Target, KernelFacts]], faults: tuple[str, ...]
) -> Samples:
    us, floor, sigma = (np.zeros(len(kept)) for _ in range(3))
    bound = [""] * len(kept)
    features, terms = ([np.empty(0)] * len(kept) for _ in range(2))
    of_target: dict[int, list[int]] = {}
    for number, (target, _) in enumerate(facts):
        of_target.setdefault(id(target), []).append(number)
    for numbers in of_target.values():
        model = model_of(facts[numbers[0]][0])
        for start in range(0, len(numbers), _BATCH):
            batch = numbers[start : start + _BATCH]
            prices = model.price([facts[number][1] for number in batch])
            if prices.features is None or prices.terms is None:
                raise MeasureError(f"the model {model.describe()['name']!r} gives no features, or no terms")
            us[batch], floor[batch], sigma[batch] = prices.us, prices.floor_us, prices.sigma
            for place, number in enumerate(batch):
                bound[number], features[number] = prices.bound[place], prices.features[place]
                terms[number] = prices.terms[place]
    return Samples(seen, kept, us, floor, sigma, bound, np.array(features), np.array(terms), faults)


def lowered(one: Observation, target: Target) -> Any:
    """The kernel of an observation under its schedule. Raises AutofuseError where this autofuse cannot."""
    kernel = kernel_from(one.source.text, f"kernel {one.kernel[:12]}")
    limits = replace(target.limits, scalars=max(target.limits.scalars, plain_scalars(kernel)))
    return lower(kernel, one.schedule, "kernel", limits)


def _ran_other_code(program: Any, one: Observation) -> bool:
    """Whether a kernel without stages, which has code of its own now, was measured as another generator's."""
    return isinstance(program, OpaqueProgram) and program.is_coded and one.identity.generator != GENERATOR


def model_of(target: Target) -> CostModel:
    """The analytical model of a device, for kernels that run by themselves, as those of records did, where it can."""
    return AnalyticalCpuModel(target.device, alone=True) if isinstance(target, CpuTarget) else target.cost_model()


def target_of(one: Observation) -> Target:
    """The device of an observation as it was described then; without a description, the one of its identity here."""
    if one.identity.backend != "cpu" or not one.description:
        return _known(one.identity)
    return _described(one.description)


_known = cache(target_for)


@cache
def _described(text: str) -> Target:
    item = parse(text, MeasureError, "the device's description")
    keys = item.members(at_most=100)
    plain: dict[str, Any] = {name: value.value for name, value in keys.items()}
    calibration = calibration_from(keys["calibration"])
    return CpuTarget(CpuDescription(**{**plain, "isa": tuple(plain["isa"]), "calibration": calibration}))


def noise(seen: Sequence[Observation]) -> float:
    """Median of how far two passes are apart, as a logarithm: what no model can be better than."""
    apart = [abs(math.log(one.passes[0].us / one.passes[1].us)) for one in seen if len(one.passes) > 1]
    return float(np.median(apart)) if apart else math.nan
