"""A scatter as loops: what walks its updates, where each goes, and how workers share them without meeting.

Updates that meet at an element are combined in row-major order, so a worker does all updates of an element:

    along      a dimension that indices do not decide is cut: each worker has a part of it, for all indices
    places     each worker has some of the places that indices name, and passes over the updates of others
    serial     one worker does all

Where the order of updates is free, there is one way more, for many updates of few places:

    copies     each part of the indices is combined into a copy of its own, and the copies, in order, into the operand
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from autofuse.ir import index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import is_fast
from autofuse.ir.ops.scatter import roles_of
from autofuse.ir.ops.windowroles import Roles
from autofuse.lazydataclass import dataclass
from autofuse.lower.elements import Elements, elements_of
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.codegen.layers import NS_PER_VECTOR, Layers
from autofuse.targets.cpu.codegen.scatterepilogue import Copies, Cut, EpilogueLoops
from autofuse.targets.cpu.codegen.widths import TASK_US

_INDEX_NS = 1.5
"""Of reading an index vector, looking whether it is inside, and going there."""
_LINE_BYTES = 64
_ROW_NS = 6.0
"""Updates of one index that are worth passing over in a scan of the indices."""
_COPIED_BYTES = 64 << 10
"""Of a copy at most: with the indices it stays in a first or second cache."""
_FREE_PARTS = 8
"""Copies of floats, whose sums depend on how many there are: the same number for any number of workers."""
_WORTH_VECTORS = 8.0
"""Vector instructions of an update from which on those of a vector are computed together, then stored one by one."""
_SAFETY = 4
"""Times by which the estimate of work is on the safe side."""


@dataclass(frozen=True, slots=True)
class Split:
    """How workers share a scatter."""

    way: Literal["along", "places", "copies", "serial"]
    blocks: int = 1
    step: int = 0
    """Positions of a block."""
    symbol: Symbol | None = None
    """Along this loop."""
    dimension: int = -1
    """Of the operand, whose places are shared."""
    cut: Cut | None = None
    """The region of the result that a worker completes; None: all of it."""


class ScatterLoops:
    """The loops of one scatter."""

    def __init__(self, program: OpaqueProgram, node: Node, vector_bits: int, *, may_copy: bool = True) -> None:
        """`may_copy`: whether the program has, or will get, memory for copies."""
        self.program, self.node, self._vector_bits, self._may_copy = program, node, vector_bits, may_copy
        x, indices, self.updates = node.inputs
        self.dtype, self.shape = x.type.dtype, x.type.shape
        self.combiner: str = node.attrs["combiner"]
        self.roles: Roles = roles_of(node.attrs, x.type.rank, indices.type.rank)
        self.window_of: Mapping[int, int] = dict(zip(self.roles.window_operand, self.roles.window, strict=True))
        """The dimension of the updates that walks a dimension of the operand, from where the indices say."""
        joined = self._last = self._joined()
        own = self.updates.type.shape[: self.updates.type.rank - joined]
        self.symbols = tuple(Symbol(f"u{d}", extent) for d, extent in enumerate(own))
        if joined:
            whole = self.updates.type.shape[len(own) :]
            self.symbols = (*self.symbols, Symbol("w", math.prod(whole)))
        self.at = self._positions(joined)
        self.ready = max(self.roles.batch, default=-1) + 1
        """Loops inside which an index vector is known."""
        self.elements = self._elements(indices)
        self.layers = Layers(self.elements, self.symbols, self.elements.results[:-1])
        self.is_run = self._is_run()
        """Whether the innermost loop walks neighbours in the operand, all of them inside."""
        self.lanes = self.ahead = 1
        """Of vectors of updates, and of vectors in which updates that are stored one by one are computed before."""
        if self.is_run:
            self.lanes = self._filling(vector_bits)
        elif self.symbols and self.layers.weight(len(self.symbols)) >= _WORTH_VECTORS:
            self.ahead = self._filling(vector_bits)

    def _filling(self, vector_bits: int) -> int:
        """Iterations of the innermost loop that fill a vector."""
        return self.layers.lanes(len(self.symbols), self.dtype, self.symbols[-1].extent, vector_bits)

    def _joined(self) -> int:
        """How many of the last dimensions are one loop: windows of all of the operand's last dimensions."""
        count, rank = 0, self.updates.type.rank
        while count < min(rank, len(self.shape)):
            d, u = len(self.shape) - 1 - count, rank - 1 - count
            if self.window_of.get(d) != u or d in self.roles.index_map:
                break
            count += 1
            if self.updates.type.shape[u] != self.shape[d]:
                break
        return count if count > 1 else 0

    def _positions(self, joined: int) -> tuple[Affine, ...]:
        """The index of an update, by the loops."""
        if not joined:
            return tuple(map(index.of, self.symbols))
        whole = self.updates.type.shape[self.updates.type.rank - joined :]
        return (*map(index.of, self.symbols[:-1]), *index.delinearize(index.of(self.symbols[-1]), whole))

    def _elements(self, indices: Value) -> Elements:
        wanted = [(indices, self._vector(component)) for component in range(len(self.roles.index_map))]
        return elements_of(self.program.graph, [*wanted, (self.updates, self.at)])

    def _vector(self, component: int) -> tuple[Affine, ...]:
        """Where in the indices a component of the index vector stands."""
        at = [self.at[d] for d in self.roles.batch]
        if self.roles.index_vector_dim < self.roles.indices_rank:
            at.insert(self.roles.index_vector_dim, index.of(component))
        return tuple(at)

    def _is_run(self) -> bool:
        last, dim = len(self.shape) - 1, self.updates.type.rank - 1
        is_window = self.window_of.get(last) == dim and last not in self.roles.index_map
        return is_window and self.symbols[-1].extent > 1 and self.ready < len(self.symbols)

    @cached_property
    def offset(self) -> Affine:
        """Of the element that an update meets, what follows from the loops alone."""
        strides = index.strides_of(self.shape)
        walked = {**self.window_of, **self.roles.batching_result}
        return index.combine(0, [term for d, u in walked.items() for term in (self.at[u] * strides[d]).terms])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to combine."""
        return not all(s.extent for s in self.symbols) or not all(self.shape)

    # ---- work ----------------------------------------------------------------------------------------------------

    @cached_property
    def ns(self) -> float:
        """Of all updates, one after another; roughly."""
        total, trips = 0.0, 1
        for depth in range(len(self.symbols) + 1):
            trips *= self.symbols[depth - 1].extent if depth else 1
            lanes = self.lanes if depth == len(self.symbols) else 1
            total += trips * self.layers.ns(depth, lanes)
            total += trips * _INDEX_NS * (depth == self.ready)
        return total + trips * 3 * NS_PER_VECTOR / self.lanes

    def split(self) -> Split:
        """How the updates are shared among the program's workers."""
        workers = self.program.workers
        if workers < 2 or self.is_empty or self.ns < 2e3 * TASK_US:
            return Split("serial")
        return self._along(workers) or self._in_copies(workers) or self._by_places(workers) or Split("serial")

    @property
    def is_free(self) -> bool:
        """Whether updates may be combined in any order: integers keep their bits, of floats it is allowed or not."""
        return self.combiner != "set" and (not self.dtype.is_float or is_fast(self.node.attrs))

    @property
    def copy_elements(self) -> int:
        """From one copy to the next: whole lines."""
        line = _LINE_BYTES // self.dtype.itemsize
        return -(-math.prod(self.shape) // line) * line

    def _in_copies(self, workers: int) -> Split | None:
        nbytes = self.copy_elements * self.dtype.itemsize
        if not (self._may_copy and self.is_free and self.roles.batch) or nbytes > _COPIED_BYTES:
            return None
        symbol = max((self.symbols[d] for d in self.roles.batch), key=lambda s: s.extent)
        parts = min(_FREE_PARTS if self.dtype.is_float else workers, symbol.extent)
        combining = (parts + 1) * nbytes / _LINE_BYTES * NS_PER_VECTOR * 2
        saved = self.ns / _SAFETY * (1 - 1 / min(workers, max(parts, 1)))
        if saved < combining + 1e3 * TASK_US / 2:
            return None
        step = -(-symbol.extent // parts)
        return Split("copies", -(-symbol.extent // step), step, symbol)

    def _along(self, workers: int) -> Split | None:
        free = [u for d, u in self.window_of.items() if d not in self.roles.index_map]
        batching = list(self.roles.batching_result.values())
        for u in (*batching, *sorted(free)):
            if u >= len(self.symbols) - self.is_run or self.symbols[u].extent < workers:
                continue
            blocks = min(self.symbols[u].extent, 4 * workers) if u in batching else workers
            return self._cut(self.symbols[u], -(-self.symbols[u].extent // blocks), Cut(self._dimension(u)))
        if self.is_run:
            line = max(_LINE_BYTES // self.dtype.itemsize, self.lanes)
            parts = -(-self.symbols[-1].extent // workers)
            if self.symbols[-1].extent >= workers * line:
                first = len(self.shape) - max(self._last, 1)
                return self._cut(self.symbols[-1], -(-parts // line) * line, Cut(first, joined=self._last > 1))
        return None

    @staticmethod
    def _cut(symbol: Symbol, step: int, cut: Cut) -> Split:
        return Split("along", -(-symbol.extent // step), step, symbol, cut=cut)

    def _dimension(self, u: int) -> int:
        """The dimension of the operand that dimension `u` of the updates walks."""
        walked = {**self.window_of, **self.roles.batching_result}
        return next(d for d, walking in walked.items() if walking == u)

    def epilogue(self) -> EpilogueLoops | None:
        """The loops of what is made of the result, or of the copies that are to become it; None if nothing is."""
        split = self.split()
        if split.way == "copies":
            copies = Copies(split.blocks, self.copy_elements, self.combiner)
            return EpilogueLoops(self.program, self.node, self._vector_bits, 1, None, copies)
        if set(self.program.graph.outputs) <= set(self.node.outputs):
            return None
        return EpilogueLoops(self.program, self.node, self._vector_bits, split.blocks, split.cut)

    def _by_places(self, workers: int) -> Split | None:
        named = [d for d in self.roles.index_map if d not in self.window_of and self.shape[d] >= 2 * workers]
        vectors = math.prod(self.symbols[d].extent for d in self.roles.batch)
        if not named or self.ahead > 1 or self.ns / max(vectors, 1) < _INDEX_NS + _ROW_NS:
            return None  # what is computed ahead, every worker would compute
        dimension = max(named, key=lambda d: self.shape[d])
        step = -(-self.shape[dimension] // workers)
        return Split("places", workers, step, dimension=dimension, cut=Cut(dimension))
