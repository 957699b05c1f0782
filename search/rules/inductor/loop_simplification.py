"""Loop nests and memory accesses of buffers, in the form in which Inductor compares them.

Loops are put in the order of the addresses' strides, and neighbours become one loop where every index expression of
the body allows it. Each access is brought to a form of its own: loops merged for it alone, inner loops that it does not
depend on dropped. Two accesses are the same if these forms are equal.

Sources: ir.py (ComputedBuffer.get_fill_order, simplify_and_reorder), scheduler.py (pick_loop_order), sizevars.py
(simplify_loops), dependencies.py, torch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cmp_to_key, lru_cache

from autofuse.ir import index
from autofuse.ir.graph import Value
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.inductor.loop_bodies import Body, Load

_FAR = 1 << 40
"""The extent of a loop of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Access:
    """One address of a buffer, as a function of loops of its own."""

    value: Value
    offset: Affine
    sizes: tuple[int, ...]
    """Of its loops, outermost first."""
    indirect: bool
    """Whether the address depends on what memory holds."""

    @property
    def nbytes(self) -> int:
        """What it touches in all."""
        if self.indirect:
            return self.value.type.nbytes
        used = {symbol.name for symbol in index.symbols_of(self.offset)}
        touched = math.prod(size for number, size in enumerate(self.sizes) if _own(number, size).name in used)
        return touched * self.value.type.dtype.itemsize

    def matches(self, write: Access) -> bool:
        """Whether a read finds what a write has just left (scheduler.py, fusable_read_and_write)."""
        if self.value is not write.value or self.indirect or write.indirect:
            return False
        return self.offset == write.offset and self.sizes[: len(write.sizes)] == write.sizes


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of one buffer."""

    outer: tuple[int, ...]
    """Extents of the loops over the result, outermost first."""
    reduced: tuple[int, ...]
    """Extents of the loops that a reduction reduces."""
    reads: tuple[Access, ...]
    write: Access

    @property
    def is_reduction(self) -> bool:
        return bool(self.reduced)


@dataclass(frozen=True, slots=True)
class LoopRules:
    """What differs between the backends."""

    orders_by_loads: bool
    """Whether loads count for the order of loops, or the store alone (PREFER_STORE_LOOP_ORDER)."""
    merges: bool
    """Whether neighbouring loops become one; GPUs leave that to later."""

    def nest(self, body: Body, beside: Iterable[Affine] = ()) -> Nest:
        """The loops of a body. `beside`: index expressions of another body over the same loops, to be respected."""
        addresses = [body.store, *(load.offset for load in body.loads)]
        formulas = list(dict.fromkeys((*addresses, *body.formulas, *beside)))
        by = addresses if self.orders_by_loads else addresses[:1]
        outer, renamed = self._loops(body.loops, by, formulas, 0)
        reduced, more = self._loops(body.reduced, by, formulas, len(outer))
        places = renamed | more
        loops = (*outer, *reduced)
        reads = tuple(dict.fromkeys(_access(load, places, loops) for load in body.loads))
        write = _access(Load(body.node.output, body.store), places, loops)
        return Nest(tuple(s.extent for s in outer), tuple(s.extent for s in reduced), reads, write)

    def _loops(
        self, loops: Sequence[Symbol], addresses: Sequence[Affine], formulas: Sequence[Affine], first: int
    ) -> tuple[tuple[Symbol, ...], dict[Symbol, Affine]]:
        """The loops that are left, and what the old ones are in terms of them; they are numbered from `first`."""
        kept = [symbol for symbol in loops if symbol.extent != 1]
        strides = [_strides(address, kept) for address in addresses]
        order = list(reversed(_fastest_first(strides, [symbol.extent for symbol in kept])))
        ordered = [kept[position] for position in order]
        sizes = _merged(ordered, formulas) if self.merges else [symbol.extent for symbol in ordered]
        return _numbered(ordered, sizes, first)


def formulas_of(body: Body) -> tuple[Affine, ...]:
    """Every index expression of a body, over its loops as they were before any change."""
    return tuple(dict.fromkeys((body.store, *(load.offset for load in body.loads), *body.formulas)))


def flexible_strides(body: Body) -> tuple[int, ...]:
    """How Inductor lays down a buffer that nobody demands an order of: as most of what it reads (get_fill_order)."""
    shape = body.node.output.type.shape
    if not body.loads or len(body.loops) != len(shape):
        return index.strides_of(shape)
    still = {symbol: Affine() for symbol in body.reduced}
    reads = [index.renamed(load.offset, still) for load in body.loads]
    strides, step = [0] * len(shape), 1
    for axis in _fastest_first([_strides(offset, body.loops) for offset in reads], shape):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def _access(load: Load, places: Mapping[Symbol, Affine], loops: Sequence[Symbol]) -> Access:
    offset = index.renamed(load.offset, places)
    sizes = _merged(loops, [offset])
    left, inner = _numbered(loops, sizes, 0, _own)
    offset = index.renamed(offset, inner)
    used = index.symbols_of(offset)
    while left and left[-1] not in used:
        left = left[:-1]
    return Access(load.value, offset, tuple(symbol.extent for symbol in left), load.is_indirect)


def _own(number: int, size: int) -> Symbol:
    """A loop of an access."""
    return Symbol(f"c{number}", size)


def _common(number: int, size: int) -> Symbol:
    """A loop of a nest."""
    return Symbol(f"i{number}", size)


def _numbered(
    loops: Sequence[Symbol], sizes: Sequence[int | None], first: int, name: Callable[[int, int], Symbol] = _common
) -> tuple[tuple[Symbol, ...], dict[Symbol, Affine]]:
    """New loops for those that have a size left; the others stand still, as their neighbours count for them."""
    left: list[Symbol] = []
    places: dict[Symbol, Affine] = {}
    for loop, size in zip(loops, sizes, strict=True):
        places[loop] = Affine()
        if size is not None:
            left.append(name(first + len(left), size))
            places[loop] = index.of(left[-1])
    return tuple(left), places


def _fastest_first(strides: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    """Loops by stride, the one to run fastest first (scheduler.py, pick_loop_order).

    A loop goes before another if more addresses move less with it, or do not move with the other; else the later one.
    """

    def compare(a: int, b: int) -> int:
        if sizes[a] == 1 or sizes[b] == 1:
            return (sizes[a] == 1) - (sizes[b] == 1)
        steps = [(abs(stride[a]), abs(stride[b])) for stride in strides]
        first = sum(left < right or right == 0 for left, right in steps)
        second = sum(right < left or left == 0 for left, right in steps)
        return second - first or b - a

    order = list(range(len(sizes)))[::-1]
    order.sort(key=cmp_to_key(compare))
    return order


@lru_cache(maxsize=1 << 14)
def _steps(formula: Affine) -> Mapping[Symbol, int]:
    """How far a formula moves with each loop, from zero to one and all others zero (sizevars.py, stride_vars)."""
    if all(isinstance(variable, Symbol) for variable, _ in formula.terms):
        return {variable: factor for variable, factor in formula.terms if isinstance(variable, Symbol)}
    zeros: dict[index.Variable, int] = dict.fromkeys(index.symbols_of(formula), 0)
    start = index.evaluate(formula, zeros)
    return {s: index.evaluate(formula, {**zeros, s: 1}) - start for s in zeros if isinstance(s, Symbol)}


def _strides(formula: Affine, loops: Sequence[Symbol]) -> list[int]:
    steps = _steps(formula)
    return [steps.get(loop, 0) if loop.extent != 1 else 0 for loop in loops]


def _merged(loops: Sequence[Symbol], formulas: Sequence[Affine]) -> list[int | None]:
    """The sizes of loops when neighbours that every formula walks as one are one; None for those that are gone.

    The inner one of two is left (sizevars.py, simplify_loops). Only neighbours merge (index_prevent_reordering).
    """
    nested = Affine()
    for loop, step in zip(loops, index.strides_of([loop.extent for loop in loops]), strict=True):
        nested = nested + index.of(loop) * step
    every = [*formulas, nested]
    strides = [_strides(formula, loops) for formula in every]
    sizes: list[int | None] = [loop.extent if loop.extent != 1 else None for loop in loops]

    def can_merge(inner: int, outer: int, size: int) -> bool:
        return all(
            stride[inner] * size == stride[outer] and _is_one_walk(formula, loops[inner], loops[outer], size)
            for formula, stride in zip(every, strides, strict=True)
        )

    changed = True
    while changed:
        changed = False
        for inner in reversed(range(len(loops))):
            for outer in reversed(range(len(loops))):
                size, other = sizes[inner], sizes[outer]
                if inner != outer and size is not None and other is not None and can_merge(inner, outer, size):
                    sizes[inner], sizes[outer] = size * other, None
                    changed = True
    return sizes


def _is_one_walk(formula: Affine, inner: Symbol, outer: Symbol, size: int) -> bool:
    """Whether `size` steps of one loop are a step of the other everywhere, also inside quotients and remainders."""
    if all(isinstance(variable, Symbol) for variable, _ in formula.terms):
        return True
    high, low = index.of(Symbol("m1", _FAR)), index.of(Symbol("m2", _FAR))
    left = index.renamed(formula, {inner: high * size, outer: low})
    right = index.renamed(formula, {inner: Affine(), outer: high + low})
    return left == right
