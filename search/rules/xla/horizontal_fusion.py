"""XLA:GPU's horizontal fusion: kernels that do not read one another, but feed the same one or the results, become one.

Sources: XLA, service/gpu/horizontal_loop_fusion.cc and horizontal_input_fusion.cc, spring 2023. Loops of any shapes are
flattened and joined there; here they are loops of one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.lazydataclass import dataclass
from autofuse.search.rules.xla.gpu_fusible import GpuRules, has_contiguous_reduction
from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.multi_output_fusion import are_compatible, loop_shape
from autofuse.search.rules.xla.unit import Unit
from autofuse.search.rules.xla.unit_graph import Units

MOST_ELEMENTS = 128 * 2048
"""IsProfitableFusionCandidate, kShapeThreshold: larger loops keep a device busy alone."""
MOST_INSTRUCTIONS = 30
"""kInstrCountThreshold: of a fusion, see `count_instructions`."""
MOST_FUSED = 32
"""kMaxFusionBatchSize."""
PARAMETER_BYTES = 4000
"""kMaxCudaParamSize: the operands and results of all loops but the first of a batch take less, 8 bytes each."""
POINTER_BYTES = 8


@dataclass(frozen=True, slots=True)
class HorizontalLoopFusion:
    """One run of the pass for loops."""

    units: Units

    def run(self) -> bool:
        """Visit what reads several loops, users first; whether any were fused."""
        changed = False
        for root in [unit.root for unit in reversed(self.units.post_order())]:
            consumer = self.units.home(root)
            if consumer is not None:
                for batch in self._batches(self._candidates(consumer)):
                    changed |= join_all(self.units, batch)
        return changed

    def _candidates(self, consumer: Unit) -> list[Unit]:
        """The loops that a unit reads and that can be joined."""
        found = [unit for unit in self.units.makers(consumer) if _is_loop(unit)]
        shared = _shared_parameters(found)
        suited = [
            unit
            for unit in found
            if _feeds_only(self.units, unit, consumer) and _is_small(unit) and shared.isdisjoint(unit.operands)
        ]
        return sorted(suited, key=_like)

    def _batches(self, candidates: Sequence[Unit]) -> Iterator[list[Unit]]:
        """Runs of loops that are alike, as long as a kernel's parameters allow."""
        batch: list[Unit] = []
        for unit in candidates:
            if batch and (_like(unit) != _like(batch[0]) or not _fits_in(batch, unit)):
                yield batch
                batch = []
            batch.append(unit)
        yield batch


@dataclass(frozen=True, slots=True)
class HorizontalInputFusion:
    """One run of the pass for reductions."""

    units: Units
    rules: GpuRules

    def run(self) -> bool:
        """Visit what reads several reductions, definitions first; whether any were fused."""
        changed = False
        for root in [unit.root for unit in self.units.post_order()]:
            consumer = self.units.home(root)
            if consumer is not None:
                changed |= self._fuse_reductions(consumer)
        return changed

    def _fuse_reductions(self, consumer: Unit) -> bool:
        found = [
            unit
            for unit in self.units.makers(consumer)
            if has_contiguous_reduction(unit) and _feeds_only(self.units, unit, consumer)
        ]
        changed = False
        anchor: Unit | None = None
        for unit in sorted(found, key=lambda unit: (loop_shape(unit), count_instructions(unit))):
            made = self._joined(anchor, unit)
            changed |= made is not None
            anchor = made or unit
        return changed

    def _joined(self, anchor: Unit | None, unit: Unit) -> Unit | None:
        if anchor is None or not are_compatible(anchor, unit):
            return None
        if not self.rules.fits(anchor, unit, one_reads_the_other=False):
            return None
        return self.units.join(anchor, unit, "input")


def join_all(units: Units, batch: Sequence[Unit]) -> bool:
    """Join units into the first of them; whether any was. Those that this code generator cannot join stay out."""
    changed = False
    first: Unit | None = None
    for unit in batch:
        made = None if first is None else units.join(first, unit, "input")
        changed |= made is not None
        first = made or first or unit
    return changed


def count_instructions(unit: Unit) -> int:
    """Of a fusion, with its parameters and the tuple of its results if there are several; 1 for an instruction."""
    if not unit.is_fusion:
        return 1
    return len(unit.members) + len(unit.operands) + unit.is_multi_output


def _is_loop(unit: Unit) -> bool:
    """Whether a unit is a loop, or can be one, whose results have one element type."""
    if unit.is_fusion:
        return unit.kind == "loop" and len({root.type.dtype for root in unit.roots}) == 1
    return unit.root.is_elementwise and bool(unit.operands)


def _feeds_only(units: Units, unit: Unit, consumer: Unit) -> bool:
    """Whether nothing but `consumer` and the program's root reads a unit."""
    return all(user is consumer or units.is_exit(user) for user in units.users(unit))


def _is_small(unit: Unit) -> bool:
    return unit.root.size <= MOST_ELEMENTS and count_instructions(unit) <= MOST_INSTRUCTIONS


def _shared_parameters(found: Sequence[Unit]) -> set[Instruction]:
    """The program's parameters that several units read."""
    seen: set[Instruction] = set()
    shared: set[Instruction] = set()
    for unit in found:
        parameters = {value for value in unit.operands if value.opcode == "parameter"}
        shared |= seen & parameters
        seen |= parameters
    return shared


def _like(unit: Unit) -> tuple[str, int, int]:
    """What loops that are joined have in common."""
    return unit.root.type.dtype.name, len(unit.roots), count_instructions(unit)


def _fits_in(batch: Sequence[Unit], unit: Unit) -> bool:
    """Whether one more unit can join, by number and by parameters of the kernel."""
    parameters = sum(len(member.operands) + len(member.roots) for member in (*batch[1:], unit))
    return len(batch) < MOST_FUSED and POINTER_BYTES * parameters < PARAMETER_BYTES
