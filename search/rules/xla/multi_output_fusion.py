"""XLA:GPU's multi-output fusion: kernels of one shape that read the same, and a value and one of its users, become one.

Source: XLA, service/gpu/multi_output_fusion.cc and gpu_fusible.cc, early 2023. There, users of a fusion with several
outputs read these through get-tuple-elements; here they read them directly, and rules about a fusion's users are asked
of those of each output. An output that only a new fusion's own members read is none.
"""

from __future__ import annotations

from autofuse.search.rules.xla.gpu_fusible import (
    GpuRules,
    heroes,
    is_contiguous_reduction,
    is_input_fusible,
    is_loop_producer,
    is_tiled_transpose,
    moves_data,
)
from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.in_place_fusion import overwritten
from autofuse.search.rules.xla.performance_model import Gpu, fused_us, too_large, unfused_us
from autofuse.search.rules.xla.unit import Kind, Unit
from autofuse.search.rules.xla.unit_graph import Reach, Units


class MultiOutputFusion:
    """One run of the pass."""

    def __init__(self, units: Units, rules: GpuRules, gpu: Gpu) -> None:
        self._units = units
        self._rules = rules
        self._gpu = gpu
        self._reach = Reach(units)

    def run(self) -> bool:
        """Visit all values, users first; whether anything was fused."""
        changed = False
        values = [root for unit in self._units.post_order() for root in unit.roots]
        for value in reversed(values):
            if value.opcode != "constant" and self._units.home(value) is not None:
                changed |= self._fuse_siblings(value)
                changed |= self._fuse_with_a_user(value)
        return changed

    # ---- siblings ------------------------------------------------------------------------------------------------

    def _fuse_siblings(self, value: Instruction) -> bool:
        """Join the readers of a value: each fusion takes in all that suit it."""
        readers = sorted(self._units.readers(value), key=_rank)
        changed = False
        position = 0
        while position < len(readers):
            if readers[position].is_fusion and self._may_be_sibling(readers[position]):
                changed |= self._take_in(readers, position)
            position += 1
        return changed

    def _take_in(self, readers: list[Unit], position: int) -> bool:
        """Join later readers into the one at `position`."""
        changed = False
        following = position + 1
        while following < len(readers):
            if self._are_siblings(readers[position], readers[following]):
                made = self._join_siblings(readers[position], readers[following])
                if made is not None:
                    readers[position] = made
                    del readers[following]
                    changed = True
                    continue
            following += 1
        return changed

    def _join_siblings(self, first: Unit, second: Unit) -> Unit | None:
        kind = "input" if second.kind == "input" else first.kind
        assert kind is not None
        return self._join(first, second, kind)

    def _are_siblings(self, first: Unit, second: Unit) -> bool:
        if first not in self._units or second not in self._units:
            return False
        if not self._may_be_sibling(second) or self._reach.connects(first, second):
            return False
        if not are_compatible(first, second) or _updates(first) or _updates(second):
            return False
        return self._rules.fits(first, second, one_reads_the_other=False)

    def _may_be_sibling(self, unit: Unit) -> bool:
        if unit not in self._units or not self._units.users(unit) or not may_be_root(unit):
            return False
        return unit.kind == "input" or is_contiguous_reduction(unit.root) or len(unit.root.types) == 1

    # ---- a value and its user ------------------------------------------------------------------------------------

    def _fuse_with_a_user(self, value: Instruction) -> bool:
        """Compute a value in one of its users, which writes it for the others."""
        producer = self._units.home(value)
        if producer is None or not self._may_be_output(producer):
            return False
        found = [user for user in self._units.users(producer) if self._suits(producer, user)]
        if not found:
            return False
        user = min(found, key=_rank)
        return self._join(user, producer, user.kind or self._rules.kind(producer, user)) is not None

    def _may_be_output(self, producer: Unit) -> bool:
        """Whether a unit may become one more output of a user; with one user, it may be in that without being one."""
        users = self._units.users(producer)
        if producer.is_multi_output or not users or (len(users) == 1 and not users[0].is_multi_output):
            return False
        return overwritten(producer) is None and is_loop_producer(producer) and not moves_data(producer)

    def _suits(self, producer: Unit, user: Unit) -> bool:
        if not may_be_root(user) or not are_compatible(producer, user):
            return False
        others = (maker for maker in self._units.makers(user) if maker is not producer)
        if any(self._reach(producer, other) for other in others):
            return False
        if not self._rules.fits(producer, user, one_reads_the_other=False) or too_large(producer, user):
            return False
        return fused_us(self._gpu, producer, (user,), writes=True) <= unfused_us(self._gpu, producer, (user,))

    def _join(self, first: Unit, second: Unit, kind: Kind) -> Unit | None:
        made = self._units.join(first, second, kind)
        if made is not None:
            self._reach = Reach(self._units)
        return made


def may_be_root(unit: Unit) -> bool:
    """Whether a unit can be one of several outputs: IsFusibleAsMultiOutputFusionRoot."""
    return is_input_fusible(unit) or unit.kind == "loop" or (not unit.is_fusion and _is_computed(unit.root))


def are_compatible(first: Unit, second: Unit) -> bool:
    """Whether two units are loops over the same: ShapesCompatibleForMultiOutputFusion. Element types do not matter."""
    one, other = _hero(first), _hero(second)
    kinds = _is_special(one), _is_special(other)
    if all(kinds):
        return one.opcode == other.opcode and _described(one) == _described(other)
    shapes = loop_shape(first), loop_shape(second)
    if shapes[0] == shapes[1]:
        return True
    return any(kinds) and _loop_size(one) == _loop_size(other)


def loop_shape(unit: Unit) -> tuple[int, ...]:
    """What a unit's kernel walks: the operand of the reduction or transpose it is emitted around, or its result."""
    hero = _hero(unit)
    return (hero.operands[0] if _is_special(hero) else hero).type.shape


def _loop_size(hero: Instruction) -> int:
    return (hero.operands[0] if _is_special(hero) else hero).type.size


def _hero(unit: Unit) -> Instruction:
    found = list(heroes(unit))
    return next((hero for hero in found if _is_special(hero)), found[0])


def _is_special(hero: Instruction) -> bool:
    return is_contiguous_reduction(hero) or is_tiled_transpose(hero)


def _described(hero: Instruction) -> tuple[object, ...]:
    """What two reductions, or two transposes, must have in common."""
    axes = hero.axes
    if hero.opcode == "transpose":
        assert hero.node is not None
        axes = hero.node.attrs["permutation"]
    return hero.operands[0].type.shape, hero.type.shape, axes


def _is_computed(root: Instruction) -> bool:
    return root.is_elementwise and root.opcode != "constant"


def _updates(unit: Unit) -> bool:
    return any(root.opcode == "dynamic_update_slice" for root in unit.roots)


def _rank(unit: Unit) -> int:
    """Fusions with several outputs come first, then other fusions."""
    return 0 if unit.is_multi_output else 1 if unit.is_fusion else 2
