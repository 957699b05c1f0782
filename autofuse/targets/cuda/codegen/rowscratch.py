"""What the stages of a row form keep on chip for each other, and where: registers, or shared memory.

Scratch whose elements are read only by the thread that wrote them needs no barrier. It is in registers as long as they
are enough, else in shared memory, which the blocks of a cluster share out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from autofuse.ir import index
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import affines, operands
from autofuse.lower.statements import ArgReduce, Carry, Leave, Next, Reduce, Repeat, Scalar, Scan, Store
from autofuse.lower.tile import Buffer, Space, Stage
from autofuse.targets.cuda.codegen.access import Access, accesses_of, words

OWNED_WORDS = 64
"""32-bit registers of a thread for all that it keeps from one stage to the next."""

Home = Literal["registers", "own", "shared"]
"""`own`: shared memory of which each thread reaches only what it wrote itself."""


def lane_of(stage: Stage) -> Symbol | None:
    """The symbol spread over threads: what the stage names, else its innermost; None for single points.

    A scan's is only what the stage names: else every thread walks it in order.
    """
    if stage.vectorised is not None or stage.is_ordered or not stage.symbols:
        return stage.vectorised
    return stage.symbols[-1]


@dataclass(frozen=True, slots=True)
class Kept:
    """One scratch buffer."""

    buffer: Buffer
    extent: int
    """Elements that threads share out; 0 where they read what others wrote."""
    uniform: bool
    """Whether all of its elements are one value, so that a register holds it."""
    first: int
    """Of the stages that touch it, by number."""
    last: int

    def words(self, share: int) -> int:
        """Registers of a thread that has `share` elements of a row."""
        return words(self.buffer.type.dtype) * (1 if self.uniform else share)


@dataclass(frozen=True, slots=True)
class RowScratch:
    """All scratch of one grid point."""

    kept: tuple[Kept, ...]

    @staticmethod
    def of(stages: Sequence[Stage], buffers: Mapping[str, Buffer]) -> RowScratch:
        """Of the stages of a row group, in order."""
        found: dict[str, list[tuple[int, Access]]] = {}
        for number, stage in enumerate(stages):
            for access in accesses_of(stage, buffers):
                if access.buffer.space is Space.SCRATCH:
                    found.setdefault(access.buffer.name, []).append((number, access))
        return RowScratch(tuple(_kept(touched) for touched in found.values()))

    @property
    def is_owned(self) -> bool:
        """Whether no thread reads what another one wrote."""
        return all(kept.extent for kept in self.kept)

    def homes(self, share: int) -> dict[str, Home]:
        """Where each buffer is, if a thread has `share` elements of a row: what is widest leaves registers first."""
        own = sorted((kept for kept in self.kept if kept.extent), key=lambda kept: kept.words(share))
        while own and live_words(own, share) > OWNED_WORDS:
            own.pop()
        inside = {kept.buffer.name for kept in own}
        return {
            kept.buffer.name: "registers" if kept.buffer.name in inside else "own" if kept.extent else "shared"
            for kept in self.kept
        }

    def is_crowded(self, share: int) -> bool:
        """Whether registers are not enough for all that threads could hold in them."""
        return live_words([kept for kept in self.kept if kept.extent], share) > OWNED_WORDS

    def shared_bytes(self, share: int, part: int) -> int:
        """Shared memory for one row, in each of the blocks that have `part` elements of it."""
        homes = self.homes(share)
        inside = [kept.buffer.type for kept in self.kept if homes[kept.buffer.name] != "registers"]
        return sum(-(-min(kind.nbytes, part * kind.dtype.itemsize) // 16) * 16 for kind in inside)


def live_words(kept: Sequence[Kept], share: int) -> int:
    """Most registers of a thread that hold something from one stage to the next."""
    ends = {one.last for one in kept}
    return max((sum(k.words(share) for k in kept if k.first < end <= k.last) for end in ends), default=0)


def _kept(touched: Sequence[tuple[int, Access]]) -> Kept:
    numbers = [number for number, _ in touched]
    accesses = [access for _, access in touched]
    uniform = all(_is_uniform(access) for access in accesses if access.is_store)
    extent = _owned_extent(accesses)
    return Kept(accesses[0].buffer, extent, uniform and extent > 0, min(numbers), max(numbers))


def _owned_extent(accesses: Sequence[Access]) -> int:
    """How many elements threads share out, each reading only what it wrote; 0 where that is not so."""
    bases: set[index.Affine] = set()
    extents: set[int] = set()
    for access in accesses:
        lane = lane_of(access.stage)
        if lane is None or access.stage.symbols != (lane,) or access.offset.coefficient(lane) != 1:
            return 0
        base = access.offset - index.of(lane)
        if lane in index.symbols_of(base):
            return 0
        bases.add(base)
        extents.add(lane.extent)
    return extents.pop() if len(bases) == len(extents) == 1 else 0


def _is_uniform(access: Access) -> bool:
    """Whether what is stored is the same in every iteration."""
    lane = lane_of(access.stage)
    varying: set[Scalar] = set()
    for statement in access.stage.body:
        walked = any(lane in index.symbols_of(value) for value in affines(statement))
        changes = walked or any(number in varying for number in operands(statement))
        if isinstance(statement, Store):
            if statement.buffer == access.buffer.name and (statement.value in varying or statement.mask is not None):
                return False
        elif isinstance(statement, Leave | Repeat | Next):
            continue
        elif (changes and not isinstance(statement, Reduce | ArgReduce)) or isinstance(statement, Scan | Carry):
            varying.add(statement.result)
    return True
