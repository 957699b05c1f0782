"""Prices that a search can go by besides the analytical model's and measured ones."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.cost_models.base import KernelFacts, Prices
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.measurement.client import Bench
from autofuse.search.policies.analytical import Analytical, solve_at
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, predicted
from autofuse.search.policies.unfused import Unfused
from autofuse.search.prices.residual import Residual, optimistic
from autofuse.targets.cpu.cost.analyticalmodel import SIGMA

UNIFORM_US = 100.0
"""Not small, so that kernels whose time is not known run alone."""


class Uniform:
    """No model: all kernels cost the same, and writing a value nothing, until they are measured. A `CostModel`."""

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        """See `CostModel.price`."""
        count = len(kernels)
        us, sigma, floor = np.full(count, UNIFORM_US), np.full(count, SIGMA), np.zeros(count)
        return Prices(us, sigma, floor, ("memory",) * count)

    def write_us(self, value: TensorType) -> float:
        """See `CostModel.write_us`."""
        del value
        return 0.0

    def describe(self) -> dict[str, Any]:
        """See `CostModel.describe`."""
        return {"name": "uniform", "feature_version": 0, "us": UNIFORM_US}


@dataclass(frozen=True, slots=True)
class Decided:
    """A partition that is there already, as a policy."""

    name: str
    chosen: Partition

    def partition(self, context: Context) -> Partition:
        """The partition, which was made for this context."""
        del context
        return self.chosen


@dataclass(frozen=True, slots=True)
class Corrected:
    """The cheapest partition at the analytical prices, corrected by some measurements.

    Measured are the kernels of the analytical partition and of the unfused one. A kernel's own time is not its price:
    only what the times say of the model is used, as it would be of kernels that nobody measured.
    """

    bench: Bench
    seconds: float
    """Most time for measuring."""
    name: str = "residual"

    def partition(self, context: Context) -> Partition:
        """Measure, correct, solve. Raises SearchError if the kernels that do not fail compute no plan."""
        space = context.space
        known: dict[str, float] = {}
        until = time.monotonic() + self.seconds
        for chosen in (kernel for policy in (Analytical(), Unfused()) for kernel in policy.partition(context).kernels):
            digest = chosen.candidate.digest
            if digest in known or time.monotonic() > until:
                continue
            known[digest] = self.bench.kernel(digest, chosen.candidate.kernel, Schedule()).us
        prices = context.prices(space)
        residual = Residual(prices, known)
        failed = {digest: us for digest, us in known.items() if us == math.inf}
        solution = solve_at(context, space, optimistic(prices, failed, residual, 0.0))
        kernels = solution.kernels
        return Partition(space.atom_graph, kernels, predicted(kernels, prices), solution.price_us, solution)
