"""Why XLA:GPU does not compute one kernel within another, whatever that would save.

Sources: priority_fusion.cc (CanFuse), gpu_fusible.cc (FusionFitsInBudget), gpu_hlo_cost_analysis.cc
(ProducerConsumerMergedTooLarge), instruction_fusion.cc (ShouldFuseInPlaceOp). The rules on scatters are left out: here
a scatter is a library call. There is none on Triton kernels, as none are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.priority.cost_analysis import WorkCount
from autofuse.search.rules.priority.emitters import Emitters, Kind
from autofuse.search.rules.priority.hero_dimensions import emitted_reduction, exchange_of
from autofuse.search.rules.priority.instructions import BITCAST, CONSTANT, Instruction
from autofuse.search.rules.priority.kernel_bodies import Kernel, Step, combined

_TILE = 32


@dataclass(frozen=True, slots=True)
class PriorityLimits:
    """The numbers in the rules, and what differs between versions of XLA."""

    significant_reduction: int = 16
    """From so many elements per result on, a reduction is not computed within another."""
    reductions: int = 8
    """Most reductions in a kernel (MaxReductions of gpu_fusible.cc)."""
    operands_and_outputs: int = 96
    """Most buffers of a kernel (MaxOperandsAndOutputsPerFusion); 64 in older versions."""
    code_size: float = 10000
    """Most instructions of a kernel, repeated ones as often as they are written (kMaxIRSize)."""
    keeps_transposes_out_of_reductions: bool = False
    """Whether a transpose alone is never fused into a significant reduction, as in one branch of XLA."""


LATEST = PriorityLimits()
"""Of the newest version that was read."""


@dataclass(slots=True)
class Vetoes:
    """The rules, asked of pairs; answers are kept."""

    emitters: Emitters
    work: WorkCount
    limits: PriorityLimits = LATEST
    _merged: dict[tuple[Kernel, Kernel], Kernel] = field(default_factory=dict[tuple[Kernel, Kernel], Kernel])
    _refusals: dict[tuple[Kernel, Kernel], str | None] = field(
        default_factory=dict[tuple[Kernel, Kernel], "str | None"]
    )

    def merged(self, producer: Kernel, consumer: Kernel) -> Kernel:
        """The kernel that the two would be."""
        pair = producer, consumer
        if pair not in self._merged:
            self._merged[pair] = combined(producer, consumer, consumer.number)
        return self._merged[pair]

    def refusal(self, producer: Kernel, consumer: Kernel) -> str | None:
        """Which rule forbids computing `producer` within `consumer`; None if none does."""
        pair = producer, consumer
        if pair not in self._refusals:
            self._refusals[pair] = next((name for name, breaks in _RULES if breaks(self, producer, consumer)), None)
        return self._refusals[pair]

    def over_budget(self, first: Kernel, second: Kernel, consumed: bool = True) -> bool:
        """FusionFitsInBudget. `consumed`: the second computes the first for itself and reads no more than before."""
        if self._shared_bytes(first) + self._shared_bytes(second) > self.emitters.device.shared_bytes:
            return True
        if _count_reductions(first) + _count_reductions(second) > self.limits.reductions:
            return True
        most, outputs = self.limits.operands_and_outputs, _count_shapes(first) + _count_shapes(second)
        if _count_operands(first) + _count_operands(second) - 1 + outputs <= most:
            return False
        made = {*first.written, *second.written}
        union = {p for kernel in (first, second) for p in kernel.parameters if p not in made}
        if consumed and len(union) <= _count_operands(second):
            return False
        return len(union) + outputs > most

    def over_code_size(self, producer: Kernel, consumer: Kernel) -> bool:
        """Whether a producer's code, repeated as often as its consumer asks for it, is too long."""
        below = self.work.of(consumer)
        repeated = 1.0
        if consumer.is_fusion:
            repeated = sum(read.emissions for made in producer.written for read in below.of(made))
        return self.work.of(producer).code_size * repeated + below.code_size > self.limits.code_size

    def _shared_bytes(self, kernel: Kernel) -> int:
        return sum(map(_shared_bytes, kernel.instructions))

    # ---- rules, in the order in which they are asked ---------------------------------------------------------------

    def fuses_with_nothing(self, producer: Kernel, consumer: Kernel) -> bool:
        """Products, scans and library calls; a bitcast takes in nothing; of two results only one is seen."""
        if not (producer.is_fusible and consumer.is_fusible) or consumer.is_bitcast:
            return True
        return len(producer.roots) > 1 or producer.first.is_variadic

    def nests_reductions(self, producer: Kernel, consumer: Kernel) -> bool:
        """A significant reduction within another."""
        both = producer.instructions, consumer.instructions
        return all(any(self._is_significant(i) for i in instructions) for instructions in both)

    def puts_transpose_in_reduction(self, producer: Kernel, consumer: Kernel) -> bool:
        """A transpose alone within a significant reduction, in versions that have this rule."""
        if not self.limits.keeps_transposes_out_of_reductions or producer.is_fusion:
            return False
        return producer.first.opcode == "transpose" and any(map(self._is_significant, consumer.instructions))

    def ends_reduction(self, producer: Kernel, consumer: Kernel) -> bool:
        """What follows a reduction and would make a loop of it."""
        if self.emitters.kind(producer) is not Kind.REDUCTION:
            return False
        return self.emitters.kind(self.merged(producer, consumer)) is Kind.LOOP

    def breaks_in_place(self, producer: Kernel, consumer: Kernel) -> bool:
        """What would read a buffer elsewhere than where an update writes it."""
        update = _update_in_place(consumer)
        if update is None:
            return False
        buffer, at = update
        if not consumer.is_fusion and consumer.first.operands.count(buffer) > 1:
            return True
        if buffer not in (*producer.written, *producer.parameters):
            return False
        moving = [step for step in producer.steps if _moves(step.instruction)]
        if not moving:
            return consumer.is_fusion and _moves_elsewhere(producer, consumer, at)
        return len(moving) > 1 or not _is_harmless(producer, moving[0], consumer)

    def _is_significant(self, instruction: Instruction) -> bool:
        """Variadic reductions do not count."""
        if instruction.opcode != "reduce" or instruction.type.size == 0:
            return False
        return instruction.operands[0].type.size // instruction.type.size >= self.limits.significant_reduction


