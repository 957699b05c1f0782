"""What all rows read alike (scales and shifts of a normalisation) is read once for a block and kept in shared memory.

A block then takes several rows one after the other, so that little of what it reads is not of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.statements import Load, Statement, Store
from autofuse.lower.tile import Buffer, Space, Stage
from autofuse.targets.cuda.codegen.access import VECTOR_BYTES, accesses_of, is_unit_stride
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, SharedArena
from autofuse.targets.cuda.codegen.rowscratch import lane_of
from autofuse.targets.cuda.ctypes_text import memory_type

MOST_BYTES = 32 << 10
"""Of all that a block keeps of them."""
ROW_SHARE = 24
"""The rows of a block have at least so many times the bytes of what they share."""
LEAST_THREADS = 1 << 17
"""Rows are taken one after the other as long as so many threads are at work: half of what a large GPU holds."""
LEAST_BLOCKS = 128
"""Blocks are made larger as long as there are so many."""
LARGEST_BLOCK = 512
"""Threads of a block that is larger so that more rows share what they read."""


@dataclass(frozen=True, slots=True)
class SharedInput:
    """Neighbouring elements of an input that each row reads."""

    buffer: str
    dtype: DType
    first: int
    extent: int

    @property
    def nbytes(self) -> int:
        """Of shared memory."""
        return -(-self.extent * self.dtype.itemsize // 16) * 16

    def is_read_by(self, access: Load | Store, lane: Symbol | None) -> bool:
        """Whether a loop along `lane` reads these elements."""
        if lane is None or not isinstance(access, Load) or access.buffer != self.buffer or access.mask is not None:
            return False
        return lane.extent == self.extent and access.offset == index.of(lane) + index.of(self.first)


def shared_inputs(stages: Sequence[Stage], buffers: Mapping[str, Buffer]) -> tuple[SharedInput, ...]:
    """What stages read alike for each row, in order; none of it if it is too much for a block."""
    found = dict.fromkeys(one for stage in stages for s in stage.body if (one := _shared(stage, s, buffers)))
    return tuple(found) if sum(one.nbytes for one in found) <= MOST_BYTES else ()


def _shared(stage: Stage, statement: Statement, buffers: Mapping[str, Buffer]) -> SharedInput | None:
    lane = lane_of(stage)
    if lane is None or stage.symbols != (lane,) or not isinstance(statement, Load) or statement.mask is not None:
        return None
    buffer, start = buffers[statement.buffer], statement.offset - index.of(lane)
    if buffer.space is not Space.INPUT or not is_unit_stride(statement.offset, lane) or start.terms or not lane.extent:
        return None
    return SharedInput(buffer.name, buffer.type.dtype, start.constant, lane.extent)


def rows_wanted(stages: Sequence[Stage], buffers: Mapping[str, Buffer]) -> int:
    """How many rows of a block make what they share small beside what is theirs; 1 where they share nothing."""
    alike = sum(one.nbytes for one in shared_inputs(stages, buffers))
    moved = {
        (a.buffer.name, a.is_store, a.offset): lane.extent * a.buffer.type.dtype.itemsize
        for stage in stages
        if (lane := lane_of(stage)) is not None
        for a in accesses_of(stage, buffers)
        if a.buffer.space is not Space.SCRATCH
    }
    return -(-ROW_SHARE * alike // max(sum(moved.values()) - alike, 1)) if alike else 1


def write_shared_inputs(
    code: PhaseCode, stages: Sequence[Stage], buffers: Mapping[str, Buffer], threads: int, arena: SharedArena
) -> tuple[Stage, ...]:
    """Fill shared memory by all threads of a block; gives the stages that read it there."""
    names = {one: f"{one.buffer} of all rows {number}" for number, one in enumerate(shared_inputs(stages, buffers))}
    for one, name in names.items():
        code.places[name] = _filled(code, one, threads, arena)
    if names:
        code.out.line("__syncthreads();")
    return tuple(replace(stage, body=tuple(_moved(stage, s, buffers, names) for s in stage.body)) for stage in stages)


def _moved(
    stage: Stage, statement: Statement, buffers: Mapping[str, Buffer], names: Mapping[SharedInput, str]
) -> Statement:
    one, lane = _shared(stage, statement, buffers), lane_of(stage)
    if one is None or one not in names or lane is None or not isinstance(statement, Load):
        return statement
    return replace(statement, buffer=names[one], offset=index.of(lane))


def _filled(code: PhaseCode, one: SharedInput, threads: int, arena: SharedArena) -> Place:
    source, out, width = code.places[one.buffer], code.out, VECTOR_BYTES // one.dtype.itemsize
    name, type_ = code.names.fresh(f"{one.buffer}_kept"), memory_type(one.dtype)
    out.line(f"{type_}* const {name} = {arena.pointer(type_, arena.take(one.nbytes, f'{one.buffer} of all rows'))};")
    if one.first % width or one.extent % width:
        width = 1
    each = "threadIdx.x" if width == 1 else f"threadIdx.x * {width}"
    at = f"each + {one.first}" if one.first else "each"
    with out.braces(f"for (int each = {each}; each < {one.extent}; each += {threads * width})"):
        if width == 1:
            out.line(f"{name}[each] = {source.name}[{at}];")
        else:
            load, store = code.prelude.use("load_pack"), code.prelude.use("store_pack")
            out.line(f"{store}({name} + each, {load}<{width}>({source.name} + {at}));")
    return Place(name, one.dtype, "memory")
