"""A loop over time as one kernel: each grid point, or block of rows, does all iterations with its state on chip.

    h = scan of { h = tanh(x[t] @ w + h @ u) }, of many rows that do not depend on one another:

    row block of rows
      before      state = h as the loop starts
      t < length  s = x[t] @ w;  s += state @ u;  state = tanh(s);  what is stacked is stored at [t]
      behind      h = state

The weights are read again by every block in every iteration, which caches are for. What the next iteration gets is
written beside what this one still reads, in two places of a row by turns. An iteration reads each part of the state at
its own place of the grid; else rows depend on one another, and the loop is none of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from autofuse.errors import LegalityError
from autofuse.fusion.dimensions import AxisFactor, Dimensions, Use
from autofuse.ir import index
from autofuse.ir.graph import Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.lower.demand import PhaseBuilder
from autofuse.lower.phasedrafts import BufferTable, Demand, Instance, StageDraft, Wanted
from autofuse.lower.rewrite import renamed_buffers
from autofuse.lower.rowparts import RowLoop, changing_values
from autofuse.lower.statements import Scalar, Store
from autofuse.lower.tile import Iterations, Phase, Space, TileProgram

_SLOTS = 2
"""Places of the state: what an iteration reads, and what it makes for the next one."""


class _Part(NamedTuple):
    """A part of the state, on chip."""

    buffer: str
    home: tuple[Affine, ...]
    """The index at which a grid point has its elements."""
    is_own: tuple[bool, ...]
    """Of each axis, whether the grid walks it."""
    sizes: tuple[int, ...]
    """Of the other axes."""
    name: str
    """Of the value, for people."""

    def position(self, at: Sequence[Affine]) -> Affine:
        """Where an element lies among those of its grid point. Raises LegalityError for another point's."""
        position, sizes = Affine(), iter(self.sizes)
        for wanted, usual, is_own in zip(at, self.home, self.is_own, strict=True):
            if not is_own:
                position = position * next(sizes) + wanted
            elif wanted != usual:
                raise LegalityError(f"%{self.name} is read at another row than its own: rows depend on one another")
        return position


class _Stored(NamedTuple):
    """A part of what an iteration makes."""

    value: Value
    at: tuple[Affine, ...]
    """Which element of it."""
    where: tuple[Affine, ...]
    """Which element of the whole that is."""


