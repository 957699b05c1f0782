"""What a policy is given: the problem, and the kernels to choose among."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from autofuse.cost_models.base import CostModel
from autofuse.fusion.userrules import Control
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.limits import Limits
from autofuse.lower.schedule import Schedule
from autofuse.search.plans.memorylimit import MemoryLimit
from autofuse.search.plans.planning import Program
from autofuse.search.policies.pricedkernels import Kernels, kernels_of
from autofuse.search.policies.problem import Problem
from autofuse.search.prices.pricing import KernelPrices
from autofuse.search.prices.residual import ClassPrice
from autofuse.search.solve.solver import Solve, solve
from autofuse.search.space.candidates import USUAL, Bounds, Candidate, Space

if TYPE_CHECKING:
    from autofuse.measurement.inputvalues import InputValues


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy may use. Another question is another context; none changes."""

    problem: Problem
    kernels: Kernels
    """Those of the problem's program."""
    deadline_s: float = 60.0
    """Most time for one solve."""
    solve: Solve = solve
    """Finds the cheapest cover."""

    @staticmethod
    def of(problem: Problem, model: CostModel, bounds: Bounds = USUAL) -> Context:
        """All kernels of a problem within the bounds, at the prices of a model."""
        return Context(problem, kernels_of(problem, KernelPrices(model, problem.target.compiled), bounds))

    def about(self, program: Program, bounds: Bounds) -> Context:
        """The same question about another graph. Prices are shared: they belong to kernels. Rules are not."""
        problem, known = self.problem.of(program), self.kernels.prices
        prices = KernelPrices(self.model, known.compiler, known)
        return replace(self, problem=problem, kernels=kernels_of(problem, prices, bounds))

    def ruled(self, control: Control) -> Context:
        """The same question under rules. Prices are shared."""
        problem = replace(self.problem, control=control)
        return replace(self, problem=problem, kernels=kernels_of(problem, self.kernels.prices, self.kernels.bounds))

    def within(self, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> Context:
        """The same question with kernels within other bounds; none is lowered or priced again. `clock`: for these."""
        kernels = kernels_of(self.problem, self.kernels.prices, bounds, clock, self.kernels.known)
        return replace(self, kernels=kernels)

    def steered(self, values: InputValues) -> Context:
        """The same question where kernels that do the same work are told apart by the values that steer them.

        None is lowered or priced again.
        """
        if not values.steer():
            return self
        problem = replace(self.problem, steering=values.of_steering)
        kernels = kernels_of(problem, self.kernels.prices, self.kernels.bounds, known=self.kernels.known)
        return replace(self, problem=problem, kernels=kernels)

    @property
    def program(self) -> Program:
        """What is to be planned."""
        return self.problem.program

    @property
    def limits(self) -> Limits:
        """Of kernels, on the device."""
        return self.problem.limits

    @property
    def control(self) -> Control:
        """The user's rules."""
        return self.problem.control

    @property
    def memory(self) -> MemoryLimit | None:
        """How much memory a plan may take."""
        return self.problem.memory

    @property
    def model(self) -> CostModel:
        """The cost model."""
        return self.kernels.prices.model

    @property
    def space(self) -> Space:
        """The candidate space, enumerated at first use."""
        return self.kernels.space

    def prices(self, space: Space) -> Mapping[str, ClassPrice]:
        """The model's price of every digest class."""
        return self.kernels.prices.of(space.candidates)

    def pinned(self, candidate: Candidate) -> Schedule | None:
        """See `Problem.pinned`."""
        return self.problem.pinned(candidate)
