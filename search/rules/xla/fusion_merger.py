"""XLA:GPU's fusion merger: a loop fusion is computed in all of its users, or stays.

Source: XLA, service/gpu/fusion_merger.cc of spring 2023 (`time`), and TensorFlow's copy of about 2021 (`bytes`), which
had no performance model and merged into fusions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autofuse.lazydataclass import dataclass
from autofuse.search.rules.xla.gpu_fusible import (
    GpuRules,
    can_be_one,
    has_contiguous_reduction,
    is_contiguous_reduction,
)
from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.performance_model import Gpu, fused_us, too_large, unfused_us
from autofuse.search.rules.xla.unit import Kind, Unit
from autofuse.search.rules.xla.unit_graph import Units

MOST_TRANSPOSED = 0.5
"""FusionMerger: a reduction takes in a fusion if transposes make fewer than this share of its elements."""
MOST_BYTES = 1.10
"""FusionMerger, 2021: bytes read after a merge per bytes moved before."""
MergeRule = Literal["time", "bytes"]


@dataclass(frozen=True, slots=True)
class FusionMerger:
    """One run of the pass."""

    units: Units
    rules: GpuRules
    gpu: Gpu
    by: MergeRule

    def run(self) -> bool:
        """Visit fusions, definitions first; whether any was merged. What becomes a fusion meanwhile is not visited."""
        changed = False
        for root in [unit.root for unit in self.units.post_order() if unit.is_fusion]:
            producer = self.units.home(root)
            users = () if producer is None else self.units.users(producer)
            if producer is not None and self._is_merged(producer, users):
                kinds: dict[Unit, Kind] = {user: user.kind or self.rules.kind(producer, user) for user in users}
                changed |= self.units.fuse_all(producer, kinds)
        return changed

    def _is_merged(self, producer: Unit, users: Sequence[Unit]) -> bool:
        """The conditions in their order."""
        if not users or producer.kind != "loop" or producer.is_multi_output:
            return False
        return self._pays_in_time(producer, users) if self.by == "time" else self._pays_in_bytes(producer, users)

    def _pays_in_time(self, producer: Unit, users: Sequence[Unit]) -> bool:
        """The conditions of 2023."""
        if any(user.opcode == "bitcast" or not can_be_one(producer, user) for user in users):
            return False
        if any(has_contiguous_reduction(user) for user in users) and _is_mostly_transposed(producer):
            return False
        if not all(self.rules.fits(user, producer, one_reads_the_other=True) for user in users):
            return False
        if any(too_large(producer, user) for user in users):
            return False
        return fused_us(self.gpu, producer, users) <= unfused_us(self.gpu, producer, users)

    def _pays_in_bytes(self, producer: Unit, users: Sequence[Unit]) -> bool:
        """The conditions of 2021."""
        if not all(_is_loop_or_reduction(user) for user in users):
            return False
        if any(self.rules.is_expensive_here(member) for member in producer.members):
            return False
        read = sum(_bytes_read(producer, value) for value in producer.operands)
        return read * len(users) <= MOST_BYTES * max(1, read + producer.nbytes * (len(users) + 1))


def _is_mostly_transposed(unit: Unit) -> bool:
    """Whether transposes make a large share of what a unit writes."""
    transposed = sum(member.size for member in unit.members if member.opcode == "transpose")
    return transposed >= MOST_TRANSPOSED * unit.size


def _is_loop_or_reduction(unit: Unit) -> bool:
    """Whether a unit is a fusion that is a loop, or has a reduction over contiguous dimensions at its root."""
    return unit.kind == "loop" or (unit.kind == "input" and any(map(is_contiguous_reduction, unit.roots)))


def _bytes_read(unit: Unit, value: Instruction) -> int:
    """Bytes of an operand that a unit reads: of slices alone, if only slices read it."""
    readers = unit.readers[value]
    if all(reader.opcode in ("slice", "dynamic_slice") for reader in readers):
        return sum(reader.nbytes for reader in readers)
    return value.nbytes
