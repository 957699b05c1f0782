"""When XLA fuses into an instruction that overwrites its operand: nothing may read that operand at other places.

XLA, service/instruction_fusion.cc, ShouldFuseInPlaceOp.
"""

from __future__ import annotations

from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.unit import Unit

_UPDATE = "dynamic_update_slice"
_SLICES = ("slice", "dynamic_slice")


def overwritten(unit: Unit) -> Instruction | None:
    """The update at the root of a unit that may be made in its operand's memory."""
    return next((root for root in unit.roots if root.opcode == _UPDATE and root.operands[0] not in unit.inside), None)


def in_place_allows(consumer: Unit, producer: Unit) -> bool:
    """Whether a producer may be computed where it, or what it reads, is being overwritten."""
    update = overwritten(consumer)
    if update is None:
        return True
    buffer = update.operands[0]
    if not consumer.is_fusion and update.operands.count(buffer) > 1:
        return False
    if buffer not in producer.roots and buffer not in producer.operands:
        return True
    moving = [member for member in producer.members if _moves(member)]
    if not moving:
        return not consumer.is_fusion or _only_updates(consumer, producer, update)
    return len(moving) == 1 and _reads_what_is_written(consumer, moving[0])


def _moves(member: Instruction) -> bool:
    return not member.is_elementwise and member.opcode not in ("bitcast", "parameter")


def _only_updates(consumer: Unit, producer: Unit, update: Instruction) -> bool:
    """Whether a fusion needs the producer's elements where they are, but for its update."""
    return not any(
        _moves(member) and member is not update for root in producer.roots for member in consumer.below(root)
    )


def _reads_what_is_written(consumer: Unit, moving: Instruction) -> bool:
    """Whether the one moving instruction of the producer takes the very elements that the consumer replaces."""
    updates = [member for member in consumer.members if member.opcode == _UPDATE]
    if len(updates) != 1 or moving.opcode not in _SLICES:
        return False
    others = [member for member in consumer.below(moving) if _moves(member) and member is not updates[0]]
    return not others and _same_place(moving, updates[0])


def _same_place(taken: Instruction, update: Instruction) -> bool:
    if taken.type.shape != update.operands[1].type.shape:
        return False
    begins = update.operands[2:]
    if taken.opcode == "dynamic_slice":
        return taken.operands[1:] == begins
    assert taken.node is not None
    attrs = taken.node.attrs
    return all(stride == 1 for stride in attrs["strides"]) and tuple(attrs["start_indices"]) == tuple(
        v.scalar for v in begins
    )
