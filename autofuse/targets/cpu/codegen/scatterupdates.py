"""The loops of a scatter over its updates, in LLVM IR."""

from __future__ import annotations

from autofuse.ir import index
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import replace
from autofuse.lower.librarykernels import held_in
from autofuse.targets.cpu.codegen.accesses import Place
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.layers import open_launch, shared_range
from autofuse.targets.cpu.codegen.masking import masked_load, masked_store
from autofuse.targets.cpu.codegen.offsets import pointer, scalar_index
from autofuse.targets.cpu.codegen.scatterepilogue import COPIES, Epilogue, EpilogueLoops
from autofuse.targets.cpu.codegen.scatterloops import ScatterLoops, Split
from autofuse.targets.cpu.codegen.values import Group, Index, Lanes, Value, counted_loop
from autofuse.targets.cpu.llvmtext import ModuleText, Vec
from autofuse.targets.cpu.scalars import (
    emit_combine,
    emit_constant,
    emit_load_conversion,
    emit_splat,
    emit_store_conversion,
    emit_tail_mask,
)

_BEYOND = 1 << 62
"""Unsigned indices from here on are out of bounds, as this is; as signed ones they could come back in."""
_LINE_BYTES = 64
_STRAIGHT = 4
"""Vectors of a run that are written one after another, without a loop."""