_Rule = Callable[[Vetoes, Kernel, Kernel], bool]
_RULES: tuple[tuple[str, _Rule], ...] = (
    ("fuses with nothing", Vetoes.fuses_with_nothing),
    ("a reduction within a reduction", Vetoes.nests_reductions),
    ("a transpose within a reduction", Vetoes.puts_transpose_in_reduction),
    ("an end that makes a loop of a reduction", Vetoes.ends_reduction),
    ("over budget", Vetoes.over_budget),
    ("too much code", Vetoes.over_code_size),
    ("an update in place", Vetoes.breaks_in_place),
)


# ---- budgets ---------------------------------------------------------------------------------------------------------


def _shared_bytes(instruction: Instruction) -> int:
    """Shared memory that an instruction takes, whichever emitter writes it (SharedMemoryUsage)."""
    reduction = emitted_reduction(instruction)
    if reduction is not None:
        itemsize = instruction.operands[0].type.dtype.itemsize
        return _TILE * itemsize if reduction.is_row else _TILE * (4 * _TILE + 1) * itemsize
    exchange = exchange_of(instruction)
    return 0 if exchange is None else _TILE * (_TILE + 1) * exchange.itemsize * exchange.kept


def _count_reductions(kernel: Kernel) -> int:
    return sum(emitted_reduction(instruction) is not None for instruction in kernel.instructions)


def _count_operands(kernel: Kernel) -> int:
    return len(kernel.parameters) if kernel.is_fusion else len(kernel.first.operands)


def _count_shapes(kernel: Kernel) -> int:
    """Results, and the tuple of them if there are several."""
    return len(kernel.roots) + (len(kernel.roots) > 1)


# ---- updates in place ------------------------------------------------------------------------------------------------


def _update_in_place(kernel: Kernel) -> tuple[Instruction, int] | None:
    """What a kernel updates in place, and the step that does; None if it writes only fresh memory."""
    for root in kernel.roots:
        step = kernel.steps[root]
        if step.instruction.opcode == "dynamic_update_slice" and (at := _parameter_behind(kernel, step)) is not None:
            return kernel.parameters[at], root
    return None


def _parameter_behind(kernel: Kernel, update: Step) -> int | None:
    at = update.operands[0]
    while at >= 0 and kernel.steps[at].instruction.opcode == BITCAST:
        at = kernel.steps[at].operands[0]
    return ~at if at < 0 else None


def _moves_elsewhere(producer: Kernel, consumer: Kernel, update: int) -> bool:
    """Whether, besides the update, anything that is not elementwise is computed from what a producer is fused for."""
    start = [~k for k, parameter in enumerate(consumer.parameters) if parameter in producer.written]
    return any(at != update and _moves(consumer.steps[at].instruction) for at in _reached(consumer, start))


def _moves(instruction: Instruction) -> bool:
    return not instruction.is_elementwise and instruction.opcode not in (BITCAST, CONSTANT)


def _reached(kernel: Kernel, start: Iterable[int]) -> Iterator[int]:
    reached = set(start)
    for at, step in enumerate(kernel.steps):
        if reached.intersection(step.operands):
            reached.add(at)
            yield at


def _is_harmless(producer: Kernel, moving: Step, consumer: Kernel) -> bool:
    """Whether a producer's only access that moves elements reads just what the consumer's only update writes."""
    updates = [step for step in consumer.steps if step.instruction.opcode == "dynamic_update_slice"]
    if len(updates) != 1:
        return not updates
    slicing, updating = moving.instruction, updates[0].instruction
    if slicing.type.shape != updating.operands[1].type.shape:
        return False
    starts = [consumer.operand(updates[0], k) for k in range(2, len(updating.operands))]
    if slicing.opcode == "dynamic_slice":
        return starts == [producer.operand(moving, k) for k in range(1, len(slicing.operands))]
    if slicing.opcode != "slice" or any(stride != 1 for stride in slicing.attrs["strides"]):
        return False
    return [_number(start) for start in starts] == list(slicing.attrs["start_indices"])


def _number(instruction: Instruction) -> int | None:
    """The number that a constant is."""
    value = instruction.attrs.get("value")
    return None if value is None else int(value)
