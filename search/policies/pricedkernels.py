"""The kernels that a policy chooses among: enumerated at first use, each lowered and priced once."""

from __future__ import annotations

import time
from collections.abc import Callable

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.userrules import NO_RULES
from autofuse.ir.graph import Value
from autofuse.search.policies.problem import Problem
from autofuse.search.policies.promising import lower_promising
from autofuse.search.policies.workclock import WorkClock
from autofuse.search.prices.pricing import KernelPrices
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import USUAL, AtomSet, Bounds, Candidate, Space
from autofuse.search.space.enumeration import enumerated


class Kernels:
    """The candidate space of one graph, and what its kernels cost."""

    def __init__(self, prices: KernelPrices, build: Callable[[], SpaceBuilder], bounds: Bounds = USUAL) -> None:
        """`build`: what fills a space, within `bounds`."""
        self.prices, self.bounds = prices, bounds
        self._build = build
        self.known: SpaceBuilder | None = None
        """What the space was built by; None before its first use."""

    @property
    def space(self) -> Space:
        """The candidate space."""
        return self._builder.space

    @property
    def _builder(self) -> SpaceBuilder:
        if self.known is None:
            self.known = self._build()
        return self.known

    def try_add(self, atoms: AtomSet, outputs: tuple[Value, ...] | None = None) -> Candidate | None:
        """The candidate of a set of the space's atoms, added to the space; None if it is no kernel.

        `outputs`: what it writes; by default all that others may need of it.
        """
        usual = self._builder.try_add(atoms)
        if outputs is None or (usual is not None and usual.outputs == outputs):
            return usual
        return self._builder.try_add(atoms, outputs)

    def keep_priced(self, is_late: Callable[[], bool]) -> int:
        """See `KernelPrices.keep_priced`."""
        return self.prices.keep_priced(self.space, is_late)


_WEIGHED = 1.4
"""Of the seconds for enumeration: when kernels must be weighed and lowered, if they were only estimated at first."""


def may_estimate(problem: Problem) -> bool:
    """Whether kernels of a problem may be left out by estimates: not where others than the cheapest may be wanted."""
    return problem.limits.estimates and problem.control == NO_RULES and problem.memory is None


def kernels_of(
    problem: Problem,
    prices: KernelPrices,
    bounds: Bounds = USUAL,
    clock: Callable[[], float] = time.monotonic,
    known: SpaceBuilder | None = None,
) -> Kernels:
    """All kernels within the bounds. `clock`: for these. `known`: what it lowered for the problem is not again."""

    def build() -> SpaceBuilder:
        atoms = AtomGraph(problem.program.graph, control=problem.control)
        builder = SpaceBuilder(atoms, problem.limits, known=known, steering=problem.steering)
        if isinstance(clock, WorkClock):
            clock.watch(builder)
        until = clock() + _WEIGHED * bounds.seconds
        builder.waits = bounds.estimated and may_estimate(problem)
        enumerated(builder, bounds, clock)
        if builder.waits:
            lower_promising(builder, prices, lambda: clock() >= until)
        return builder

    return Kernels(prices, build, bounds)
