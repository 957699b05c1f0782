"""A fusion plan as pure data: what to run, in which order, for whom it was made, and what it was shown to cost."""

from __future__ import annotations

from typing import Literal

from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.graph import Graph
from autofuse.ir.parts import seen_as
from autofuse.ir.tree import Tree
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.schedule import Schedule
from autofuse.plan.identity import Identity

FORMAT_VERSION = 1
"""Version of the file format. Readers accept this version only; a plan is cheap to make again."""

OPTIMAL = "optimal under these costs"
NOT_PROVED = "the best found, not proved optimal under these costs"
"""What a certificate may claim, and no more."""


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One kernel of a plan."""

    name: str
    """Also the symbol in generated code and in profilers."""
    kind: str
    """What kind of fusion it is: `loop`, `reduction`, `stitch`, ...; of a loop or branch that is none, who runs it:
    `driver` or `interpreter`."""
    nodes: tuple[str, ...]
    """Names of the graph nodes it computes. A node may be computed by several kernels."""
    outputs: tuple[str, ...]
    """Names of the values it writes."""
    schedule: Schedule
    digest: str
    """Structural digest of the kernel's subgraph: equal kernels have equal digests."""
    predicted_us: float | None = None
    """Price by the cost model."""
    measured_us: float | None = None
    """Measured time, alone: the fastest sample."""
    bound: str | None = None
    """What limits it: `memory`, `compute`, `overhead`, ..."""
    regions: tuple[RegionPlan, ...] = ()
    """Of a loop or a branch that a driver runs: how what stands before it is computed, then each region, as
    `autofuse.fusion.regionprograms` takes them apart. () for kernels, and for what the interpreter does."""


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """A plan of a program inside a loop or a branch."""

    kernels: tuple[PlannedKernel, ...]
    """None where the program computes nothing."""
    order: tuple[Launch, ...]
    """Every kernel once, each after the kernels that make its inputs."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the search can say about its result. None = not determined.

    Times are in microseconds; those of whole calls are the fastest of many, taken in turns with other plans'.
    """

    policy: str
    """Search policy that made the plan."""
    seed: int
    budget: str
    """What was allowed, in words: `60 s`, `200 measurements`."""
    candidates: int
    """Kernel candidates in the space."""
    classes: int
    """Distinct digests among them."""
    measured: int
    """Classes with at least one measurement."""
    schedules_tried: int
    rounds: int
    """Solve-and-measure rounds."""
    space_digest: str
    """Digest of the candidate space: two certificates with the same one searched the same space."""
    k: float | None = None
    """Standard deviations of optimism in the statistical bound."""
    epsilon: float | None = None
    """Relative gap to the bound at which the search stops."""
    floor_bound_us: float | None = None
    """No plan of the kernels that were searched is faster, were the device `headroom` times as fast as its known rates:
    bytes over bandwidth, flops over peak, launches."""
    statistical_bound_us: float | None = None
    """Cost of the best plan at prices exp(mu - k sigma), all kernels under their default schedules."""
    sum_us: float | None = None
    """Sum of the plan's kernels' measured times."""
    e2e_us: float | None = None
    """Measured time of a whole call."""
    holdout_us: float | None = None
    """The winner measured again on fresh samples, against winner's curse."""
    unfused_us: float | None = None
    """Measured time of the unfused plan."""
    rule: str | None = None
    """The rules of another compiler whose plan, with tuned schedules, was the fastest of such plans."""
    rule_us: float | None = None
    """Measured time of that plan."""
    noise_floor_us: float | None = None
    """Differences below this mean nothing on this machine (an A/A run)."""
    refused: int | None = None
    """Sets of operations that were tried and are no kernel."""
    dominated: int | None = None
    """Candidates that the solver left out in the end, as two smaller ones cost no more."""
    cut_off: int | None = None
    """Sets that were not grown further, for their size, their number, or want of time."""
    function_us: float | None = None
    """Measured time of the function itself, run by the interpreter in the tuning process."""
    timing: str | None = None
    """How its times were taken (`autofuse.plan.identity.MEASUREMENT_POLICY`)."""
    headroom: float | None = None
    """How many times its calibrated rates `floor_bound_us` takes the device to reach: peaks are measured beside other
    work, or only guessed. None = not said: plans of old, or a cost model of others."""
    spent: str | None = None
    """Where a budget in seconds went, in words. None with a limit on measurements: replayed ones take no time, and the
    same records are to give the same plan."""
    optimality: str = OPTIMAL
    """`OPTIMAL`, or `NOT_PROVED` where the search was cut short or another plan was faster as a whole."""

    @property
    def additivity(self) -> float | None:
        """Whole call over sum of kernels: 1 = kernel times add up, below 1 = kernels overlap."""
        return self.e2e_us / self.sum_us if self.e2e_us is not None and self.sum_us else None


