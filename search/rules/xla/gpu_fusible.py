"""What XLA:GPU can emit as one kernel, and its rules for instruction fusion, as of early 2023.

Sources: XLA, service/gpu/gpu_fusible.cc (early 2023: a reduction over contiguous dimensions has nothing behind it),
gpu/instruction_fusion.cc and gpu/ir_emission_utils.cc. Products and convolutions are library calls there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from autofuse.ir.dtypes import F16, F32
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.grouped_dimensions import WARP, GroupedReduction, grouped_reduction, grouped_transpose
from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.in_place_fusion import in_place_allows
from autofuse.search.rules.xla.instruction_fusion import base_allows, copies_too_often, is_expensive, reuses
from autofuse.search.rules.xla.unit import Kind, Unit
from autofuse.search.rules.xla.unit_graph import Units

CHEAP_2023 = frozenset(("divide", "sqrt", "rsqrt", "exp"))
"""GpuInstructionFusion::IsExpensive, spring 2023: cheap after all in f32 and f16."""
CHEAP_2021 = frozenset(("divide", "rsqrt"))
"""The same in 2020/21."""
LOOP_FUSIBLE = frozenset(
    (
        *("bitcast", "broadcast", "concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "pad"),
        *("reduce_window", "reverse", "slice", "transpose"),
    )
)
"""IsUniversallyLoopFusible: besides elementwise instructions and loop fusions."""
LEAST_TILE = 16
"""FindTiledTranspose: both swapped dimensions are at least this long."""
MOST_REPEATED = 10
"""IsExpensiveToRepeat: reduced elements per result from which on a slow reduction or a window is not repeated."""
MOST_REDUCTIONS = 8
"""kMaxUnnestedReductionOutputsPerFusion."""
SHARED_MEMORY_BYTES = 48 * 1024
"""Shared memory of a block."""
_EXPANDED = {"logistic": ("exp", "divide"), "exp2": ("exp",), "log2": ("log",)}
"""Ops that XLA expands into several, and what is expensive among these."""


# ---- reductions and transposes ---------------------------------------------------------------------------------------


def contiguous_reduction(value: Instruction) -> GroupedReduction | None:
    """A reduction that has a kernel of its own kind, faster than a loop; None for all else.

    XLA, IsReductionFromOrToContiguousDimensions.
    """
    found = grouped_reduction(value.operands[0].type.shape, value.axes) if value.opcode == "reduce" else None
    return found if found is not None and found.is_worthwhile else None


def is_contiguous_reduction(value: Instruction) -> bool:
    """Whether a value is a reduction over contiguous dimensions, see `contiguous_reduction`."""
    return contiguous_reduction(value) is not None


def is_tiled_transpose(value: Instruction) -> bool:
    """Whether a transpose goes through tiles in shared memory: two long dimensions change places."""
    if value.opcode != "transpose":
        return False
    assert value.node is not None
    shape, permutation = grouped_transpose(value.operands[0].type.shape, value.node.attrs["permutation"])
    match permutation:
        case (1, 0) | (2, 1, 0):
            swapped = shape[0], shape[-1]
        case (0, 2, 1):
            swapped = shape[1], shape[2]
        case _:
            return False
    return min(swapped) >= LEAST_TILE


# ---- what can be emitted ---------------------------------------------------------------------------------------------


def heroes(unit: Unit) -> Iterator[Instruction]:
    """By root, what decides how it is emitted: the transpose that it is made of alone, or the root itself."""
    for root in unit.roots:
        value = root
        while _passes_on(unit, value):
            value = value.operands[0]
        yield value if is_tiled_transpose(value) else root


def _passes_on(unit: Unit, value: Instruction) -> bool:
    """Whether a value is an elementwise function of one member that nothing else in the unit reads."""
    if len(value.operands) != 1 or not (value.is_elementwise or value.opcode == "bitcast"):
        return False
    operand = value.operands[0]
    return operand in unit.inside and len(unit.readers[operand]) == 1


def has_contiguous_reduction(unit: Unit) -> bool:
    """Whether a unit writes a reduction over contiguous dimensions."""
    return any(is_contiguous_reduction(root) for root in unit.roots)


def is_input_fusible(unit: Unit) -> bool:
    """Whether a unit is emitted around a reduction or a transpose at its root."""
    return any(is_contiguous_reduction(hero) or is_tiled_transpose(hero) for hero in heroes(unit))


def moves_data(unit: Unit) -> bool:
    """Whether there is a transpose in a unit: it reads with strides."""
    return any(member.opcode == "transpose" for member in unit.members)


def is_loop_fusible(unit: Unit) -> bool:
    """Whether a unit is a loop over its result, or part of one."""
    if unit.is_fusion:
        return unit.kind == "loop"
    return unit.opcode in LOOP_FUSIBLE or (unit.root.is_elementwise and bool(unit.operands))


def is_loop_producer(unit: Unit) -> bool:
    """Whether a unit can be computed inside a loop."""
    if is_loop_fusible(unit) or unit.opcode in ("iota", "constant"):
        return True
    return unit.opcode == "reduce" and len(unit.root.types) == 1 and not is_contiguous_reduction(unit.root)


def can_be_one(producer: Unit, consumer: Unit) -> bool:
    """Whether a producer can be emitted inside a consumer at all: IsProducerConsumerFusible."""
    if not is_loop_producer(producer) or producer.is_multi_output:
        return False
    if not (is_input_fusible(consumer) or is_loop_fusible(consumer) or consumer.opcode == "reduce"):
        return False
    if producer.opcode == "constant" and not (producer.root.is_scalar_constant and consumer.is_fusion):
        return False
    return in_place_allows(consumer, producer)


def repeats_too_much(producer: Unit, consumer: Unit) -> bool:
    """Whether a reduction or window of many elements would be computed several times: CreatesHeavyComputation."""
    if not any(_is_costly_to_repeat(member) for member in producer.members):
        return False
    return any(_reads_repeatedly(member) for root in producer.roots for member in consumer.below(root))


def _is_costly_to_repeat(member: Instruction) -> bool:
    if member.opcode == "reduce":
        return not is_contiguous_reduction(member) and member.operands[0].size > MOST_REPEATED * max(
            member.type.size, 1
        )
    return member.opcode == "reduce_window" and prod(member.window) > MOST_REPEATED


def _reads_repeatedly(member: Instruction) -> bool:
    if member.opcode in ("gather", "broadcast"):
        return member.size > member.operands[0].size
    return member.opcode == "reduce_window" and prod(member.window) > prod(_strides(member))


def _strides(member: Instruction) -> tuple[int, ...]:
    assert member.node is not None
    return member.node.attrs.get("window_strides", ())


# ---- the rules -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GpuRules:
    """GpuInstructionFusion::ShouldFuse, and the budget that all GPU passes keep."""

    cheap: frozenset[str] = CHEAP_2023
    """Which of the expensive instructions are cheap in f32 and f16."""
    most_operands: int = 64
    """MaxOperandsAndOutputsPerFusion: 64 up to about 2022, 96 later."""

    def should_fuse(self, units: Units, producer: Unit, consumer: Unit, may_duplicate: bool) -> bool:
        """The rules in their order."""
        expensive = self.is_expensive(producer)
        if producer.is_fusion or (expensive and reuses(consumer, producer)):
            return False
        if has_contiguous_reduction(consumer) and moves_data(producer):
            return False
        if not can_be_one(producer, consumer) or repeats_too_much(producer, consumer):
            return False
        if not base_allows(units, producer, consumer, may_duplicate, expensive):
            return False
        if not self.fits(consumer, producer, one_reads_the_other=True):
            return False
        return not (consumer.is_fusion and copies_too_often(units, producer, consumer))

    def kind(self, producer: Unit, consumer: Unit) -> Kind:  # noqa: ARG002  # other backends look at it
        """By what is at the consumer's root."""
        return "input" if is_input_fusible(consumer) else "loop"

    def materialized(self, units: Units) -> Collection[Unit]:  # noqa: ARG002  # other backends look at it
        """Nothing."""
        return ()

    def is_expensive(self, unit: Unit) -> bool:
        """Whether a unit is not to be computed more often than it must."""
        return unit.is_fusion or self.is_expensive_here(unit.root)

    def is_expensive_here(self, value: Instruction) -> bool:
        """As `instruction_fusion.is_expensive`, but for what is cheap on a GPU."""
        parts = _EXPANDED.get(value.opcode, (value.opcode,))
        return is_expensive(value) and not (value.type.dtype in (F16, F32) and self.cheap.issuperset(parts))

    def fits(self, one: Unit, other: Unit, one_reads_the_other: bool) -> bool:
        """FusionFitsInBudget: shared memory, reductions, and operands and results of the two as one kernel.

        `one_reads_the_other`: whether it is enough that `one` comes to read no more than before.
        """
        if _shared_memory(one) + _shared_memory(other) > SHARED_MEMORY_BYTES:
            return False
        if sum(is_contiguous_reduction(root) for root in (*one.roots, *other.roots)) > MOST_REDUCTIONS:
            return False
        results = one.output_buffers + other.output_buffers
        if len(one.operands) + len(other.operands) - 1 + results <= self.most_operands:
            return True
        operands = {*one.operands, *other.operands} - {*one.roots, *other.roots}
        if one_reads_the_other and len(operands) <= len(one.operands):
            return True
        return len(operands) + results <= self.most_operands


def _shared_memory(unit: Unit) -> int:
    """Bytes for reductions across threads and tiles of transposes."""
    return sum(map(_shared_by, heroes(unit)))


def _shared_by(hero: Instruction) -> int:
    width = sum(type_.dtype.itemsize for type_ in hero.types)
    reduction = contiguous_reduction(hero)
    if reduction is not None:
        return width * (WARP if reduction.is_row else 2 * WARP * (WARP + 1))
    return width * WARP * (WARP + 1) if is_tiled_transpose(hero) else 0


RULES_2023 = GpuRules()
"""As in spring 2023, with the older limit on operands."""
