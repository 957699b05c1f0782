"""What a phase keeps on chip: registers of a thread and shared memory of a block, before anything is compiled."""

from __future__ import annotations

from autofuse.lazydataclass import dataclass
from autofuse.lower.summing import sum_block
from autofuse.lower.tile import Dot
from autofuse.targets.cuda.codegen.access import stages_of, words
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan, scratch_of
from autofuse.targets.cuda.codegen.blockproducts import dot_bytes
from autofuse.targets.cuda.codegen.columns import ColumnPlan, shared_bytes
from autofuse.targets.cuda.codegen.fewrowproducts import MOST_READ, FewRowsShape, kept_bytes
from autofuse.targets.cuda.codegen.gridpoints import ThreadPlan
from autofuse.targets.cuda.codegen.producttiles import DOT_THREADS, TileShape, compute_dtype
from autofuse.targets.cuda.codegen.program import Planned
from autofuse.targets.cuda.codegen.rowgroups import Group, longest_loop
from autofuse.targets.cuda.codegen.rowscratch import RowScratch
from autofuse.targets.cuda.codegen.sharedinputs import SharedInput, shared_inputs
from autofuse.targets.cuda.codegen.sweepshapes import swept_bytes, swept_scratch
from autofuse.targets.cuda.codegen.tensorproducts import SETS
from autofuse.targets.cuda.codegen.threads import REGISTER_WORDS
from autofuse.targets.cuda.codegen.transposes import TransposePlan

_PRODUCT_REGISTERS, _MATRIX_REGISTERS = 40, 16
"""Of a thread that multiplies, beside its sums: operands and addresses. Matrix units have fragments beside them."""
_FRAGMENT_ROWS, _FRAGMENT_WORDS = 16, 4
"""Rows or columns of a fragment, and registers of a thread for it."""
_WORD = 4


@dataclass(frozen=True, slots=True)
class OnChip:
    """What stages pass on."""

    words: float
    """Registers of a thread."""
    nbytes: int
    """Shared memory of a block."""


def kept_on_chip(planned: Planned) -> OnChip:
    """What the stages of a phase keep for each other, and the tiles that it works with."""
    scratch = {buffer.name: buffer for buffer in scratch_of(planned.phase, planned.buffers)}
    each = sum(buffer.type.nbytes for buffer in scratch.values())
    match planned.plan:
        case Group() as group:
            return _of_rows(planned, group)
        case RowBlockPlan() as plan:
            size = 1 if planned.phase.row_block is None else planned.phase.row_block.size
            rows = plan.rows if planned.phase.row_block is not None else 1
            aliased = 0 if plan.aliased is None else scratch[plan.aliased].type.nbytes // size * rows
            tiles = max((dot_bytes(dot, planned.buffers, shape) for dot, shape in plan.dots), default=0)
            tiles += sum(kept_bytes(dot, shape) for dot, shape in plan.few_rows)
            tiles += max((shape.copied_bytes for _, shape in plan.few_rows), default=0)
            swept = 0 if plan.sweep is None else swept_bytes(planned.phase, plan.sweep, planned.buffers)
            return OnChip(0.0, each // size * rows - aliased + max(tiles, aliased, swept))
        case TransposePlan() as plan:
            return OnChip(0.0, sum(slot.nbytes for slot in plan.slots))
        case ColumnPlan() as plan:
            return OnChip(0.0, shared_bytes(tuple(stages_of(planned.phase)), planned.buffers, plan))
        case _:
            return OnChip(each / _WORD, 0) if each <= _WORD * REGISTER_WORDS else OnChip(0.0, 0)


def in_registers(planned: Planned) -> frozenset[str]:
    """The scratch buffers that a phase keeps in registers."""
    match planned.plan:
        case Group() as group:
            stages = tuple(stages_of(planned.phase))
            homes = RowScratch.of(stages, planned.buffers).homes(group.share(longest_loop(stages)))
            return frozenset(name for name, home in homes.items() if home == "registers")
        case ThreadPlan():
            return frozenset(buffer.name for buffer in scratch_of(planned.phase, planned.buffers))
        case RowBlockPlan():
            return swept_scratch(planned.phase)
        case _:
            return frozenset()


def read_once(planned: Planned) -> tuple[SharedInput, ...]:
    """What all rows of a block read alike, and so only once."""
    if not isinstance(planned.plan, Group) or planned.plan.points_per_block == 1:
        return ()
    return shared_inputs(tuple(stages_of(planned.phase)), planned.buffers)


def _of_rows(planned: Planned, group: Group) -> OnChip:
    stages = tuple(stages_of(planned.phase))
    scratch, longest = RowScratch.of(stages, planned.buffers), longest_loop(stages)
    share = group.share(longest)
    homes = scratch.homes(share)
    words = sum(kept.words(group.share(kept.extent)) for kept in scratch.kept if homes[kept.buffer.name] == "registers")
    most = max((kept.buffer.type.size for kept in scratch.kept), default=0)
    part = most if group.cluster == 1 else group.part(longest)
    kept = scratch.shared_bytes(share, part) * group.per_block
    return OnChip(float(words), kept + sum(one.nbytes for one in read_once(planned)))


def few_rows_registers(dot: Dot, shape: FewRowsShape) -> float:
    """Of a thread that multiplies a few rows: sums, and the elements of both operands that are read together."""
    sums = shape.rows * shape.columns * (2 if sum_block(dot.depth) < dot.depth else 1)
    return _PRODUCT_REGISTERS + words(dot.dtype) * (sums + MOST_READ)


def product_registers(dot: Dot, shape: TileShape) -> float:
    """Of a thread that multiplies: ordinary sums of a long depth are added up in blocks, and so are there twice."""
    sums = shape.rows * shape.columns * words(compute_dtype(dot)) / DOT_THREADS
    if shape.units == "matrix":
        down, across = shape.warps
        beside = shape.rows / down + shape.columns / across
        return _MATRIX_REGISTERS + SETS * _FRAGMENT_WORDS * beside / _FRAGMENT_ROWS + sums
    return _PRODUCT_REGISTERS + sums * (2 if sum_block(dot.depth) < dot.depth else 1)
