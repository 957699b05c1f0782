"""What is made of a scatter's result, element by element: as loops, and in LLVM IR.

The elements of a region of the result are complete when a worker has done its updates; it goes on with these where
they are still in its caches. Otherwise all workers share what is to be done, as a launch that follows. A region is a
range of positions: of one dimension, or of the last ones as one loop, at all positions of those before.

    joined     the dimensions of the range, and those behind, are one loop of long vectors
    apart      each is a loop, where operands that are broadcast would have to be divided for in a joined one
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from autofuse.ir import index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Quotient, Remainder, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.demand import PhaseBuilder
from autofuse.lower.elements import Elements, elements_of
from autofuse.lower.librarykernels import held_in
from autofuse.lower.phasedrafts import StageDraft
from autofuse.lower.rewrite import affines
from autofuse.lower.statements import Scalar, Store
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.layers import NS_PER_VECTOR, Layers
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, counted_loop
from autofuse.targets.cpu.codegen.widths import TASK_US
from autofuse.targets.cpu.scalars import emit_tail_mask

COPIES = "copies"
"""The name of the workspace that holds parts of a result."""
_CACHED_BYTES = 256 << 10
"""Of the result, that are still in a worker's caches when it has done its updates."""
_SOON_NS = 2e3 * TASK_US
"""Work that is not worth sharing."""
_STRAIGHT = 8
"""Vectors of a row that are written one after another, without a loop."""
_PART = 1024
"""Elements of a part, where parts of the result are shared: a multiple of all vectors."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the result is divided into ranges."""

    dimension: int
    """The first that a range is of."""
    joined: bool = False
    """Whether positions are of this dimension and all behind it, as one; else they are of this one."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Parts of a result that are still to be combined with the operand, in order, in the workspace `COPIES`."""

    count: int
    elements: int
    """From one to the next."""
    combiner: str


