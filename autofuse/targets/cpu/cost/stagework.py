"""The work of one stage: instructions by class, memory instructions by kind, chains, and its walks through memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Any, ClassVar

from autofuse.cost_models.features import AccessCounts, StageFeatures
from autofuse.cost_models.loopnest import LoopNest, sources_of
from autofuse.cost_models.operations import mix_of
from autofuse.cost_models.regions import extent_of
from autofuse.cost_models.traffic import Access, Walk, access_of, exact_access, exact_walk
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Leave,
    Load,
    Map,
    Next,
    Position,
    Reduce,
    Repeat,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Buffer, Space, Stage
from autofuse.lower.varying import recurrence, varying_scalars
from autofuse.targets.cpu.codegen.accesses import SHORT_STRIDE
from autofuse.targets.cpu.codegen.phaselayout import Layout
from autofuse.targets.cpu.cost.blockwork import BlockWork
from autofuse.targets.cpu.cost.cuttests import GridCuts, known_conditions, needed_shares, share_of
from autofuse.targets.cpu.cost.farsteps import far_walk
from autofuse.targets.cpu.cost.scalarwork import Counts, Scalar, mapped, plain, work_of
from autofuse.targets.cpu.cost.stripwalks import StripWalk

_STAY = frozenset(("sin", "cos", "tan", "remainder"))
"""Functions with a slow path, a call. LLVM moves nothing out of loops that have one: each vector computes all anew."""
_EXTREME_LINKS, _PLACED_LINKS = 2.0, 4.0
"""Of a maximum that remembers NaN: a comparison and a choice; of a position: that again, of pairs."""
_ONE_BY_ONE = 3.0
"""How many times as long an element of 8 or 16 bits takes: no instruction gathers or scatters these."""
_TRANSPOSE = 2.0
"""Shuffles cost this many ordinary operations: one port has them all."""
_TAKEN = 0.5
"""Of elements, how many take a costly side that is packed: nobody knows before it is measured."""
_COLLECTED = 8.0
"""Instructions that collect those of a vector which take it."""
_QUOTIENT = 5.0
"""Integer operations of a division by a constant."""


class StageWalk:
    """Goes once over a stage's statements. `scalars` are those of earlier stages; the reduced ones are added."""

    def __init__(
        self,
        stage: Stage,
        nests: tuple[LoopNest, LoopNest],
        buffers: Mapping[str, Buffer],
        scalars: dict[int, Scalar],
        layout: Layout,
        cuts: GridCuts,
        block: BlockWork | None = None,
    ) -> None:
        """`nests`: all loops around the body, and those around the stage. `block`: of a stage walked in blocks."""
        self.stage, self.buffers, self.scalars, self.layout = stage, buffers, scalars, layout
        self.nest, self.entry = nests
        self._strip = StripWalk(stage, self.nest, buffers, layout.strip)
        self.walked = self._strip.nest
        self._times = self.nest.times
        self._every = float(self.nest.vectors_to[-1])
        self._has = frozenset(map(type, stage.body))
        self._transposed = layout.transpose.statements if layout.transpose is not None else frozenset[Load | Store]()
        self.accesses: list[Access] = []
        self._counts = Counts()
        self._stays = not _STAY.isdisjoint([s.opcode for s in stage.body if type(s) is Map])
        self._static = Test not in self._has
        self._masked = cuts.masked
        self._needed: dict[int, float] = {}
        if not self._static:
            self._known = known_conditions(stage, nests[0], layout.tiles, cuts.whole)
            self._needed = needed_shares(stage.body, self._known, self._masked)
        self._packed: Collection[int] = () if block is None else block.inside
        if self._packed:
            self._needed |= {number: _TAKEN * self._needed.get(number, 1.0) for number in self._packed}
        self._varying: Set[int] = frozenset()
        if stage.before:
            known = {number for number, scalar in scalars.items() if scalar.varying}
            self._varying = varying_scalars(stage, known, self.nest.vectorised)
        for statement in stage.body:
            self._visits[type(statement)](self, statement)
        if block is not None:
            self._walk_block(block)
        if layout.strip is not None:
            self._keep_accumulators()
        if Carry in self._has:
            self._leave_carries()

    def features(self, seen: set[str], live: int, spilled: float) -> StageFeatures:
        """The counts, and what was found of registers (see `StageFeatures`).

        `seen`: buffers that earlier stages touched; this stage's are added.
        """
        stage, nest, entry = self.stage, self.nest, self.entry
        reduces = placed = 0
        if not _REDUCING.isdisjoint(self._has):
            placed = sum([type(s) is ArgReduce for s in stage.body])
            reduces = placed + sum([type(s) is Reduce for s in stage.body])
        own = self._vectorises_itself()
        entries = float(entry.rounds_to[-1])
        chain, scans = self._chain(own)
        return StageFeatures(
            entries=entries,
            iterations=float(nest.elements_to[-1]),
            vectors=float(nest.vectors_to[-1]),
            lanes=nest.lanes,
            unroll=nest.unroll,
            operations=self._counts.operations,
            scalar_operations=self._counts.scalars,
            flops=self._counts.flops if self._static and nest.elements_to[-1] else 0.0,
            accesses=AccessCounts(**self._counts.kinds),
            far_walks=tuple(self._counts.far),
            reduces=reduces * entry.vectors_to[-1],
            horizontal=reduces * entries if own else 0.0,
            placed=entries * placed if own else 0.0,
            chain=chain,
            scan_iterations=scans,
            first_touch_bytes=self._first_touch_bytes(seen),
            loops=max(nest.rounds[entry.depth :], default=1) > 1,
            live=live,
            spilled=spilled,
            transposes=bool(self._transposed),
        )

    def _vectorises_itself(self) -> bool:
        """Whether the stage vectorises a loop of its own."""
        return self.stage.vectorised is not None and self.entry.vectorised is None and self.nest.lanes > 1

    def _first_touch_bytes(self, seen: set[str]) -> int:
        depth, total = self.entry.depth, 0
        for access in self.accesses:
            buffer = access.buffer
            if buffer.name not in seen and buffer.space is not Space.SCRATCH:
                total += extent_of(access.walk.steps[depth], buffer.type.dtype.itemsize).line_bytes
            seen.add(buffer.name)
        return total

    def _keep_accumulators(self) -> None:
        """In a strip, what is reduced lives in memory: fetched and stored once per few iterations."""
        reductions = [s for s in self.stage.body if isinstance(s, Reduce | ArgReduce | Scan)]
        if reductions:
            times = 2 * len(reductions) * self._every / self._strip.together
            self._counts.count("contiguous", times)
            self._counts.count("vector_bytes", times * self.nest.lanes * reductions[0].dtype.itemsize)

    def _walk_block(self, block: BlockWork) -> None:
        """A block keeps what later segments read; packed elements are collected, picked, and put back."""
        if block.sides:
            self._counts.operate("integer", dtypes.I32, _COLLECTED * block.sides * self._every)
        taken, lanes = _TAKEN * self._every, self.nest.lanes
        for numbers, kind, times in (
            (block.moved, "contiguous", self._every),
            (block.picked, "gather", taken),
            (block.placed, "scatter", taken),
        ):
            for number in numbers:
                dtype = self.scalars[number].dtype
                self._counts.count("contiguous" if kind == "contiguous" else "gather", times)
                self._counts.count("vector_bytes", times * lanes * dtype.itemsize)
                if kind != "contiguous":
                    self._counts.count("gathered_elements", times * lanes)
                    self._counts.operate(kind, dtype, times)

    def _leave_carries(self) -> None:
        """What is carried is there when the stage is done: one value per entry."""
        for statement in self.stage.body:
            if isinstance(statement, Carry):
                differs = statement.result in self._varying
                self.scalars[statement.result] = Scalar(self.entry.depth, differs, statement.dtype)

    # ---- statements ----------------------------------------------------------------------------------------------

    def _constant(self, constant: Constant) -> None:
        self.scalars[constant.result] = plain(0, False, constant.dtype)

    def _position(self, position: Position) -> None:
        dtype, value = position.dtype, position.value
        depth, varying = self._dependence(value)
        self._index_work(value, depth, varying)
        self._counts.operate("integer", dtype, self._times[varying][depth], varying=varying)
        self.scalars[position.result] = plain(depth, varying, dtype)

    def _reduce(self, reduce: Reduce) -> None:
        self._reduction(reduce.dtype, reduce.combiner, reduce.operand)
        self._define_result(reduce.result, reduce.dtype)

    def _arg_reduce(self, reduce: ArgReduce) -> None:
        source = self.scalars[reduce.operand].dtype
        self._counts.operate("compare", source, 3 * self._every)
        self._counts.operate("integer", dtypes.I64, 2 * self._every)
        self._define_result(reduce.result, reduce.dtype)

    def _define_result(self, number: int, dtype: DType) -> None:
        """A reduced value: one per entry of the stage."""
        self.scalars[number] = plain(self.entry.depth, self.entry.vectorised is not None, dtype)

    def _dependence(self, value: Affine) -> tuple[int, bool]:
        walk = exact_walk(value, self.nest)
        if walk is not None:
            return walk.moved, walk.stride != 0
        depth, varying = 0, False
        for source in sources_of(value):
            if isinstance(source, Symbol):
                depth = max(depth, self.nest.moved_from(source))
                varying = varying or source == self.nest.vectorised
            else:
                scalar = self.scalars[source]
                depth, varying = max(depth, scalar.depth), varying or scalar.varying
        return depth, varying

    def _index_work(self, value: Affine, depth: int, varying: bool) -> None:
        quotients = _quotients(value)
        if quotients:
            times = _QUOTIENT * quotients * self._times[varying][depth]
            self._counts.operate("integer", dtypes.I32, times, varying=varying)

    def _test(self, test: Test) -> None:
        depth, varying, share = 0, False, 1.0
        for condition in test.conditions:
            inner, lanes_differ = self._dependence(condition.value)
            depth, varying = max(depth, inner), varying or lanes_differ
            share *= share_of(condition)
            asked = self._masked if self._known(condition) else 1.0
            if asked:
                self._counts.operate("integer", dtypes.I32, 2 * asked * self._times[lanes_differ][inner])
        is_cut = all(map(self._known, test.conditions))
        self.scalars[test.result] = Scalar(depth, varying, dtypes.BOOL, share, is_cut)

    def _load(self, load: Load) -> None:
        walk = exact_walk(load.offset, self.nest)
        if walk is None:
            offset_depth, offset_varies = self._dependence(load.offset)
        else:
            offset_depth, offset_varies = walk.moved, walk.stride != 0
        depth, varying, share = offset_depth, offset_varies, 1.0
        masked, done = 0.0, 1.0
        if load.mask is not None:
            mask = self.scalars[load.mask]
            share, masked, done = mask.share, self._masked if mask.cut else 1.0, self._done(mask)
            depth, varying = max(depth, mask.depth), varying or mask.varying
        if load.fill is not None:
            fill = self.scalars[load.fill]
            depth, varying = max(depth, fill.depth), varying or fill.varying
        if self._needed:
            needed = self._needed.get(load.result, 1.0)
            share, done = min(share, needed), min(done, needed)
        times = self._times[offset_varies][offset_depth] * done
        kind = self._kind(load, walk) if offset_varies else "uniform"
        if kind == "strided" and not masked:
            times = self._shuffled(load, times)
        self._walked(load, times, kind, share, walk)
        if masked:
            self._counts.count("masked", min(masked * self._times[offset_varies][offset_depth], times))
            self._counts.operate("compare", load.dtype, masked * self._times[varying][depth])
        if load.dtype.is_float and load.dtype.bits == 16:
            self._counts.operate("convert", load.dtype, times)
        self.scalars[load.result] = plain(depth, varying, load.dtype)

    def _store(self, store: Store) -> None:
        buffer = self.buffers[store.buffer]
        value = self.scalars[store.value]
        share, masked, done = 1.0, 0.0, 1.0
        if store.mask is not None:
            mask = self.scalars[store.mask]
            share, masked, done = mask.share, self._masked if mask.cut else 1.0, self._done(mask)
        varying = self.nest.vectorised is not None
        every = self._times[varying][self.nest.depth]
        times = every * done
        walk = exact_walk(store.offset, self.nest)
        kind = self._kind(store, walk) if varying else "uniform"
        self._walked(store, times, kind, share, walk)
        if masked:
            self._counts.count("masked", min(masked * every, times))
        if value.dtype.is_float and buffer.type.dtype.bits == 16:
            self._counts.operate("convert", value.dtype, times)

    def _done(self, mask: Scalar) -> float:
        """The share of iterations in which an access under a mask is executed, whether it does anything or not.

        A mask that is the same for all lanes becomes a branch.
        """
        return self._masked + (1.0 - self._masked) * mask.share if mask.cut and mask.varying else mask.share

    def _shuffled(self, load: Load, times: float) -> float:
        """Count whole vectors that are loaded and shuffled in place of a short stride; what is left to be gathered."""
        vectorised = self.nest.vectorised
        assert vectorised is not None
        stride = abs(load.offset.coefficient(vectorised))
        if not 2 <= stride <= min(SHORT_STRIDE, self.nest.lanes + 1):
            return times
        vectors, elements = self.nest.vectors[self.nest.positions[vectorised]], vectorised.extent
        whole = times * (elements // self.nest.lanes) / max(vectors, 1)
        self._counts.count("contiguous", stride * whole)
        self._counts.count("vector_bytes", stride * whole * self.nest.lanes * load.dtype.itemsize)
        self._counts.operate("integer", load.dtype, stride * whole)
        return times - whole

    def _walked(self, statement: Load | Store, times: float, kind: str, share: float, walk: Walk | None) -> None:
        buffer, nest, counts = self.buffers[statement.buffer], self.nest, self._counts
        dtype = buffer.type.dtype
        varying = kind != "uniform"
        write = type(statement) is Store
        masked = statement.mask is not None
        if walk is not None:
            around = walk if self.walked is nest else exact_walk(statement.offset, self.walked)
            assert around is not None
            access = exact_access(buffer, statement.offset, self.walked, around, write, masked, share)
        else:
            access = access_of(buffer, statement.offset, self.walked, _Depths(self.scalars), write, share)
            self._index_work(statement.offset, access.walk.depth, varying)
        self.accesses.append(access)
        lanes = nest.lanes if varying else 1
        counts.count(kind, times)
        if kind in ("strided", "gather"):
            counts.count("gathered_elements", times * lanes)
            one_by_one = _ONE_BY_ONE if dtype.itemsize < 4 else 1.0
            counts.operate("scatter" if write else "gather", dtype, one_by_one * times)
        if self._transposed and statement in self._transposed:
            counts.operate("integer", dtype, _TRANSPOSE * math.log2(lanes) * times)
        counts.count("vector_bytes", times * lanes * dtype.itemsize)
        if access.copies == 1:
            stride = 0 if nest.vectorised is None else self._stride(statement, walk, nest.vectorised)
            far = far_walk(access, nest, kind, abs(stride) * dtype.itemsize, times / self._strip.on_a_page(statement))
            if far is not None:
                counts.count("far_steps", far.steps)
                counts.far.append(far)

    @staticmethod
    def _stride(statement: Load | Store, walk: Walk | None, vectorised: Symbol) -> int:
        """Elements between neighbouring lanes, what is no sum of loops left out."""
        return statement.offset.coefficient(vectorised) if walk is None else walk.stride

    def _kind(self, statement: Load | Store, walk: Walk | None) -> str:
        """How lanes walk, of a position in which they differ."""
        offset, vectorised = statement.offset, self.nest.vectorised
        if vectorised is None:
            return "uniform"
        private = self.nest.copies > 1 and self.buffers[statement.buffer].space is Space.SCRATCH
        if private or (self._transposed and statement in self._transposed):
            return "contiguous"
        for variable, _ in () if walk is not None else offset.terms:
            if isinstance(variable, Element):
                if self.scalars[int(variable.source)].varying:
                    return "gather"
            elif not isinstance(variable, Symbol) and vectorised in list(sources_of(_inside(variable))):
                return "gather"
        stride = self._stride(statement, walk, vectorised)
        if stride == 0:
            return "uniform"
        return "contiguous" if stride in (1, -1) else "strided"

    def _map(self, statement: Map) -> None:
        scalars, counts, opcode, dtype = self.scalars, self._counts, statement.opcode, statement.dtype
        operands = [scalars[number] for number in statement.operands]
        depth, varying = 0, False
        for operand in operands:
            if operand.depth > depth:
                depth = operand.depth
            varying = varying or operand.varying
        work = work_of(opcode, dtype, tuple([operand.dtype for operand in operands]))
        if not (opcode == "select" and operands[0].cut and not self._masked):
            times = self._every if self._stays else self._times[varying][depth]
            times = times * self._needed.get(statement.result, 1.0) if work.computes else 0.0
            if opcode == "select" and operands[0].cut:
                times *= self._masked
            counted = counts.operations if varying else counts.scalars
            for key, weight in work.operations:
                counted[key] = counted.get(key, 0.0) + weight * times
        if dtype.is_float and statement.result not in self._packed:
            counts.flops += work.flops * self.nest.elements_to[depth]
        is_plain = dtype != dtypes.BOOL
        scalars[statement.result] = (
            plain(depth, varying, dtype) if is_plain else mapped(statement, operands, depth, varying)
        )

    def _scan(self, statement: Scan) -> None:
        dtype = statement.dtype
        self._reduction(dtype, statement.combiner, statement.operand)
        if self._vectorises_itself():
            # in a vector: a shuffle and an operation for each doubling, and both for what goes on behind it
            levels = self.nest.lanes.bit_length() - 1
            for op_class, weight in (("integer", 1), *mix_of(statement.combiner, dtype)):
                self._counts.operate(op_class, dtype, weight * (levels + 1) * self._every)
        self.scalars[statement.result] = Scalar(self.nest.depth, self.nest.vectorised is not None, dtype)

    def _carried(self, statement: Carry | Leave | Repeat | Next) -> None:
        """What is handed on stays in registers: it costs time in chains only. To ask for an end is a comparison."""
        if isinstance(statement, Leave | Repeat):
            self._counts.operate("compare", dtypes.BOOL, self._every)
        if isinstance(statement, Carry):
            differs = statement.result in self._varying
            self.scalars[statement.result] = Scalar(self.nest.depth, differs, statement.dtype)

    def _reduction(self, dtype: DType, combiner: str, operand: int) -> None:
        times = self._every
        if combiner in ("maximum", "minimum") and dtype.is_float:
            self._counts.operate("compare", dtype, 3 * times)
        else:
            for op_class, weight in mix_of(combiner, dtype):
                self._counts.operate(op_class, dtype, weight * times)
        if self.scalars[operand].dtype != dtype:
            self._counts.operate("convert", dtype, times)
        if dtype.is_float and combiner in ("add", "multiply"):
            # a part combined into an accumulator first costs nothing: one operation less per entry and lane
            spared = self.entry.elements_to[-1] * self.nest.lanes * self.nest.unroll
            self._counts.flops += max(self.nest.elements_to[-1] - spared, 0.0)

    def _chain(self, own: bool) -> tuple[float, float]:
        """(dependent operations, those of scans) over all entries."""
        if self.stage.before:
            return float(self.nest.rounds_to[-1]) * recurrence(self.stage), 0.0
        if _CHAINING.isdisjoint(self._has):
            return 0.0, 0.0
        links = max(map(_links, self.stage.body), default=0.0)
        if Scan in self._has:
            serial = links * float(self.nest.vectors_to[-1] if own else self.nest.rounds_to[-1])
            return serial, serial
        if links and (own or self.stage.symbols):
            return links * max(float(self.nest.rounds_to[-1] - self.entry.rounds_to[-1]), 0.0), 0.0
        return 0.0, 0.0

    _visits: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        Constant: _constant,
        Position: _position,
        Test: _test,
        Load: _load,
        Map: _map,
        Reduce: _reduce,
        ArgReduce: _arg_reduce,
        Scan: _scan,
        Store: _store,
        **dict.fromkeys((Carry, Leave, Repeat, Next), _carried),
    }


