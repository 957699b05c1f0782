"""XLA:GPU's multi-output fusion, which follows the queue: kernels that read one value, and a kernel and its reader.

Source: multi_output_fusion.cc; which shapes go together: gpu_fusible.cc (ShapesCompatibleForMultiOutputFusion).
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.lazydataclass import dataclass
from autofuse.search.rules.priority.emitters import Emitters, Kind
from autofuse.search.rules.priority.gpu_module import Module
from autofuse.search.rules.priority.hero_dimensions import emitted_reduction, exchange_of, is_race_free
from autofuse.search.rules.priority.instructions import CONSTANT, Instruction
from autofuse.search.rules.priority.kernel_bodies import Kernel, combined
from autofuse.search.rules.priority.run_times import RunTimes
from autofuse.search.rules.priority.vetoes import Vetoes

_LEAST_SHARED_BYTES = 1024
"""A value smaller than this is shared even by kernels that read different parts of it."""


@dataclass(slots=True)
class MultiOutputFusion:
    """One pass over a program."""

    module: Module
    times: RunTimes
    vetoes: Vetoes

    @property
    def emitters(self) -> Emitters:
        """What is known of kinds of kernels."""
        return self.vetoes.emitters

    def run(self) -> bool:
        """Merge, from the last value to the first. Whether anything was merged."""
        changed = False
        for value in reversed(self.module.post_order()):
            if value.opcode == CONSTANT:
                continue
            changed |= self._fuse_siblings(value)
            changed |= self._fuse_with_reader(value)
        return changed

    # ---- readers of one value --------------------------------------------------------------------------------------

    def _fuse_siblings(self, value: Instruction) -> bool:
        """Merge readers of a value, no costs asked: each fusion takes in those that come after it."""
        if value.type.size <= 1:
            return False
        readers = [kernel for kernel in self.module.readers(value) if self._may_be_sibling(kernel)]
        readers.sort(key=_rank)
        changed = False
        for position, first in enumerate(readers):
            if not first.is_fusion:
                continue
            for second in readers[position + 1 :]:
                made = self.module.join(second, first) if self._are_siblings(first, second, value) else None
                if made is not None:
                    readers.remove(second)
                    readers[position] = first = made
                    changed = True
        return changed

    def _may_be_sibling(self, kernel: Kernel) -> bool:
        return self._may_be_root(kernel) and (bool(self.module.users(kernel)) or self._is_in_tuple(kernel))

    def _is_in_tuple(self, kernel: Kernel) -> bool:
        """Whether a kernel's result is returned beside others, so that an instruction reads it."""
        return len(self.module.outputs) > 1 and self.module.is_output(kernel)

    def _are_siblings(self, first: Kernel, second: Kernel, value: Instruction) -> bool:
        if self.module.has_path(first, second) or self.module.has_path(second, first):
            return False
        if not self._go_together(first, second) or self._mixes_columns(first, second):
            return False
        if value.type.nbytes >= _LEAST_SHARED_BYTES and _reads_apart(first, second, value):
            return False
        if any(instruction.opcode == "dynamic_update_slice" for instruction in (*first.written, *second.written)):
            return False
        return not self.vetoes.over_budget(first, second, consumed=False)

    def _mixes_columns(self, first: Kernel, second: Kernel) -> bool:
        """Whether one is about a column reduction and the other about no reduction, whatever else they write."""
        one, other = emitted_reduction(self._loop_hero(first)), emitted_reduction(self._loop_hero(second))
        found = one if other is None else other if one is None else None
        return found is not None and not found.is_row

    # ---- a value and one of its readers ----------------------------------------------------------------------------

    def _fuse_with_reader(self, value: Instruction) -> bool:
        """Merge what makes a value with one reader, if that is not slower; other readers read what it then writes."""
        producer = self.module.home.get(value)
        if producer is None or not self._may_be_producer(producer):
            return False
        users = self.module.users(producer)
        if len(users) == 1 and len(users[0].roots) == 1 and not self._is_in_tuple(producer):
            return False
        candidates = sorted((user for user in users if self._may_join(producer, user)), key=_rank)
        return bool(candidates) and self.module.join(producer, candidates[0]) is not None

    def _may_be_producer(self, kernel: Kernel) -> bool:
        if len(kernel.roots) > 1 or not kernel.is_fusible or kernel.first.is_variadic:
            return False
        if any(i.opcode in ("transpose", "dynamic_update_slice") for i in kernel.instructions):
            return False
        return not kernel.is_fusion or self.emitters.kind(kernel) is Kind.LOOP

    def _may_join(self, producer: Kernel, user: Kernel) -> bool:
        if not self._may_be_root(user) or not self._go_together(producer, user):
            return False
        if self.module.has_path(producer, user, but=user):
            return False
        if self.vetoes.over_budget(producer, user, consumed=False) or self.vetoes.over_code_size(producer, user):
            return False
        merged = combined(producer, user, user.number, producer.written)
        fused = self.times.fused(producer, user, merged, writes_both=True)
        return fused is not None and fused <= self.times.launch + self.times.alone(producer) + self.times.alone(user)

    # ---- both ------------------------------------------------------------------------------------------------------

    def _may_be_root(self, kernel: Kernel) -> bool:
        """IsFusibleAsMultiOutputFusionRoot."""
        if not kernel.is_fusible:
            return False
        kind = self.emitters.kind(kernel)
        if kind is not Kind.LOOP:
            return kind in (Kind.REDUCTION, Kind.TRANSPOSE)
        return kernel.first.is_elementwise or (kernel.is_fusion and not kernel.first.is_variadic)

    def _go_together(self, first: Kernel, second: Kernel) -> bool:
        """Whether the loops of two kernels are one, a reduction's being those over what it reduces.

        FusionHeroesAreCompatible, and the test for equal shapes.
        """
        one, other = self._loop_hero(first), self._loop_hero(second)
        if (_is_plain_transpose(one) and _has_emitter(other)) or (_has_emitter(one) and _is_plain_transpose(other)):
            return False
        reductions, exchanges = (
            (emitted_reduction(one), emitted_reduction(other)),
            (exchange_of(one), exchange_of(other)),
        )
        if None not in reductions and reductions[0] != reductions[1]:
            return False
        if None not in exchanges and exchanges[0] != exchanges[1]:
            return False
        if (reductions[0] and exchanges[1]) or (exchanges[0] and reductions[1]):
            return False
        return _loop_size(one) == _loop_size(other)

    def _loop_hero(self, kernel: Kernel) -> Instruction:
        """GetRealHeroForMultiOutputFusion: a reduction or transpose that a kernel is about, else what it writes."""
        if not kernel.is_fusion:
            return kernel.first
        for root, hero in zip(kernel.written, self.emitters.heroes(kernel), strict=True):
            reduction = emitted_reduction(hero)
            if exchange_of(hero) is not None or (reduction is not None and (root is hero or is_race_free(reduction))):
                return hero
        return kernel.first