@dataclass(frozen=True, slots=True)
class Launch:
    """One step of a plan's order."""

    kernel: int
    """Index into the plan's kernels."""
    group_place: int = 0
    """Place in a concurrent group: above 0, the kernel runs beside the entry before it, unless it needs that."""
    apart: bool = False
    """Whether it is started by itself, also where the target would start its group at once."""


@dataclass(frozen=True, slots=True)
class GraphVariant:
    """Which of several ways to clean up a program gave the graph of a plan."""

    choices: str
    """What was chosen differently than usual, as `autofuse.passes.choices` reads it: `columns=joined`."""
    origin: str
    """Digest of the graph that the usual clean-up gives."""


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """All of a plan. Frozen, and equal to what a file of it says, no more."""

    name: str
    backend: str
    """Name of the target."""
    numerics: Literal["strict", "fast"]
    graph: Graph
    graph_digest: str
    in_tree: Tree
    """Structure of the arguments: its leaves are the graph's inputs, in order."""
    out_tree: Tree
    """Structure of the result: its leaves are the first of the graph's outputs, in order."""
    parameters: tuple[str, ...]
    """The function's parameters, a name per child of `in_tree` (`autofuse.ir.parameters`: `/` and `*` are marks)."""
    writebacks: tuple[int, ...]
    """Inputs that the function modifies in place: the graph's last outputs are their new values, in this order."""
    kernels: tuple[PlannedKernel, ...]
    order: tuple[Launch, ...]
    """Every kernel once, each after the kernels that make its inputs."""
    identity: Identity
    certificate: Certificate | None = None
    notes: tuple[str, ...] = ()
    """What a reader should know: silent copies, calls left to NumPy, why a fusion was not made."""
    variant: GraphVariant | None = None
    """None where the graph was cleaned up as usual."""
    contiguous: tuple[int, ...] = ()
    """Inputs that are refused unless C-contiguous: the function does something else to arrays in another order."""
    bounds: tuple[BoundsCheck, ...] = ()
    """What indices must keep to, where calls check it: the graph's output behind the results tells whether they did."""
    complex_inputs: tuple[int, ...] = ()
    """Inputs that callers give as complex numbers: the graph sees their parts, along a last axis of 2."""
    complex_outputs: tuple[int, ...] = ()
    """Outputs that callers get as complex numbers: the graph makes their parts so."""
    replayed: bool = True
    """Whether a target that can may replay kernels that follow each other at once; else calls start them one by one."""

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        """Of the arguments, as callers see them."""
        return seen_as([value.type for value in self.graph.inputs], self.complex_inputs)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Of the graph's outputs, as callers see them."""
        return seen_as([value.type for value in self.graph.outputs], self.complex_outputs)

    def in_reals(self) -> PlanDocument:
        """The same plan for callers that give and get what the graph sees: parts of complex numbers."""
        return replace(self, complex_inputs=(), complex_outputs=())

    @property
    def program_digest(self) -> str:
        """Digest of the program as it is usually cleaned up: what a store finds the plan by."""
        return self.graph_digest if self.variant is None else self.variant.origin

    @property
    def generator(self) -> str:
        """Version of the code generator the plan was made for."""
        return self.identity.generator