class _Depths(Mapping[int, int]):
    """Loops that move the scalars that are known so far, by number."""

    __slots__ = ("_scalars",)

    def __init__(self, scalars: Mapping[int, Scalar]) -> None:
        self._scalars = scalars

    def __getitem__(self, number: int) -> int:
        return self._scalars[number].depth

    def __iter__(self) -> Iterator[int]:
        return iter(self._scalars)

    def __len__(self) -> int:
        return len(self._scalars)


_REDUCING: frozenset[type] = frozenset((Reduce, ArgReduce))
_CHAINING: frozenset[type] = frozenset((Reduce, ArgReduce, Scan))


def _links(statement: Statement) -> float:
    """Dependent operations from one value of an accumulator to the next."""
    match statement:
        case ArgReduce():
            return _PLACED_LINKS
        case Reduce(combiner=combiner, dtype=dtype) | Scan(combiner=combiner, dtype=dtype):
            return _EXTREME_LINKS if dtype.is_float and combiner in ("maximum", "minimum") else 1.0
        case _:
            return 0.0


def _quotients(value: Affine) -> int:
    return sum(1 + _quotients(v.value) for v, _ in value.terms if isinstance(v, Quotient | Remainder))


def _inside(variable: Quotient | Remainder | Symbol | Element) -> Affine:
    return variable.value if isinstance(variable, Quotient | Remainder) else Affine()
