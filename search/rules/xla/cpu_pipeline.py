"""XLA:CPU's fusion: one run of instruction fusion with duplication, single-output kernels only.

Sources: XLA, service/cpu/cpu_instruction_fusion.cc as of 2025/26 (near jax 0.10), and cpu_compiler.cc for the order of
passes. Multi-output and horizontal fusion do not run there by default and are not modelled. Nor are library fusions
(oneDNN, YNN), which from jaxlib 0.10.2 on take in sums, maxima and their neighbours on x86 Linux.

`reductions="tree32"` is the rewriting of long reductions (tree_reduction_rewriter.cc). A reduction over more than 32
elements of a dimension becomes a chain of reduce-windows, which fuse with nothing, and a small reduction, which does.
Our groups have one op for all of them: it runs where the small reduction does. So the operations that feed a long
reduction are kernels of their own, and what follows it may be fused with it. The reduce-windows, kernels of their own
in XLA, are no kernels here.

With the defaults and library fusions turned off (`--xla_cpu_experimental_ynn_fusion_type=`), jaxlib 0.10.2 makes the
kernels of the examples in the tests, reduce-windows and reciprocals aside. `unit_graph.py` says what it
changes that an op is in a kernel once and that views are free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from autofuse.ir.dtypes import BF16, F32
from autofuse.lazydataclass import dataclass
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.hlo_translation import Rewrites
from autofuse.search.rules.xla.instruction_fusion import (
    InstructionFusion,
    base_allows,
    copies_too_often,
    is_expensive,
    is_repeated_constant,
    reuses,
)
from autofuse.search.rules.xla.unit import Kind, Unit
from autofuse.search.rules.xla.unit_graph import Units

LOOP_FUSIBLE = frozenset(
    (
        *("bitcast", "broadcast", "concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "iota", "pad"),
        *("reduce", "reverse", "slice", "transpose"),
    )
)
"""CpuInstructionFusion, IsLoopFusible: besides elementwise instructions."""
MOST_JOINED = 8
"""CpuInstructionFusion: a concatenation of more operands is left alone, and takes nothing in."""
LONG_JOIN_ELEMENTS = 128
"""The same for one along the minor-most dimension that is this long (2025/26) ..."""
LONG_JOIN_BYTES = 64
"""... or, in 2026, has this many bytes in that dimension ..."""
LARGE_JOIN_BYTES = 2048
"""... and this many in all."""
SMALL_VECTOR_BYTES = 16 * 1024
"""kFusionThresholdBytes: a matrix is computed inside its product with a vector below this size."""
MOST_REDUCTIONS = 5
"""A fusion with more reductions takes in no other."""
TREE_WINDOW = 32
"""TreeReductionRewriter's window: reductions over more elements of a dimension are split."""


@dataclass(frozen=True, slots=True)
class CpuRules:
    """CpuInstructionFusion::ShouldFuse and what it asks."""

    concatenations: Literal["elements", "bytes"] = "elements"
    """Which limit there is on concatenations along the minor-most dimension: of 2025/26 or of 2026."""
    vector_products: bool = False
    """Whether a product with a vector keeps a result of rank 1, and so the rules for these apply. In 2026 products are
    made canonical before, with results of rank 2."""
    keeps_softmax_input: bool = False
    """Whether what a stable softmax is computed from is written once, as in 2026, not computed for each of its uses."""

    def should_fuse(self, units: Units, producer: Unit, consumer: Unit, may_duplicate: bool) -> bool:
        """The rules in their order: each either decides or leaves the decision to the next."""
        if producer.opcode == "constant" and not producer.root.is_scalar_constant:
            return False
        if self._is_product_of_add(units, producer, consumer):
            return True
        if self._is_out(units, producer, consumer):
            return False
        expensive = self.is_expensive(producer)
        if expensive and reuses(consumer, producer):
            return False
        if not base_allows(units, producer, consumer, may_duplicate, expensive):
            return False
        if consumer.is_fusion:
            return self._may_grow(units, producer, consumer, may_duplicate)
        if producer.opcode == "constant":
            return False
        if self.vector_products and is_small_product(producer, consumer):
            return True
        return is_loop_fusible(consumer)

    def kind(self, producer: Unit, consumer: Unit) -> Kind:
        """A product with the add behind it, or a loop."""
        return "output" if _is_product_into_add(producer, consumer) else "loop"

    def materialized(self, units: Units) -> Collection[Unit]:
        """What stable softmaxes are computed from."""
        return set(_softmax_inputs(units)) if self.keeps_softmax_input else set()

    def is_expensive(self, producer: Unit) -> bool:
        """CpuInstructionFusion, IsExpensive. Of integers, those are cheap that divide a number, not the reverse."""
        value = producer.root
        match producer.opcode:
            case "fusion":
                return True
            case "convert":
                return value.operands[0].type.dtype == F32 and value.type.dtype == BF16
            case "divide" | "remainder":
                return not (value.type.dtype.is_integer and is_repeated_constant(value.operands[0]))
            case _:
                return is_expensive(value)

    def _is_product_of_add(self, units: Units, producer: Unit, consumer: Unit) -> bool:
        return self.vector_products and is_product_of_add(units, producer, consumer)

    def _is_out(self, units: Units, producer: Unit, consumer: Unit) -> bool:
        """Whether a unit by itself cannot be fused: kept for its product, no loop, or a long concatenation."""
        if any(self._is_product_of_add(units, maker, producer) for maker in units.makers(producer)):
            return True
        return not is_loop_fusible(producer) or self._is_long_join(producer) or self._is_long_join(consumer)

    def _is_long_join(self, unit: Unit) -> bool:
        """Whether a unit is a concatenation of many or of long parts."""
        if unit.opcode != "concatenate":
            return False
        type_ = unit.root.type
        if len(unit.root.operands) > MOST_JOINED:
            return True
        node = unit.root.node
        assert node is not None
        if type_.rank < 2 or node.attrs["dimension"] != type_.rank - 1:
            return False
        if self.concatenations == "elements":
            return type_.shape[-1] >= LONG_JOIN_ELEMENTS
        return type_.shape[-1] * type_.dtype.itemsize >= LONG_JOIN_BYTES and type_.nbytes >= LARGE_JOIN_BYTES

    def _may_grow(self, units: Units, producer: Unit, consumer: Unit, may_duplicate: bool) -> bool:
        """Whether a fusion takes in one more unit."""
        reductions = sum(member.opcode == "reduce" for member in consumer.members)
        if producer.opcode == "reduce" and reductions > MOST_REDUCTIONS:
            return False
        if producer.is_fusion or (may_duplicate and copies_too_often(units, producer, consumer)):
            return False
        return consumer.kind == "loop"


