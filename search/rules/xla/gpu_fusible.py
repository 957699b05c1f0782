"""What XLA:GPU can emit as one kernel, and its rules for instruction fusion, as of early 2023.

Sources: XLA, service/gpu/gpu_fusible.cc (early 2023: a fold over contiguous dimensions has nothing behind it),
gpu/instruction_fusion.cc and gpu/ir_emission_utils.cc. Products and convolutions are library calls there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

from autofuse.ir.dtypes import F16, F32
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
WARP = 32
"""Threads of a warp; a row fold is fast from this length on, or if it divides it."""
SLOW_COLUMNS = ((32, None), (64, 32), (128, 8), (256, 3))
"""IsUnnestedReductionFasterThanElemental: a column fold is slow over fewer rows than the first number if it has fewer
columns than the second."""
LEAST_TILE = 16
"""FindTiledTranspose: both swapped dimensions are at least this long."""
MOST_REPEATED = 10
"""IsExpensiveToRepeat: folded elements per result from which on a slow fold or a window is not repeated."""
MOST_FOLDS = 8
"""kMaxUnnestedReductionOutputsPerFusion."""
SHARED_MEMORY_BYTES = 48 * 1024
"""Shared memory of a block."""
_EXPANDED = {"logistic": ("exp", "divide"), "exp2": ("exp",), "log2": ("log",)}
"""Ops that XLA expands into several, and what is expensive among these."""


# ---- folds and transposes --------------------------------------------------------------------------------------------


def is_row_fold(value: Instruction) -> bool:
    """Whether a fold over contiguous dimensions is over the minor-most."""
    return _runs(value)[-1][0]


def is_contiguous_fold(value: Instruction) -> bool:
    """Whether a fold has a kernel of its own kind, faster than a loop: IsReductionFromOrToContiguousDimensions."""
    if value.opcode != "reduce" or value.operands[0].size == 0:
        return False
    runs = _runs(value)
    folded = sum(is_folded for is_folded, _ in runs)
    if not folded or (folded > 1 and len(runs) - folded > 1):
        return False
    if runs[-1][0]:
        width = runs[-1][1]
        return width >= WARP or WARP % width == 0
    height, width = runs[-2][1], runs[-1][1]
    return not any(height < rows and (columns is None or width < columns) for rows, columns in SLOW_COLUMNS)


def _runs(fold: Instruction) -> list[tuple[bool, int]]:
    """Neighbouring dimensions that are folded, or kept, as one each: (whether folded, elements)."""
    runs: list[tuple[bool, int]] = []
    for axis, extent in enumerate(fold.operands[0].type.shape):
        is_folded = axis in fold.axes
        if extent == 1:
            continue
        if runs and runs[-1][0] == is_folded:
            runs[-1] = is_folded, runs[-1][1] * extent
        else:
            runs.append((is_folded, extent))
    return runs


def is_tiled_transpose(value: Instruction) -> bool:
    """Whether a transpose goes through tiles in shared memory: two long dimensions change places."""
    if value.opcode != "transpose":
        return False
    blocks = _blocks(value)
    match [order for order, _ in blocks]:
        case [1, 0] | [2, 1, 0]:
            swapped = blocks[0], blocks[-1]
        case [0, 2, 1]:
            swapped = blocks[1], blocks[2]
        case _:
            return False
    return all(extent >= LEAST_TILE for _, extent in swapped)


def _blocks(transpose: Instruction) -> list[tuple[int, int]]:
    """The dimensions of the result, those that stay neighbours as one: (position in the operand, elements)."""
    assert transpose.node is not None
    shape = transpose.operands[0].type.shape
    axes = [axis for axis in transpose.node.attrs["permutation"] if shape[axis] != 1]
    following = dict(zip(sorted(axes), sorted(axes)[1:], strict=False))
    blocks: list[list[int]] = []
    for axis in axes:
        if blocks and following.get(blocks[-1][-1]) == axis:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    firsts = sorted(block[0] for block in blocks)
    return [(firsts.index(block[0]), prod(shape[axis] for axis in block)) for block in blocks]


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


def has_contiguous_fold(unit: Unit) -> bool:
    """Whether a unit writes a fold over contiguous dimensions."""
    return any(is_contiguous_fold(root) for root in unit.roots)


def is_input_fusible(unit: Unit) -> bool:
    """Whether a unit is emitted around a fold or a transpose at its root."""
    return any(is_contiguous_fold(hero) or is_tiled_transpose(hero) for hero in heroes(unit))


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
    return unit.opcode == "reduce" and len(unit.root.types) == 1 and not is_contiguous_fold(unit.root)


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
    """Whether a fold or window of many elements would be computed several times: CreatesHeavyComputation."""
    if not any(_is_costly_to_repeat(member) for member in producer.members):
        return False
    return any(_reads_repeatedly(member) for root in producer.roots for member in consumer.below(root))


def _is_costly_to_repeat(member: Instruction) -> bool:
    if member.opcode == "reduce":
        return not is_contiguous_fold(member) and member.operands[0].size > MOST_REPEATED * max(member.type.size, 1)
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
        if has_contiguous_fold(consumer) and moves_data(producer):
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
        """As `xla_instruction.is_expensive`, but for what is cheap on a GPU."""
        parts = _EXPANDED.get(value.opcode, (value.opcode,))
        return is_expensive(value) and not (value.type.dtype in (F16, F32) and self.cheap.issuperset(parts))

    def fits(self, one: Unit, other: Unit, one_reads_the_other: bool) -> bool:
        """FusionFitsInBudget: shared memory, folds, and operands and results of the two as one kernel.

        `one_reads_the_other`: whether it is enough that `one` comes to read no more than before.
        """
        if _shared_memory(one) + _shared_memory(other) > SHARED_MEMORY_BYTES:
            return False
        if sum(is_contiguous_fold(root) for root in (*one.roots, *other.roots)) > MOST_FOLDS:
            return False
        results = one.output_buffers + other.output_buffers
        if len(one.operands) + len(other.operands) - 1 + results <= self.most_operands:
            return True
        operands = {*one.operands, *other.operands} - {*one.roots, *other.roots}
        if one_reads_the_other and len(operands) <= len(one.operands):
            return True
        return len(operands) + results <= self.most_operands


def _shared_memory(unit: Unit) -> int:
    """Bytes for folds across threads and tiles of transposes."""
    return sum(map(_shared_by, heroes(unit)))


def _shared_by(hero: Instruction) -> int:
    width = sum(type_.dtype.itemsize for type_ in hero.types)
    if is_contiguous_fold(hero):
        return width * (WARP if is_row_fold(hero) else 2 * WARP * (WARP + 1))
    return width * WARP * (WARP + 1) if is_tiled_transpose(hero) else 0


RULES_2023 = GpuRules()
"""As in spring 2023, with the older limit on operands."""
