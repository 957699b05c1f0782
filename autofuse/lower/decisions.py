"""Which decisions a target's kernels leave open, for which kernels, and the values worth trying for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autofuse.errors import PlanError
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.lower.plainproducts import plain_product
from autofuse.lower.raresides import with_rare_sides
from autofuse.lower.schedule import (
    EARLY_END,
    ITERATIONS,
    PANEL_ROWS,
    PLACEMENT,
    PRODUCTS,
    SIDES,
    SPLIT,
    TILE_BYTES,
    VECTORISED,
    Decision,
    Schedule,
)
from autofuse.lower.sidesegments import packs, walks_in_blocks
from autofuse.lower.statements import Carry, Leave, Reduce
from autofuse.lower.tile import Dot, OpaqueProgram, Phase, RowGroup, Space, TileProgram

Choices = Mapping[Decision[Any], tuple[Any, ...]]
"""Values worth trying, by decision."""


@dataclass(frozen=True, slots=True)
class KernelShape:
    """What decisions ask of a kernel under the default schedule."""

    in_row_blocks: bool
    """Whether it works on blocks of rows."""
    staged: bool
    """Whether it has stages: it does not only multiply matrices."""
    looping: bool
    """Whether a stage has loops of its own."""
    multiplies: bool
    """Whether it has products of matrices."""
    staged_apart: bool
    """Whether it has stages beside those of a sweep."""
    multiplies_apart: bool
    """Whether it has products beside those of a sweep."""
    multiplies_floats: bool
    """Whether one of them is of f32 or f64, which libraries have."""
    sweeps: bool
    """Whether products over a softmax walk their axis once."""
    is_plain_product: bool
    """Whether it is what libraries of products do in one call."""
    adds_up: bool
    """Whether it is a product whose depth may be taken in parts: with elementwise work behind it, or none."""
    rescales: bool
    """Whether sums of a row are rescaled as a maximum grows."""
    chooses: bool
    """Whether a choice has a costly side."""
    packs: bool
    """Whether it is one that could be computed for packed elements."""
    carries: bool
    """Whether points of the grid are lanes, and run loops that hand something on."""
    settles: bool
    """Whether a loop may end early."""
    reduces: bool
    keeps: bool
    """Whether it keeps values on chip from stage to stage."""
    reads_around: bool
    """Whether it reads values that it computes at several positions."""
    largest_output_bytes: int
    parameter_bytes: int
    """Of all buffers in global memory."""

    @staticmethod
    def of(program: TileProgram) -> KernelShape:
        """The shape of a lowered kernel."""
        steps = [step for phase in program.phases() for step in phase.steps]
        apart = [step for phase in program.phases() for step in phase.steps_apart()]
        dots = [step for step in steps if isinstance(step, Dot)]
        stages = [stage for step in steps if isinstance(step, RowGroup) for stage in step.stages]
        outputs = [buffer.type.nbytes for buffer in program.buffers if buffer.space is Space.OUTPUT]
        chooses = any(len(with_rare_sides(stage.body, lambda _: True)) < len(stage.body) for stage in stages)
        return KernelShape(
            in_row_blocks=any(phase.row_block is not None for phase in program.phases()),
            staged=bool(stages),
            looping=any(stage.symbols for stage in stages),
            multiplies=bool(dots),
            staged_apart=any(isinstance(step, RowGroup) and step.stages for step in apart),
            multiplies_apart=any(isinstance(step, Dot) for step in apart),
            multiplies_floats=any(dot.dtype.name in ("f32", "f64") for dot in dots),
            sweeps=any(phase.sweep is not None for phase in program.phases()),
            is_plain_product=bool(dots) and plain_product(program.whole or program) is not None,
            adds_up=_adds_up(program),
            rescales=any(stage.stabiliser is not None for stage in stages),
            chooses=chooses,
            packs=chooses and any(map(packs, program.phases())),
            carries=any(map(_carries, program.phases())),
            settles=any(isinstance(s, Leave) and not s.required for stage in stages for s in stage.body),
            reduces=any(isinstance(statement, Reduce) for stage in stages for statement in stage.body),
            keeps=any(buffer.space is Space.SCRATCH for buffer in program.buffers) and not program.reads_around,
            reads_around=program.reads_around,
            largest_output_bytes=max(outputs, default=0),
            parameter_bytes=sum(buffer.type.nbytes for buffer in program.parameters()),
        )


def _carries(phase: Phase) -> bool:
    stages = [stage for step in phase.steps if isinstance(step, RowGroup) for stage in step.stages]
    return (
        phase.vectorised is not None
        and all(map(walks_in_blocks, stages))
        and any(isinstance(s, Carry) for stage in stages for s in stage.body)
    )


def _adds_up(program: TileProgram) -> bool:
    whole = program.whole or program
    if len(whole.launches) != 1 or len(whole.launches[0]) != 1:
        return False
    (phase,) = whole.launches[0]
    first, *others = phase.steps
    if not isinstance(first, Dot) or phase.sweep is not None:
        return False
    bodies = [stage.body for step in others if isinstance(step, RowGroup) for stage in step.stages]
    has_dots = any(isinstance(step, Dot) for step in others)
    return not has_dots and not any(isinstance(s, Reduce) for body in bodies for s in body)


def _nothing(program: OpaqueProgram) -> tuple[Any, ...]:  # noqa: ARG001  # as above
    return ()


def _never(shape: KernelShape) -> bool:  # noqa: ARG001  # what asks of a shape has one signature
    return False


@dataclass(frozen=True, slots=True)
class Rule:
    """For which kernels a decision is, and what to try there."""

    decision: Decision[Any]
    tried: Callable[[KernelShape], tuple[Any, ...]]
    """The values worth trying in a kernel, the default among them; () = it is not for such a kernel."""
    idle: Callable[[KernelShape], bool] = _never
    """Whether it surely changes nothing in such a kernel, whatever the others are."""
    contextual: bool = False
    """Whether what pays for a kernel timed alone may not pay in a plan: it walks or writes memory in another way, and
    minds more than others what it finds in the caches."""
    in_code: bool = False
    """Whether the code generator alone reads it: lowering gives the same loops, whatever it says."""
    of_call: Callable[[OpaqueProgram], tuple[Any, ...]] = _nothing
    """What may be decided of a kernel that is no generated code by default, the default among it."""


def _runners(program: OpaqueProgram) -> tuple[str, ...]:
    """Who may run a loop of a known number of iterations."""
    counted = any(role_of(node) is Role.COUNTED_LOOP for node in program.graph.nodes)
    return ("driver", "rows") if counted else ()


BY_ROWS = Rule(ITERATIONS, lambda _: (), of_call=_runners)
"""For targets whose code has phases of iterations."""
OVERLAPS = Rule(
    TILE_BYTES,
    lambda shape: (0, 64 << 10, 128 << 10, 256 << 10, 512 << 10) if shape.reads_around else (),
    lambda shape: not shape.reads_around,
)
"""For targets whose workers have caches for a tile."""
WALKS = (
    Rule(
        PANEL_ROWS,
        lambda shape: (0, 32, 64, 128, 256, 512, 1024) if shape.in_row_blocks and not shape.sweeps else (),
        lambda shape: not shape.multiplies,
    ),
    Rule(
        VECTORISED,
        lambda shape: ("auto", "grid", "stream") if shape.looping and not shape.in_row_blocks else (),
        contextual=True,
    ),
    Rule(
        PRODUCTS,
        lambda shape: ("auto", "library") if shape.multiplies_floats else (),
        lambda shape: not shape.multiplies,
    ),
    Rule(SIDES, lambda shape: ("auto", "any", "always") if shape.chooses else ()),
    Rule(EARLY_END, lambda shape: (True, False) if shape.settles else ()),
)
KEEPS = (
    Rule(PLACEMENT, lambda shape: ("scratch", "recompute") if shape.keeps else ()),
    Rule(
        SPLIT,
        lambda shape: (0, 1, 4, 8, 32) if shape.reduces and not shape.in_row_blocks else (),
        lambda shape: not shape.reduces,
    ),
)
"""The decisions that lowering reads: how a kernel walks its data, and what it keeps or shares out. A target takes those
that its kernels honour, with its own between them."""


class Decisions:
    """All decisions of a target."""

    def __init__(self, rules: tuple[Rule, ...], untried: frozenset[str] = frozenset()) -> None:
        """`untried`: names of decisions that a schedule may make, and that nothing is to be gained from here."""
        self.rules, self._untried = rules, untried
        self.by_name = {rule.decision.name: rule.decision for rule in rules}
        self.contextual = tuple(rule.decision for rule in rules if rule.contextual)
        """What may pay for a kernel alone and not in a plan, or the other way round."""
        self.in_code = tuple(rule.decision for rule in rules if rule.in_code)
        """What does not change how a kernel is lowered."""

    def read(self, values: object) -> Schedule:
        """A schedule from what it decides, by name. Raises PlanError for unknown names, and values out of range."""
        if not isinstance(values, Mapping):
            raise PlanError(f"a schedule must be an object, got {type(values).__name__}")
        chosen: dict[Decision[Any], Any] = {}
        for name, value in values.items():
            fault = self._fault(name, value)
            if fault is not None:
                raise PlanError(fault)
            chosen[self.by_name[name]] = value
        return Schedule.of(chosen)

    def lowering(self, schedule: Schedule) -> Schedule:
        """What of a schedule decides how a kernel is lowered; schedules that are equal in that share one lowering."""
        return schedule.deciding({decision: decision.default for decision in self.in_code})

    def choices(self, program: TileProgram | OpaqueProgram) -> Choices:
        """The decisions that change this kernel's code, with the values to try; empty if there is nothing to decide.

        `program`: under the default schedule.
        """
        if isinstance(program, OpaqueProgram):
            return {}  # decided with the plans of what is inside (`autofuse.search.policies.regionplans`)
        found = self._open(program)
        return {decision: values for decision, values in found.items() if decision.name not in self._untried}

    def without_trying(self, *decisions: Decision[Any]) -> Decisions:
        """The same, but that some are left as they are by default; a schedule may still make them."""
        return Decisions(self.rules, self._untried | {decision.name for decision in decisions})

    def _open(self, program: TileProgram | OpaqueProgram) -> Choices:
        """What may be decided, whether it is tried or not."""
        if isinstance(program, OpaqueProgram):
            return {rule.decision: values for rule in self.rules if (values := rule.of_call(program))}
        shape = KernelShape.of(program)
        return {rule.decision: values for rule in self.rules if (values := rule.tried(shape))}

    def idle(self, program: TileProgram | OpaqueProgram) -> frozenset[str]:
        """Names of the decisions that surely change nothing in this kernel, whatever the others are."""
        if isinstance(program, OpaqueProgram):
            return frozenset(rule.decision.name for rule in self.rules if not rule.of_call(program))
        shape = KernelShape.of(program)
        return frozenset(rule.decision.name for rule in self.rules if rule.idle(shape))

    def refusal(self, schedule: Schedule, program: TileProgram | OpaqueProgram) -> str | None:
        """Why a schedule is none that could have been chosen for a kernel, beginning with the decision's name.

        `program`: the kernel under the default schedule. None if it is one.
        """
        for name, value in schedule.chosen:
            fault = self._fault(name, value)
            if fault is not None:
                return f"{name}: {fault}"
        for decision, known in self._foreign(schedule, program).items():
            options = ", ".join(map(repr, known))
            return f"{decision.name}: must be one of {options} for this kernel, got {schedule[decision]!r:.80}"
        return None

    def choosable(self, schedule: Schedule, program: TileProgram | OpaqueProgram) -> Schedule:
        """A schedule with the decisions that could not have been made for another kernel left as by default.

        `program`: the other kernel under the default schedule.
        """
        return schedule.deciding({decision: decision.default for decision in self._foreign(schedule, program)})

    def _fault(self, name: object, value: object) -> str | None:
        decision = self.by_name.get(name) if isinstance(name, str) else None
        if decision is None:
            return f"unknown schedule key {name!r:.60}; known: {', '.join(sorted(self.by_name))}"
        if not decision.allowed.holds(value):
            return f"schedule {name}={value!r:.60} is out of range: must be {decision.allowed}"
        return None

    def _foreign(self, schedule: Schedule, program: TileProgram | OpaqueProgram) -> Choices:
        """Decisions of a schedule that a search could not make for a kernel, each with the values that it could."""
        choices = self._open(program)
        found: dict[Decision[Any], tuple[Any, ...]] = {}
        for name, value in schedule.chosen:
            decision = self.by_name[name]
            known = choices.get(decision, (decision.default,))
            if value not in known:
                found[decision] = known
        return found


LOWERING = Decisions((*WALKS, *KEEPS))
"""What lowering alone leaves open."""