def _rank(kernel: Kernel) -> int:
    """Kernels of several results come first, then other fusions."""
    return 0 if len(kernel.roots) > 1 else 1 if kernel.is_fusion else 2


def _has_emitter(hero: Instruction) -> bool:
    """Whether it is a reduction or a transpose that is no mere loop."""
    return emitted_reduction(hero) is not None or exchange_of(hero) is not None


def _is_plain_transpose(hero: Instruction) -> bool:
    """Whether it is a transpose that is not worth tiles."""
    return hero.opcode == "transpose" and exchange_of(hero) is None


def _loop_size(hero: Instruction) -> int:
    """Elements of the loop; shapes of equally many are the same up to a reshape that moves nothing."""
    if _has_emitter(hero):
        return hero.operands[0].type.size
    return hero.type.size


def _reads_apart(first: Kernel, second: Kernel, value: Instruction) -> bool:
    """Whether two fusions read only slices of a value, which do not overlap (ParameterSlicesAreNonOverlapping)."""
    one, other = list(_slices(first, value)), list(_slices(second, value))
    if len(one) != 1 or len(other) != 1 or one[0] is None or other[0] is None:
        return False
    bounds = [(s.attrs["start_indices"], s.attrs["limit_indices"]) for s in (one[0], other[0])]
    (starts, limits), (other_starts, other_limits) = bounds
    ranges = zip(starts, limits, other_starts, other_limits, strict=True)
    return any(start >= other_limit or other_start >= limit for start, limit, other_start, other_limit in ranges)


def _slices(kernel: Kernel, value: Instruction) -> Iterator[Instruction | None]:
    """The instructions of a fusion that read a parameter; None for each that is no slice."""
    if not kernel.is_fusion:
        yield None
        return
    at = ~kernel.parameters.index(value)
    for step in kernel.steps:
        if at in step.operands:
            yield step.instruction if step.instruction.opcode == "slice" else None