class EpilogueLoops:
    """The loops over a region of a scatter's result, and what is made of it there."""

    def __init__(
        self,
        program: OpaqueProgram,
        node: Node,
        vector_bits: int,
        regions: int,
        cut: Cut | None,
        copies: Copies | None = None,
    ) -> None:
        """`regions`: how many workers complete, one by one, and by which `cut`; None for all of the result."""
        graph = program.graph
        is_cached = node.output.type.nbytes <= regions * _CACHED_BYTES
        cut = cut if is_cached else None
        self.node, self.shape = node, node.output.type.shape
        self._program, self._copies = program, copies
        self._made = [value for value in graph.outputs if copies is not None or value not in node.outputs]
        self.cut = Cut(0, joined=True) if cut is None else cut
        loops, at = self._joined()
        self.elements = self._elements(at)
        is_divided = any(_divides(value) for s in self.elements.statements for value in affines(s))
        self.is_joined = not is_divided or self.cut.joined
        if is_divided and (cut is None or not cut.joined):
            self.cut = self._widest() if cut is None else cut
            self.is_joined = False
            loops = tuple(Symbol(f"e{d}", extent) for d, extent in enumerate(self.shape))
            at = tuple(map(index.of, loops))
            self.elements = self._elements(at)
        self.symbols = loops
        self.layers = Layers(self.elements, loops)
        self.stores = self._stores(at)
        self.lanes = self.layers.lanes(len(loops), node.output.type.dtype, loops[-1].extent, vector_bits)
        self.is_apart = copies is not None or not is_cached or (regions == 1 and self.ns > _SOON_NS)
        """Whether it is a launch of its own."""

    @property
    def extent(self) -> int:
        """Of the positions that ranges are of."""
        return math.prod(self.shape[self.cut.dimension :]) if self.cut.joined else self.shape[self.cut.dimension]

    @property
    def unit(self) -> int:
        """Positions of the loop that is cut for each position of a range."""
        return math.prod(self.shape[self.cut.dimension + 1 :]) if self.is_joined and not self.cut.joined else 1

    @property
    def ns(self) -> float:
        """Of all elements, roughly."""
        total, trips = 0.0, 1
        for depth in range(len(self.symbols) + 1):
            trips *= self.symbols[depth - 1].extent if depth else 1
            total += trips * self.layers.ns(depth, self.lanes if depth == len(self.symbols) else 1)
        return total + trips * NS_PER_VECTOR * len(self.stores) / self.lanes

    def parts(self, ns: float) -> tuple[int, int]:
        """(blocks, positions of a block) where a block is to take so long."""
        most = max(1, round(self.ns / ns))
        step = -(-max(self.extent, 1) // most)
        if self.cut.joined or self.cut.dimension == len(self.shape) - 1:
            step = -(-step // _PART) * _PART
        return -(-self.extent // step), step

    def _widest(self) -> Cut:
        """The dimension with most positions to share; the last only where it has far more."""
        return Cut(max(range(len(self.shape)), key=lambda d: self.shape[d] // (8 if d == len(self.shape) - 1 else 1)))

    def _joined(self) -> tuple[tuple[Symbol, ...], tuple[Affine, ...]]:
        first = self.cut.dimension
        outer = tuple(Symbol(f"e{d}", extent) for d, extent in enumerate(self.shape[:first]))
        run = Symbol("e", math.prod(self.shape[first:]))
        return (*outer, run), (*map(index.of, outer), *index.delinearize(index.of(run), self.shape[first:]))

    def _elements(self, at: tuple[Affine, ...]) -> Elements:
        node, copies = self.node, self._copies

        def result(builder: PhaseBuilder, stage: StageDraft, where: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
            if copies is None:
                return builder.load(stage, held_in(self._program, node), node.output.type, where, guard)
            total, place = builder.value(stage, node.inputs[0], where, guard), index.linearize(where, self.shape)
            dtype = node.output.type.dtype
            for number in range(copies.count):
                part = builder.load_at(stage, COPIES, dtype, place + number * copies.elements, guard)
                total = builder.map(stage, dtype, copies.combiner, total, part)
            return total

        wanted: list[tuple[Value, tuple[Affine, ...]]] = [(value, at) for value in self._made]
        return elements_of(self._program.graph, wanted, results={self.node.output: result})

    def _stores(self, at: tuple[Affine, ...]) -> tuple[Store, ...]:
        graph = self._program.graph
        names = {v: b.name for v, b in zip(graph.outputs, self._program.buffers[len(graph.inputs) :], strict=False)}
        offset = index.linearize(at, self.shape)
        made = zip(self._made, self.elements.results, strict=True)
        return tuple(Store(names[value], offset, scalar) for value, scalar in made)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Writes the loops over a region."""

    loops: EpilogueLoops
    body: Body

    def write(self, begin: str, end: str) -> None:
        """Append what makes of the positions from `begin` up to `end` what the kernel writes."""
        fn, unit = self.body.fn, self.loops.unit
        if unit != 1:
            begin, end = (fn.emit(f"mul nuw nsw i64 {position}, {unit}") for position in (begin, end))
        group = Group(Lanes(), {}, {}, {})
        self.loops.layers.write(self.body, group, 0, early=False)
        self._loop(0, group, (begin, end))

    def _loop(self, depth: int, group: Group, share: tuple[str, str]) -> None:
        loops, symbol = self.loops, self.loops.symbols[depth]
        is_cut = depth == loops.cut.dimension
        begin, end = share if is_cut else ("0", str(symbol.extent))
        if depth == len(loops.symbols) - 1:
            self._run(group, symbol, begin, end)
            return
        with counted_loop(self.body.fn, begin, end, 1, nonempty=False) as at:
            inner = group.nested({symbol: Index(at)})
            loops.layers.write(self.body, inner, depth + 1, early=False)
            self._loop(depth + 1, inner, share)

    def _run(self, group: Group, symbol: Symbol, begin: str, end: str) -> None:
        """Whole vectors of the last loop, then what is left under a mask."""
        fn, lanes = self.body.fn, self.loops.lanes
        if self.loops.cut.dimension < len(self.loops.symbols) - 1:
            self._row(group, symbol)
            return
        count = fn.emit(f"sub nsw i64 {end}, {begin}")
        whole = fn.emit(f"add nsw i64 {begin}, {fn.emit(f'and i64 {count}, {-lanes}')}")
        with counted_loop(fn, begin, whole, lanes, nonempty=False) as at:
            self._vector(group, symbol, Index(at), None)
        if lanes == 1:
            return
        rest, done = fn.label("rest"), fn.label("done")
        fn.branch_if(fn.emit(f"icmp slt i64 {whole}, {end}"), rest, done)
        fn.block(rest)
        self._vector(group, symbol, Index(whole), emit_tail_mask(fn, fn.emit(f"sub nsw i64 {end}, {whole}"), lanes))
        fn.branch(done)
        fn.block(done)

    def _row(self, group: Group, symbol: Symbol) -> None:
        """The same, of all positions of the last loop."""
        fn, lanes, extent = self.body.fn, self.loops.lanes, symbol.extent
        whole = extent - extent % lanes
        if whole <= _STRAIGHT * lanes:
            for at in range(0, whole, lanes):
                self._vector(group, symbol, Index("", at), None)
        else:
            with counted_loop(fn, "0", str(whole), lanes, nonempty=True) as start:
                self._vector(group, symbol, Index(start), None)
        if whole < extent:
            self._vector(group, symbol, Index("", whole), emit_tail_mask(fn, str(extent - whole), lanes))

    def _vector(self, group: Group, symbol: Symbol, at: Index, active: str | None) -> None:
        loops = self.loops
        lanes = Lanes(loops.lanes, symbol) if loops.lanes > 1 else Lanes()
        inner = group.nested({symbol: at}, lanes=lanes, active=active)
        self.body.write([*loops.layers.at(len(loops.symbols), early=False), *loops.stores], [inner], [{}])


def _divides(value: Affine) -> bool:
    return any(isinstance(variable, Quotient | Remainder) for variable in _variables([value]))


def _variables(values: Sequence[Affine]) -> Iterator[index.Variable]:
    for value in values:
        for variable, _ in value.terms:
            yield variable
            if isinstance(variable, index.Element):
                yield from _variables(variable.index)
