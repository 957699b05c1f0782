"""XLA's instruction fusion: every operation, users first, takes in what it reads, as long as the backend's rules agree.

Here are the driver, the rule that keeps values with unwilling users apart, and the tests that backends share. The
backends are `cpu_pipeline.py` and `gpu_fusible.py`. Sources: XLA, service/instruction_fusion.cc and
hlo/ir/hlo_instruction.cc, spring 2023. They differ from later versions in nothing that our ops can show.

Every instruction is in a fusion once (see `unit_graph.py`). XLA clones a producer for each consumer, and may clone one
twice into a fusion that comes to read it twice; here the fusion has it already. Computed programs (bodies of loops and
branches) belong to opaque calls and are not looked into.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.in_place_fusion import in_place_allows
from autofuse.search.rules.xla.unit import Kind, Unit
from autofuse.search.rules.xla.unit_graph import Reach, Units

EXPENSIVE = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log1p", "logistic", "power", "sqrt", "rsqrt", "cbrt", "tanh"),
        *("atan2", "erf", "gather", "reduce", "reduce_window", "dot", "convolution", "custom_call"),
        *("parameter", "reciprocal"),
    )
)
"""InstructionFusion::IsExpensive. `divide` and `remainder` are in `is_expensive`; all else is cheap."""
BLOCK_STARTERS = frozenset(("concatenate", "dot", "dynamic_update_slice", "pad", "reduce", "reduce_window"))
"""FusionNodeIndexingEvaluation: instructions that emit a basic block of their own."""
MOST_COPIES = 15
"""FusionNodeIndexingEvaluation::kAllowedCodeDuplication."""


class Backend(Protocol):
    """What a backend adds to the core."""

    def should_fuse(self, units: Units, producer: Unit, consumer: Unit, may_duplicate: bool) -> bool:
        """Whether `consumer` may take in `producer`, which it reads."""
        ...

    def kind(self, producer: Unit, consumer: Unit) -> Kind:
        """The kind of the fusion of the two."""
        ...

    def materialized(self, units: Units) -> Collection[Unit]:
        """Units that are not to be duplicated whatever their users are."""
        ...


class InstructionFusion:
    """One run of the pass over a program."""

    def __init__(self, units: Units, backend: Backend, may_duplicate: bool) -> None:
        """`may_duplicate`: whether a value with several users may be computed in each."""
        self._units = units
        self._backend = backend
        self._may_duplicate = may_duplicate
        self._queue = units.post_order()
        self._position = {unit: position for position, unit in enumerate(self._queue)}
        self._apart: set[Unit] = unfusible(units, backend) if may_duplicate else set()

    def run(self) -> bool:
        """Fuse until no unit takes in another; whether anything was fused."""
        changed = False
        while self._queue:
            consumer = self._queue.pop()
            made = self._take_one_in(consumer) if consumer in self._units and is_fusible(consumer) else None
            if made is not None:
                changed = True
                self._position[made] = len(self._queue)
                self._queue.append(made)
        return changed

    def _take_one_in(self, consumer: Unit) -> Unit | None:
        """Fuse the nearest producer that may be fused, and can be here."""
        del self._position[consumer]
        producers = [unit for unit in self._units.makers(consumer) if unit in self._position]
        for producer in sorted(producers, key=self._position.__getitem__, reverse=True):
            if is_fusible(producer) and producer not in self._apart and self._agrees(producer, consumer):
                made = self._units.fuse(producer, consumer, self._backend.kind(producer, consumer))
                if made is not None:
                    if consumer.is_fusion and consumer in self._apart:
                        self._apart.add(made)
                    return made
        return None

    def _agrees(self, producer: Unit, consumer: Unit) -> bool:
        return self._backend.should_fuse(self._units, producer, consumer, self._may_duplicate)


# ---- values with unwilling users -------------------------------------------------------------------------------------


def unfusible(units: Units, backend: Backend) -> set[Unit]:
    """What is fused into none of its users, as not all of them would take it, and it is no cheap view of one operand.

    XLA, InstructionFusion::ComputeGloballyUnfusible.
    """
    found = set(backend.materialized(units))
    reach = Reach(units)
    agreed: dict[tuple[Unit, Unit], bool] = {}
    for producer in reversed(units.post_order()):
        if producer in found or _is_at_most_unary(units, producer) or _reads_no_more_than_it_writes(producer):
            continue
        if not (is_fusible(producer) and _all_paths_fuse(units, backend, reach, producer, found, agreed)):
            found.add(producer)
    return found


def _is_at_most_unary(units: Units, producer: Unit) -> bool:
    """Whether at most one operand has the rank of the result, extents of 1 not counted."""
    rank = max(root.true_rank for root in producer.roots)
    slots = producer.operands if producer.is_fusion else producer.root.operands
    return sum(value.true_rank >= rank and not _is_tiny(units, value) for value in slots) <= 1


def _is_tiny(units: Units, value: Instruction) -> bool:
    """Whether an operand is a broadcast, an iota or a constant of one element."""
    home = units.home(value)
    return value.is_scalar_constant or (home is not None and home.opcode in ("broadcast", "iota"))


def _reads_no_more_than_it_writes(producer: Unit) -> bool:
    return sum(value.size for value in producer.operands) <= producer.size


def _all_paths_fuse(
    units: Units,
    backend: Backend,
    reach: Reach,
    producer: Unit,
    apart: Collection[Unit],
    agreed: dict[tuple[Unit, Unit], bool],
) -> bool:
    """Whether on every path from a producer to a user each step could be fused. `agreed`: answers so far."""
    todo = list(units.users(producer))
    seen = set(todo)
    while todo:
        consumer = todo.pop()
        if not is_fusible(consumer):
            return False
        for operand in units.makers(consumer):
            if not reach(producer, operand):
                continue
            edge = operand, consumer
            if edge not in agreed:
                agreed[edge] = backend.should_fuse(units, operand, consumer, True)
            if operand in apart or not agreed[edge]:
                return False
            if operand is not producer and operand not in seen:
                seen.add(operand)
                todo.append(operand)
    return True


# ---- tests that backends share ---------------------------------------------------------------------------------------


def is_fusible(unit: Unit) -> bool:
    """Whether a unit may take part at all. XLA, HloInstruction::IsFusible: opaque calls may, and are refused later."""
    return unit.opcode != "parameter"


def base_allows(units: Units, producer: Unit, consumer: Unit, may_duplicate: bool, expensive: bool) -> bool:
    """XLA, InstructionFusion::ShouldFuse: the root stays, and what is expensive is computed once.

    `expensive`: whether the backend finds that of the producer.
    """
    if units.is_exit(producer):
        return False
    duplicates = units.users(producer) != (consumer,)
    if duplicates and (not may_duplicate or expensive) and not _is_always_duplicable(producer):
        return False
    return in_place_allows(consumer, producer)


def _is_always_duplicable(producer: Unit) -> bool:
    """A broadcast, or a conversion to something larger."""
    if producer.opcode == "convert":
        return producer.root.nbytes > producer.root.operands[0].nbytes
    return producer.opcode == "broadcast"


def is_expensive(value: Instruction) -> bool:
    """Whether an instruction is not to be computed more often than it must. Integers divided by a number are cheap."""
    if value.opcode in ("divide", "remainder"):
        return not (value.type.dtype.is_integer and is_repeated_constant(value.operands[1]))
    return value.opcode in EXPENSIVE


def is_repeated_constant(value: Instruction) -> bool:
    """Whether a value is a constant of one element, or a broadcast of one."""
    source = value.operands[0] if value.opcode == "broadcast" else value
    return source.is_scalar_constant


def reuses(consumer: Unit, producer: Unit) -> bool:
    """Whether some of the consumer's elements need the same element of the producer."""
    return not consumer.reused.isdisjoint(producer.roots)


def copies_too_often(units: Units, producer: Unit, consumer: Unit) -> bool:
    """Whether a fusion would compute a producer at too many indices, or a block of its own at more than one.

    XLA, FusionNodeIndexingEvaluation::CodeDuplicationTooHigh; asked of consumers that are fusions already.
    """
    if producer.opcode == "broadcast":
        return False
    count = consumer.index_counts.get(producer.root, 0.0)
    if count > MOST_COPIES:
        return True
    return producer.opcode in BLOCK_STARTERS and (count > 1 or _real_users(units, producer) > 1)


def _real_users(units: Units, producer: Unit) -> int:
    """Users, those inside fusions counted one by one."""
    return sum(
        len(user.readers[root]) if user.is_fusion else 1 for root in producer.roots for user in units.readers(root)
    )