class IterationBuilder(PhaseBuilder):
    """Builds the phase of a row loop: the body's stages and products, with what sets the state before, and reads it."""

    first_level = 1
    reads_again = True

    def __init__(
        self,
        source: RowLoop,
        dims: Dimensions,
        grid: Sequence[AxisFactor],
        buffers: BufferTable,
        keep: Mapping[Instance, tuple[int, tuple[Symbol, ...]]],
        local: Symbol | None,
    ) -> None:
        """See `PhaseBuilder`."""
        super().__init__(source.body, dims, grid, buffers, keep, local)
        self._source = source
        self.levels = {value: level + self.first_level for value, level in self.levels.items()}
        self._last_level = max(self.levels.values(), default=self.first_level)
        boundaries = (boundary + self.first_level for boundary in self.row_boundaries)
        self.row_boundaries = [0, *boundaries, self._last_level]
        self.time = Symbol("t", source.length)
        now = index.of(self.time)
        self._row = now * -1 + (self.time.extent - 1) if source.reverse else now
        self._changing = changing_values(source.given, source.body.nodes)
        self._uses: dict[Value, Use] = {}
        for node in source.body.nodes:
            for number, value in enumerate(node.inputs):
                if dims.has_axes(use := dims.use(node, number)):
                    self._uses.setdefault(value, use)
        self._parts = {state.given: self._part(state.given, state.made) for state in source.states}

    def _part(self, given: Value, made: Value) -> _Part:
        home = self._index_at_home(made)
        is_own = tuple(bool(index.symbols_of(position) & self.grid_set) for position in home)
        for position, own in zip(home, is_own, strict=True):
            if own and not index.symbols_of(position) <= self.grid_set:
                raise LegalityError(f"%{given.name} has an axis that is rows and columns: its rows are not kept apart")
        sizes = tuple(n for n, own in zip(given.type.shape, is_own, strict=True) if not own)
        rows = () if self.local is None else (self.local.extent,)
        type_ = TensorType((*rows, _SLOTS, math.prod(sizes)), given.type.dtype)
        buffer = self.buffers.add(f"{given.name}.state", type_, Space.SCRATCH).name
        return _Part(buffer, home, is_own, sizes, given.name)

    def _index_at_home(self, value: Value) -> tuple[Affine, ...]:
        """The index of what an iteration makes, or hands on as it got it."""
        use = value if self.dims.has_axes(value) else self._uses.get(value)
        if use is None:
            raise LegalityError(f"%{value.name} is handed on by the loop, and nothing in it says which rows it has")
        return tuple(self.axis_index(axis) for axis in self.dims.axes(use))

    # ---- what an iteration reads ---------------------------------------------------------------------------------

    def source(self, value: Value, at: tuple[Affine, ...]) -> Instance:
        """Of a row that comes in, the element of the array that it is of."""
        array = self._source.arrays.get(value)
        return (value, at) if array is None else (array, (self._row, *at))

    def place(self, value: Value, at: Sequence[Affine]) -> tuple[str, Affine]:
        """Where an element lies that no node makes: in a buffer, or in the state."""
        part = self._parts.get(value)
        return super().place(value, at) if part is None else (part.buffer, self._offset(part, at, index.of(self.time)))

    def _offset(self, part: _Part, at: Sequence[Affine], slot: Affine) -> Affine:
        size = math.prod(part.sizes)
        return self.row_offset(_SLOTS * size) + slot % _SLOTS * size + part.position(at)

    def _compute(self, stage: StageDraft, value: Value, at: tuple[Affine, ...], guard: Scalar | None) -> Demand[Scalar]:
        array, where = self.source(value, at)
        if array is not value:
            return (yield Wanted(stage, array, where, guard))
        if value in self._parts:
            buffer, offset = self.place(value, at)
            return self.load_at(stage, buffer, value.type.dtype, offset, guard)
        return (yield from super()._compute(stage, value, at, guard))

    def is_fixed(self, value: Value) -> bool:
        """Whether a value is the same in all iterations."""
        return value not in self._changing

    # ---- what an iteration makes ---------------------------------------------------------------------------------

    def direct_place(self, value: Value, at: Sequence[Affine]) -> tuple[str, Affine] | None:
        """Where a product may store a result that nothing else reads: in a row of one result of the loop."""
        targets = [*self._targets(value, at)]
        is_state = any(state.made is value for state in self._source.states)
        return targets[0] if len(targets) == 1 and not is_state else None

    def store_output(self, value: Value) -> None:
        """Store what an iteration makes: for the next one, and as a row of the loop's results."""
        for part, at, where in self._joined(value, self._index_at_home(value)):
            symbols = tuple(s for s in self._streams_in_order(at) if s not in self.grid_set)
            stage = self.draft.stage(self.levels.get(part, self.first_level), symbols)
            scalar = self.value(stage, part, at, None)
            stage.roots.append((part, at))
            for buffer, offset in self._targets(value, where):
                stage.body.append(Store(buffer, offset, scalar))

    def _joined(self, value: Value, at: tuple[Affine, ...]) -> Iterator[_Stored]:
        """What is stored of a value: the parts that it is joined of each by itself, without choosing among them."""
        node = self.producers.get(value)
        if (
            node is None
            or role_of(node) is not Role.JOIN
            or index.symbols_of(at[node.attrs["dimension"]]) & self.grid_set
        ):
            yield _Stored(value, at, at)
            return
        axis, begin = node.attrs["dimension"], 0
        for operand in node.inputs:
            extent = operand.type.shape[axis]
            own = index.of(self.fresh_stream(extent)) if extent > 1 else Affine()
            inside = (*at[:axis], own, *at[axis + 1 :])
            for part in self._joined(operand, inside):
                place = part.where[axis] + begin
                yield part._replace(where=(*part.where[:axis], place, *part.where[axis + 1 :]))
            begin += extent

    @staticmethod
    def _streams_in_order(at: Sequence[Affine]) -> Iterator[Symbol]:
        for position in at:
            for variable, _ in sorted(position.terms, key=lambda term: -term[1]):
                if isinstance(variable, Symbol):
                    yield variable

    def _targets(self, value: Value, at: Sequence[Affine]) -> Iterator[tuple[str, Affine]]:
        """Where a value goes at the end of an iteration."""
        for state in self._source.states:
            if state.made is value:
                part = self._parts[state.given]
                yield part.buffer, self._offset(part, at, index.of(self.time) + 1)
        for rows in self._source.stacked:
            if rows.made is value:
                yield self.buffers.of(rows.result).name, index.linearize((self._row, *at), rows.type.shape)

    # ---- before and behind ---------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Add what no node makes: the state before the first iteration, what is handed on as it is, the results."""
        made = set(self._source.body.outputs)
        ends = [s.made for part in (self._source.states, self._source.stacked) for s in part]
        for value in dict.fromkeys(value for value in ends if value not in made):
            self.store_output(value)
        for state in self._source.states:
            part = self._parts[state.given]
            symbols = tuple(s for s in self._streams_in_order(part.home) if s not in self.grid_set)
            stage = self.draft.stage(0, symbols)
            scalar = self.value(stage, state.initial, part.home, None)
            stage.roots.append((state.initial, part.home))
            stage.body.append(Store(part.buffer, self._offset(part, part.home, Affine()), scalar))
            if state.result is None:
                continue
            stage = self.draft.stage(self._last_level + 1, symbols)
            last = self._offset(part, part.home, Affine(self.time.extent))
            scalar = self.load_at(stage, part.buffer, state.given.type.dtype, last, None)
            offset = index.linearize(part.home, state.given.type.shape)
            stage.body.append(Store(self.buffers.of(state.result).name, offset, scalar))

    def around(self, phase: Phase) -> Phase:
        """The phase with its iterations marked."""
        before = bool(self._parts)
        behind = any(state.result is not None for state in self._source.states)
        return replace(phase, iterations=Iterations(self.time, before, len(phase.steps) - before - behind))


def one_after_other(first: TileProgram, program: TileProgram, names: Mapping[str, str]) -> TileProgram:
    """One program of two: the first makes what the other one reads. `names`: of the first one's outputs that differ."""
    known = {buffer.name for buffer in program.buffers}
    own = {b.name: f"{b.name}.shared" for b in first.buffers if b.space in (Space.SCRATCH, Space.WORKSPACE)}
    whole = {**{buffer.name: buffer.name for buffer in first.buffers}, **own, **names}
    more = tuple(replace(b, name=own[b.name]) for b in first.buffers if b.name in own)
    assert known.issuperset(whole[b.name] for b in first.buffers if b.name not in own)
    launches = tuple(tuple(renamed_buffers(phase, whole) for phase in launch) for launch in first.launches)
    return replace(program, buffers=(*program.buffers, *more), launches=(*launches, *program.launches))