class ScatterUpdates:
    """Writes the launch that combines the updates in."""

    def __init__(
        self, module: ModuleText, loops: ScatterLoops, split: Split, registers: int, behind: EpilogueLoops | None
    ) -> None:
        """`registers`: vector registers of the target. `behind`: what is made here of what a worker completes."""
        self.module, self.loops, self.split, self.registers = module, loops, split, registers
        self.behind = behind

    def write(self, symbol: str) -> None:
        """Append the function."""
        loops = self.loops
        self.fn, places = open_launch(self.module, loops.program, symbol)
        self.body = Body(self.fn, places, self.registers)
        if self.split.way == "copies":
            with counted_loop(self.fn, "%begin", "%end", 1, nonempty=True) as block:
                self._copy(places[COPIES], block)
            self.fn.ret()
            return
        self.target = places[held_in(loops.program, loops.node)]
        self.share = self._share()
        if not loops.is_empty:
            group = Group(Lanes(), {}, {}, {})
            self._layer(group, 0)
            self._loops(0, group, None)
        if self.behind is not None:
            Epilogue(self.behind, self.body).write(*self._completed(self.behind.extent))
        self.fn.ret()

    def _copy(self, copies: Place, block: str) -> None:
        """Make a part's copy, and combine the part's updates into it."""
        fn, loops, dtype, lanes = self.fn, self.loops, self.loops.dtype, _LINE_BYTES // self.loops.dtype.itemsize
        begin = fn.emit(f"mul nuw nsw i64 {block}, {loops.copy_elements}")
        base = fn.emit(f"getelementptr {copies.element}, ptr {copies.base}, i64 {begin}")
        self.target = replace(copies, base=base)
        identity = emit_constant(dtype, combiner_identity(loops.combiner, dtype))
        stored = emit_store_conversion(fn, emit_splat(fn, identity, dtype, lanes), dtype, lanes)
        with counted_loop(fn, "0", str(loops.copy_elements), lanes, nonempty=True) as at:
            address = fn.emit(f"getelementptr {copies.element}, ptr {base}, i64 {at}")
            fn.line(f"store {Vec(dtype, lanes).memory} {stored}, ptr {address}, align {dtype.itemsize}")
        following = fn.emit(f"add nuw nsw i64 {block}, 1")
        self.share = shared_range(fn, self.split.step, self._shared_extent, block, following)
        group = Group(Lanes(), {}, {}, {})
        self._layer(group, 0)
        self._loops(0, group, None)

    def _completed(self, extent: int) -> tuple[str, str]:
        """The positions of the result that are complete, of so many: of the last ones, those without updates too."""
        if self.split.way == "serial":
            return "0", str(extent)
        (begin, end), walked = self.share, self._shared_extent
        if walked == extent:
            return begin, end
        is_last = self.fn.emit(f"icmp eq i64 {end}, {walked}")
        return begin, self.fn.emit(f"select i1 {is_last}, i64 {extent}, i64 {end}")

    @property
    def _shared_extent(self) -> int:
        return self.split.symbol.extent if self.split.symbol else self.loops.shape[self.split.dimension]

    def _share(self) -> tuple[str, str]:
        """The positions that the blocks of this call have, of the loop or the places that are shared."""
        if self.split.way == "serial":
            return "0", "1"
        return shared_range(self.fn, self.split.step, self._shared_extent)

    def _bounds(self, symbol: Symbol) -> tuple[str, str]:
        return self.share if symbol == self.split.symbol else ("0", str(symbol.extent))

    def _layer(self, group: Group, depth: int) -> None:
        """What is computed inside so many loops; where the index vector becomes known, what that needs first."""
        self.loops.layers.write(self.body, group, depth, early=True)
        if depth != self.loops.ready:
            self.loops.layers.write(self.body, group, depth, early=False)

    def _loops(self, depth: int, group: Group, starts: dict[int, str] | None) -> None:
        """The loops from number `depth` on; `starts`: the index vector, once it is known."""
        fn, loops = self.fn, self.loops
        if starts is None and depth == loops.ready:
            starts = self._starts(group)
            outside = fn.label("outside")
            for d in (d for d in starts if d not in loops.window_of):
                self._require_inside(starts[d], d, outside)
            loops.layers.write(self.body, group, depth, early=False)
            self._loops(depth, group, starts)
            fn.branch(outside)
            fn.block(outside)
        elif depth == len(loops.symbols):
            self._element(group, starts or {})
        elif depth == len(loops.symbols) - 1 and loops.is_run:
            self._run(group, starts or {})
        elif depth == len(loops.symbols) - 1 and loops.ahead > 1:
            self._ahead(group, starts)
        else:
            symbol = loops.symbols[depth]
            begin, end = self._bounds(symbol)
            with counted_loop(fn, begin, end, 1, nonempty=symbol != self.split.symbol) as at:
                inner = group.nested({symbol: Index(at)})
                self._layer(inner, depth + 1)
                self._loops(depth + 1, inner, starts)

    def _ahead(self, group: Group, starts: dict[int, str] | None) -> None:
        """The innermost loop, whose updates meet elements one by one: they are computed a vector at a time before."""
        fn, loops, lanes = self.fn, self.loops, self.loops.ahead
        symbol, depth = loops.symbols[-1], len(loops.symbols)
        begin, end = self._bounds(symbol)
        rest = fn.emit(f"urem i64 {fn.emit(f'sub nuw nsw i64 {end}, {begin}')}, {lanes}")
        last = fn.emit(f"sub nuw nsw i64 {end}, {rest}")
        with counted_loop(fn, begin, last, lanes, nonempty=False) as at:
            vector = group.nested({symbol: Index(at)}, lanes=Lanes(lanes, symbol))
            for early in (True, False):
                loops.layers.write(self.body, vector, depth, early=early)
            wanted = loops.elements.results if starts is None else loops.elements.results[-1:]
            cells = {number: self._spilled(vector.values[number], lanes) for number in wanted}
            with counted_loop(fn, "0", str(lanes), 1, nonempty=True, as_written=True) as lane:
                alone = group.nested({symbol: Index(fn.emit(f"add nuw nsw i64 {at}, {lane}"))})
                for number, cell in cells.items():
                    alone.values[number] = self._picked(vector.values[number], cell, lane)
                self._met(alone, starts)
        with counted_loop(fn, last, end, 1, nonempty=False) as at:
            alone = group.nested({symbol: Index(at)})
            self._layer(alone, depth)
            self._loops(depth, alone, starts)

    def _spilled(self, value: Value, lanes: int) -> str:
        """Where the elements of a vector lie one by one; empty for one that is the same in all lanes."""
        if not value.varying:
            return ""
        vec = Vec(value.dtype, lanes)
        cell = self.fn.alloca(vec.memory)
        self.fn.line(f"store {vec.memory} {emit_store_conversion(self.fn, value.name, value.dtype, lanes)}, ptr {cell}")
        return cell

    def _picked(self, value: Value, cell: str, lane: str) -> Value:
        if not cell:
            return value
        element = Vec(value.dtype, 1).memory
        address = self.fn.emit(f"getelementptr inbounds {element}, ptr {cell}, i64 {lane}")
        loaded = self.fn.emit(f"load {element}, ptr {address}, align {value.dtype.itemsize}")
        return Value(emit_load_conversion(self.fn, loaded, value.dtype, 1), value.dtype, varying=False)

    def _met(self, group: Group, starts: dict[int, str] | None) -> None:
        """One update that is computed, with its index vector if that is not known outside."""
        if starts is not None:
            self._element(group, starts)
            return
        own, outside = self._starts(group), self.fn.label("outside")
        for d in (d for d in own if d not in self.loops.window_of):
            self._require_inside(own[d], d, outside)
        self._element(group, own)
        self.fn.branch(outside)
        self.fn.block(outside)

    def _starts(self, group: Group) -> dict[int, str]:
        """The index vector as i64, by the operand's dimension."""
        results = self.loops.elements.results
        components = (group.values[number] for number in results[: len(self.loops.roles.index_map)])
        return {d: self._start(v) for d, v in zip(self.loops.roles.index_map, components, strict=True)}

    def _start(self, component: Value) -> str:
        dtype, name = component.dtype, component.name
        if dtype.bits < 64:
            return self.fn.emit(f"{'zext' if dtype.kind == 'uint' else 'sext'} i{dtype.bits} {name} to i64")
        if dtype.kind == "uint":
            return self.fn.intrinsic("llvm.umin.i64", "i64", [("i64", name), ("i64", str(_BEYOND))])
        return name

    def _require_inside(self, position: str, dimension: int, otherwise: str) -> None:
        """Go on only where a position lies inside the operand, and among the places that are this call's."""
        fn, inside = self.fn, self.fn.label("inside")
        extent = str(self.loops.shape[dimension])
        if self.split.way == "places" and dimension == self.split.dimension:
            begin, end = self.share
            position = fn.emit(f"sub i64 {position}, {begin}")
            extent = fn.emit(f"sub nuw nsw i64 {end}, {begin}")
        fn.branch_if(fn.emit(f"icmp ult i64 {position}, {extent}"), inside, otherwise)
        fn.block(inside)

    def _address(self, group: Group, starts: dict[int, str]) -> str:
        """Of the element that an update meets."""
        strides, element = index.strides_of(self.loops.shape), self.target.element
        address = self.target.base
        for d, start in starts.items():
            moved = start if strides[d] == 1 else self.fn.emit(f"mul i64 {start}, {strides[d]}")
            address = self.fn.emit(f"getelementptr {element}, ptr {address}, i64 {moved}")
        return pointer(self.fn, address, element, self.loops.offset, group, inside=False)

    def _element(self, group: Group, starts: dict[int, str]) -> None:
        """One update."""
        fn, loops = self.fn, self.loops
        skipped = fn.label("skipped")
        for d in (d for d in starts if d in loops.window_of):
            within = scalar_index(fn, loops.at[loops.window_of[d]], group)
            self._require_inside(fn.emit(f"add i64 {starts[d]}, {within}"), d, skipped)
        self._combine(group, starts)
        fn.branch(skipped)
        fn.block(skipped)

    def _run(self, group: Group, starts: dict[int, str]) -> None:
        """The innermost loop: whole vectors, then what is left under a mask."""
        fn, lanes, symbol = self.fn, self.loops.lanes, self.loops.symbols[-1]
        whole = symbol.extent - symbol.extent % lanes
        begin, end = self._bounds(symbol)
        if symbol == self.split.symbol:
            last = fn.intrinsic("llvm.smin.i64", "i64", [("i64", end), ("i64", str(whole))])
            with counted_loop(fn, begin, last, lanes, nonempty=False) as at:
                self._vector(group, starts, Index(at), None)
        elif whole <= _STRAIGHT * lanes:
            for at in range(0, whole, lanes):
                self._vector(group, starts, Index("", at), None)
        else:
            with counted_loop(fn, begin, str(whole), lanes, nonempty=True) as at:
                self._vector(group, starts, Index(at), None)
        if whole == symbol.extent:
            return
        if symbol == self.split.symbol:
            rest, done = fn.label("rest"), fn.label("done")
            fn.branch_if(fn.emit(f"icmp eq i64 {end}, {symbol.extent}"), rest, done)
            fn.block(rest)
            self._vector(group, starts, Index("", whole), self._tail(symbol.extent - whole))
            fn.branch(done)
            fn.block(done)
        else:
            self._vector(group, starts, Index("", whole), self._tail(symbol.extent - whole))

    def _tail(self, count: int) -> str | None:
        return emit_tail_mask(self.fn, str(count), self.loops.lanes) if self.loops.lanes > 1 else None

    def _vector(self, group: Group, starts: dict[int, str], at: Index, active: str | None) -> None:
        loops, symbol = self.loops, self.loops.symbols[-1]
        lanes = Lanes(loops.lanes, symbol) if loops.lanes > 1 else Lanes()
        inner = group.nested({symbol: at}, lanes=lanes, active=active)
        depth = len(loops.symbols)
        loops.layers.write(self.body, inner, depth, early=False)
        self._combine(inner, starts)

    def _combine(self, group: Group, starts: dict[int, str]) -> None:
        """Combine a vector of updates, or one, into the elements that they meet."""
        fn, loops, dtype, lanes = self.fn, self.loops, self.loops.dtype, group.lanes.count
        vec, address = Vec(dtype, lanes), self._address(group, starts)
        value = group.vector(fn, loops.elements.results[-1])
        if loops.combiner != "set":
            if group.active is None:
                loaded = fn.emit(f"load {vec.memory}, ptr {address}, align {dtype.itemsize}")
            else:
                loaded = masked_load(fn, vec, address, group.active)
            old = emit_load_conversion(fn, loaded, dtype, lanes)
            value = emit_combine(fn, loops.combiner, old, value, dtype, lanes)
        stored = emit_store_conversion(fn, value, dtype, lanes)
        if group.active is None:
            fn.line(f"store {vec.memory} {stored}, ptr {address}, align {dtype.itemsize}")
        else:
            masked_store(fn, vec, stored, address, group.active)