def is_loop_fusible(unit: Unit) -> bool:
    """Whether an instruction can be part of a loop, or its root."""
    return not unit.is_fusion and (unit.root.is_elementwise or unit.opcode in LOOP_FUSIBLE)


def is_product_of_add(units: Units, producer: Unit, consumer: Unit) -> bool:
    """Whether an add takes in the matrix-vector product that only it reads, once."""
    return _is_product_into_add(producer, consumer) and (
        units.users(producer) == (consumer,)
        and consumer.root.operands.count(producer.root) == 1
        and not units.is_exit(producer)
    )


def is_small_product(producer: Unit, consumer: Unit) -> bool:
    """Whether a matrix is computed inside its product with a small vector."""
    if not _is_vector_product(consumer):
        return False
    pairs = zip(consumer.root.operands, reversed(consumer.root.operands), strict=True)
    return any(
        matrix is producer.root and vector.type.rank == 1 and vector.nbytes < SMALL_VECTOR_BYTES
        for matrix, vector in pairs
    )


def _is_vector_product(unit: Unit) -> bool:
    return unit.opcode == "dot" and unit.root.type.rank <= 1


def _is_product_into_add(producer: Unit, consumer: Unit) -> bool:
    if consumer.opcode != "add" or not _is_vector_product(producer):
        return False
    node = producer.root.node
    assert node is not None
    return not node.attrs["lhs_batching_dimensions"]


def _softmax_inputs(units: Units) -> Iterator[Unit]:
    """Elementwise values from which the maximum over an axis is subtracted before an exponential."""
    for unit in units.post_order():
        if not unit.is_fusion and unit.root.is_elementwise and _is_softmax_input(units, unit.root):
            yield unit


def _is_softmax_input(units: Units, value: Instruction) -> bool:
    readers = [user.root for user in units.readers(value) if not user.is_fusion]
    peaks = {reader for reader in readers if _is_maximum_of(reader, value)}
    return any(
        reader.opcode == "subtract"
        and reader.operands[0] is value
        and reader.operands[1].opcode == "broadcast"
        and reader.operands[1].operands[0] in peaks
        and any(user.opcode == "exp" for user in units.readers(reader))
        for reader in readers
    )


def _is_maximum_of(reader: Instruction, value: Instruction) -> bool:
    node = reader.node
    if reader.opcode != "reduce" or node is None or node.op != "reduce":
        return False
    return reader.operands[0] is value and node.attrs["combiner"] == "maximum"


@dataclass(frozen=True, slots=True)
class XlaCpu:
    """What XLA:CPU fuses, on this code generator."""

    name: str = "rule:xla-cpu"
    reductions: Literal["none", "tree32"] = "tree32"
    """Whether long reductions are split into trees before fusion, as jaxlib does unless a library takes them."""
    reciprocals: bool = True
    """Whether division by a broadcast array is made a product before fusion, as in 2026."""
    rules: CpuRules = CpuRules()

    def partition(self, context: Context) -> Partition:
        split_above = TREE_WINDOW if self.reductions == "tree32" else None
        units = Units(Grouping(context), Rewrites(split_above, self.reciprocals))
        InstructionFusion(units, self.rules, may_duplicate=True).run()
        return units.grouping.partition()
