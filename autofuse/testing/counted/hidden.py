"""What the device does that nothing says of it: costs that no model knows, noise, and kernels that fail."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np

from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.digest import subgraph_digest
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.plan.document import PlanDocument

KernelCost = Callable[[KernelCandidate, Schedule, float], float]
"""Nanoseconds of a call of a kernel under a schedule, by what was counted; or it raises, as the call then does."""
PlanCost = Callable[[PlanDocument, float], float]
"""The same of a plan, by what its kernels take together."""


def as_counted(kernel: KernelCandidate, schedule: Schedule, ns: float) -> float:
    """No more than the work."""
    del kernel, schedule
    return ns


def as_its_kernels(plan: PlanDocument, ns: float) -> float:
    """No more than the kernels."""
    del plan
    return ns


@dataclass(frozen=True, slots=True)
class Hidden:
    """How long calls take. It is asked at every call, so what it says may change from one to the next."""

    kernel: KernelCost = as_counted
    plan: PlanCost = as_its_kernels


def scattered(spread: float, seed: int = 0) -> KernelCost:
    """A factor for each kernel, the same for all that do the same work: log-normal with that spread."""
    known: dict[int, tuple[KernelCandidate, float]] = {}
    """By identity, which is quicker than by what it is."""

    def cost(kernel: KernelCandidate, schedule: Schedule, ns: float) -> float:
        del schedule
        if id(kernel) not in known:
            digest = subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs)
            number = int(hashlib.sha256(f"{digest}{seed}".encode()).hexdigest()[:15], 16)
            known[id(kernel)] = kernel, math.exp(spread * np.random.default_rng(number).standard_normal())
        return known[id(kernel)][1] * ns

    return cost


def noisy(cost: PlanCost, spread: float, seed: int = 0) -> PlanCost:
    """A plan's calls take longer by chance, each by what a normal distribution of that relative spread says."""
    rng = np.random.default_rng(seed)
    return lambda plan, ns: cost(plan, ns) * (1.0 + spread * abs(rng.standard_normal()))
