"""The reference executor of a TileProgram: whole index spaces as NumPy arrays, one statement at a time.

It is slow and plain on purpose, and it checks what compiled code cannot afford to check: that every offset lies in its
buffer, that scratch is written before it is read, and that every output element is stored exactly once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.ir.combiners import COMBINERS, combiner_identity
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, Variable
from autofuse.ir.optable import scalar_op
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass
from autofuse.lower.sections import cone
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
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowGroup, Space, Stage, Step, TileProgram

Array = NDArray[Any]


def evaluate_program(program: TileProgram, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The OUTPUT buffers by name, given the INPUT buffers by name.

    Raises BackendError where the program breaks its contract: a missing or misshapen input, an offset outside its
    buffer, a read of scratch or workspace never written, an output element stored twice or never.
    """
    memory = {b.name: _Memory.of(b, inputs) for b in program.parameters()}
    for buffer in filter(lambda b: b.holds, program.buffers):
        memory[buffer.name].data[:] = memory[buffer.holds].data
    scratch = [b for b in program.buffers if b.space is Space.SCRATCH]
    for phase in program.phases():
        _PhaseRun(phase, memory, scratch).run()
    outputs = [b for b in program.buffers if b.space is Space.OUTPUT]
    for buffer in outputs:
        if not (buffer.holds or memory[buffer.name].written.all()):
            raise BackendError(f"{program.name}: elements of output {buffer.name} are never stored")
    return {b.name: memory[b.name].data.reshape(b.type.shape) for b in outputs}


@dataclass(slots=True)
class _Memory:
    """Flat copies of one buffer (one copy, except for scratch), and which elements hold a value."""

    buffer: Buffer
    data: Array
    written: Array

    @staticmethod
    def of(buffer: Buffer, inputs: Mapping[str, Array], copies: int = 1) -> _Memory:
        type_ = buffer.type
        if buffer.space is not Space.INPUT:
            data = np.zeros(copies * type_.size, type_.dtype.numpy)
            return _Memory(buffer, data, np.zeros(data.size, np.bool_))
        if buffer.name not in inputs:
            raise BackendError(f"input {buffer.name} is missing; got {', '.join(inputs)}")
        array = np.asarray(inputs[buffer.name])
        if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
            raise BackendError(f"input {buffer.name} must be {type_}, got {array.dtype}{list(array.shape)}")
        return _Memory(buffer, np.ascontiguousarray(array).reshape(-1), np.ones(array.size, np.bool_))

    def read(self, offset: Array, mask: Array, copy: Array | int) -> Array:
        place = self._place(offset, mask, copy)
        if not self.written[place[mask]].all():
            raise BackendError(f"buffer {self.buffer.name} is read before it is written")
        return self.data[place] if self.data.size else np.zeros(place.shape, self.data.dtype)

    def take(self, offset: Array, mask: Array, copy: Array | int) -> Array:
        """Read what will be written again."""
        found = self.read(offset, mask, copy)
        self.written[self._place(offset, mask, copy)[mask]] = False
        return found

    def write(self, offset: Array, mask: Array, copy: Array | int, value: Array) -> None:
        place = self._place(offset, mask, copy)[mask]
        if (
            self.buffer.space is not Space.SCRATCH
            and not self.buffer.is_state
            and (self.written[place].any() or np.unique(place).size != place.size)
        ):
            raise BackendError(f"an element of {self.buffer.name} is stored twice")
        self.written[place] = True
        self.data[place] = value[mask]

    def _place(self, offset: Array, mask: Array, copy: Array | int) -> Array:
        size = self.buffer.type.size
        if ((offset < 0) | (offset >= size))[mask].any():
            raise BackendError(f"an offset into {self.buffer.name} ({size} elements) is out of range")
        return np.where(mask, offset + (copy * size if self.buffer.space is Space.SCRATCH else 0), 0)


class _PhaseRun:
    """One phase over all its grid points at once."""

    def __init__(self, phase: Phase, memory: Mapping[str, _Memory], scratch: list[Buffer]) -> None:
        self.phase = phase
        self.shape = tuple(s.extent for s in phase.grid)
        self.points: dict[Symbol, Array] = dict(zip(phase.grid, np.indices(self.shape), strict=True))
        self.copy: Array = np.zeros(self.shape, np.int64)
        self.copies = 1
        for symbol in phase.grid:
            if phase.row_block is None or symbol != phase.row_block.symbol:
                self._split_copies(self.points[symbol], symbol.extent)
        if phase.row_block is not None:
            row, size = self.points[phase.row_block.symbol], phase.row_block.size
            self._split_copies(row // size, -(-phase.row_block.symbol.extent // size))
            self.points[phase.row_block.local] = row % size
        self.memory = {**memory, **{b.name: _Memory.of(b, {}, self.copies) for b in scratch}}

    def _split_copies(self, index: Array, extent: int) -> None:
        self.copy = self.copy * extent + index
        self.copies *= extent

    def run(self) -> None:
        steps, again = self.phase.steps, self.phase.iterations
        if again is None:
            self._steps(steps)
            return
        self._steps(steps[: again.steps.start])
        for number in range(again.symbol.extent):
            self.points[again.symbol] = np.full(self.shape, number)
            self._steps(steps[again.steps.start : again.steps.stop])
        del self.points[again.symbol]
        self._steps(steps[again.steps.stop :])

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Dot):
                for copy in range(self.copies):
                    self._dot(step, copy)
            else:
                self._rows(step)

    def _rows(self, group: RowGroup) -> None:
        totals: dict[int, Array] = {}
        for stage in group.stages:
            carried = stage.in_order or any(isinstance(statement, Carry) for statement in stage.body)
            totals.update((_OrderedRun if carried else _StageRun)(self, stage, totals).run())

    def _dot(self, dot: Dot, copy: int) -> None:
        at = np.nonzero(self.copy.reshape(-1) == copy)[0]
        rows = dot.rows if self.phase.row_block is None else min(dot.rows, at.size)
        first: dict[Variable, int] = {symbol: int(values.reshape(-1)[at[0]]) for symbol, values in self.points.items()}

        def places(matrix: Matrix, rows: int, columns: int) -> tuple[_Memory, Array, Array]:
            i, j = np.indices((rows, columns))
            place = _affine(matrix.offset, first, {}) + i * matrix.row_stride + j * matrix.column_stride
            return self.memory[matrix.buffer], place, np.ones(place.shape, np.bool_)

        memory, place, mask = places(dot.lhs, rows, dot.depth)
        lhs = memory.read(place, mask, copy)
        memory, place, mask = places(dot.rhs, dot.depth, dot.columns)
        rhs = memory.read(place, mask, copy)
        memory, place, mask = places(dot.out, rows, dot.columns)
        product = _matrix_product(lhs, rhs, dot.dtype)
        if dot.accumulate:
            product = memory.take(place, mask, copy) + product
        memory.write(place, mask, copy, product)


def _matrix_product(lhs: Array, rhs: Array, dtype: DType) -> Array:
    wide = np.dtype(np.float32) if dtype.is_float and dtype.bits == 16 else dtype.numpy
    return (lhs.astype(wide) @ rhs.astype(wide)).astype(dtype.numpy)


class _StageRun:
    """One stage over all grid points and iterations at once: every scalar is an array over both."""

    def __init__(self, phase: _PhaseRun, stage: Stage, totals: Mapping[int, Array]) -> None:
        self.phase = phase
        self.stage = stage
        self.grid_rank = len(phase.shape)
        self.shape = phase.shape + tuple(s.extent for s in stage.symbols)
        extra = self.inner = (1,) * len(stage.symbols)
        indices = np.indices(self.shape)[self.grid_rank :]
        self.at: dict[Variable, Array] = {s: self._widen(v.reshape(v.shape + extra)) for s, v in phase.points.items()}
        self.at.update(zip(stage.symbols, indices, strict=True))
        self.copy = self._widen(phase.copy.reshape(phase.copy.shape + extra))
        self.scalars = {number: self._widen(v.reshape(v.shape + extra)) for number, v in totals.items()}

    def _widen(self, array: Array) -> Array:
        return np.broadcast_to(array, self.shape)

    def run(self) -> dict[int, Array]:
        """The reduced values, one per grid point."""
        totals: dict[int, Array] = {}
        for statement in self.stage.body:
            match statement:
                case Reduce() | ArgReduce():
                    total = totals[statement.result] = self._reduction(statement)
                    if statement.result == self.stage.stabiliser:
                        self.scalars[statement.result] = self._widen(total.reshape(total.shape + self.inner))
                case Store():
                    memory = self.phase.memory[statement.buffer]
                    value = self.scalars[statement.value]
                    memory.write(self._index(statement.offset), self._mask(statement.mask), self.copy, value)
                case Leave() | Repeat() | Next():
                    raise BackendError("what is carried is evaluated one iteration after another")
                case _:
                    self.scalars[statement.result] = self._widen(self._scalar(statement))
        return totals

    def _scalar(self, statement: Constant | Position | Test | Load | Map | Scan | Carry) -> Array:
        match statement:
            case Constant(_, dtype, value):
                return np.full(self.shape, value, dtype.numpy)
            case Position(_, dtype, value):
                return self._index(value).astype(dtype.numpy)
            case Test(_, conditions):
                return np.logical_and.reduce([self._holds(c) for c in conditions])
            case Load():
                return self._load(statement)
            case Map(_, dtype, opcode, operands):
                return apply_opcode(opcode, dtype, *(self.scalars[number] for number in operands))
            case Scan():
                values = self.scalars[statement.operand].astype(statement.dtype.numpy)
                axis = slice(None, None, -1 if statement.reverse else 1)
                ufunc: Any = COMBINERS[statement.combiner]
                return ufunc.accumulate(values[..., axis], axis=-1, dtype=values.dtype)[..., axis]
            case Carry():
                raise BackendError("what is carried is evaluated one iteration after another")

    def _load(self, load: Load) -> Array:
        mask = self._mask(load.mask)
        value = self.phase.memory[load.buffer].read(self._index(load.offset), mask, self.copy)
        return value if load.fill is None else np.where(mask, value, self.scalars[load.fill])

    def _reduction(self, statement: Reduce | ArgReduce) -> Array:
        points = self.shape[: self.grid_rank]
        values = self.scalars[statement.operand].reshape(*points, math.prod(self.shape[self.grid_rank :]))
        dtype = statement.dtype.numpy
        if isinstance(statement, Reduce):
            initial = combiner_identity(statement.combiner, statement.dtype)
            ufunc: Any = COMBINERS[statement.combiner]
            return np.asarray(ufunc.reduce(values.astype(dtype), axis=-1, dtype=dtype, initial=initial))
        places = self._index(statement.position).reshape(values.shape)
        order = np.argsort(places, axis=-1, kind="stable")
        places, values = (np.take_along_axis(a, order, axis=-1) for a in (places, values))
        if values.dtype.kind not in "iub":
            values = values.astype(np.float64)  # exact, and NumPy finds NaN there for bf16 too
        chosen = np.argmin(values, axis=-1) if statement.direction == "argmin" else np.argmax(values, axis=-1)
        return np.take_along_axis(places, chosen[..., None], axis=-1)[..., 0].astype(dtype)

    def _mask(self, mask: int | None) -> Array:
        return np.ones(self.shape, np.bool_) if mask is None else self.scalars[mask]

    def _index(self, value: Affine) -> Array:
        return self._widen(np.asarray(_affine(value, self.at, self.scalars), np.int64))

    def _holds(self, condition: Condition) -> Array:
        value = self._index(condition.value)
        inside = (value >= condition.lo) & (value < condition.hi)
        return inside & (value % condition.multiple == condition.remainder)


class _OrderedRun(_StageRun):
    """A stage that carries values: one iteration after another, each over all grid points at once."""

    def __init__(self, phase: _PhaseRun, stage: Stage, totals: Mapping[int, Array]) -> None:
        super().__init__(phase, stage, totals)
        if not stage.symbols or len(set(stage.symbols)) != len(stage.symbols):
            raise BackendError(f"a stage that carries values walks loops, each once; got {stage.symbols}")
        self.walked: dict[Variable, Array] = {
            symbol: self.at[symbol].reshape(*phase.shape, -1) for symbol in stage.symbols
        }
        """Where each iteration stands, all loops of the stage in one axis."""
        self.settled: Array | None = None
        """Points that are settled: each is left alone from then on, as a worker of that point alone would do."""
        self.resting: Array | None = None
        """Those for which what is repeated is over."""
        self.inner = (1,)
        self.shape = (*phase.shape, 1)
        self.at = {symbol: self._first(array) for symbol, array in self.at.items()}
        self.copy = self._first(self.copy)
        self.scalars = {number: self._first(array) for number, array in self.scalars.items()}
        self.held: dict[int, Array] = {}
        """By carry, what the next iteration gets."""
        self.rows: dict[int, list[Array]] = {}
        """By reduction, what each iteration gave."""

    def _first(self, array: Array) -> Array:
        return array[(..., *(0 for _ in self.stage.symbols))][..., None]

    def run(self) -> dict[int, Array]:
        """The reduced and the carried values, one per grid point."""
        reductions = [s for s in self.stage.body if isinstance(s, Reduce | ArgReduce)]
        for statement in self.stage.before:
            self._step(statement)
        self.held = {s.result: self.scalars[s.initial] for s in self.stage.body if isinstance(s, Carry)}
        self.rows = {s.result: [] for s in reductions}
        self._walk(self.stage.symbols)
        totals = {number: array[..., 0] for number, array in self.held.items()}
        for statement in reductions:
            totals[statement.result] = self._reduced(statement, self.rows[statement.result])
        return totals

    def _walk(self, symbols: Sequence[Symbol]) -> None:
        """All iterations of loops in one another, until all points are settled."""
        if not symbols:
            self._iteration()
            return
        symbol, inner = symbols[0], symbols[1:]
        for place in self._iterations(symbol):
            self.at[symbol] = np.full(self.shape, place)
            again = next((s for s in self.stage.body if isinstance(s, Repeat) and self._is_meant(s, symbol)), None)
            if again is None:
                self._walk(inner)
            else:
                self._repeat(again, inner)
            if self.settled is not None and self.settled.all():
                return

    def _is_meant(self, repeat: Repeat, symbol: Symbol) -> bool:
        """Whether the iteration of a symbol that is at hand is to be repeated."""
        return repeat.symbol == symbol and bool(self._asked(repeat.where).all())

    def _repeat(self, repeat: Repeat, inner: Sequence[Symbol]) -> None:
        before = self.resting
        self.resting = np.zeros(self.shape, np.bool_)
        while True:
            self.resting = self.resting | self._asked(repeat.settled)
            if self.resting.all():
                break
            self._walk(inner)
        self.resting = before

    def _asked(self, scalar: int) -> Array:
        """A condition that is computed from what is carried."""
        self.scalars.update(self.held)
        for statement in cone(self.stage.body, scalar):
            self._step(statement)
        return self.scalars[scalar]

    def _iteration(self) -> None:
        self.scalars.update(self.held)
        for statement in self.stage.body:
            self._step(statement)
        for statement in self.stage.body:
            if isinstance(statement, Reduce | ArgReduce):
                self.rows[statement.result].append(self.scalars[statement.operand])

    def _iterations(self, symbol: Symbol) -> Iterable[int]:
        """The iterations to do; without an end where data decide it, and then nothing is read at their positions."""
        leave = self.stage.leave
        if leave is not None and leave.required and symbol == self.stage.symbols[0]:
            return itertools.repeat(0)
        return range(symbol.extent)[:: -1 if self.stage.is_reversed else 1]

    def _step(self, statement: Statement) -> None:
        match statement:
            case Carry() | Reduce() | ArgReduce() | Repeat():
                pass
            case Next(carry, value):
                new = self.scalars[value]
                for left_alone in (self.settled, self.resting):
                    new = new if left_alone is None else np.where(left_alone, self.scalars[carry], new)
                self.held[carry] = new
            case Leave(settled):
                self.settled = self.scalars[settled]
            case Store():
                value = self.scalars[statement.value]
                memory = self.phase.memory[statement.buffer]
                memory.write(self._index(statement.offset), self._mask(statement.mask), self.copy, value)
            case _:
                self.scalars[statement.result] = self._widen(self._scalar(statement))

    def _reduced(self, statement: Reduce | ArgReduce, rows: list[Array]) -> Array:
        """A reduction over the rows of all iterations."""
        order = rows[::-1] if self.stage.is_reversed else rows
        self.at.update(self.walked)
        self.shape = self.walked[self.stage.symbols[0]].shape
        self.scalars[statement.operand] = np.concatenate(order, axis=-1)
        return self._reduction(statement)


def _affine(value: Affine, at: Mapping[Variable, Any], scalars: Mapping[int, Array]) -> Any:
    total: Any = value.constant
    for variable, coefficient in value.terms:
        match variable:
            case Symbol():
                found = at[variable]
            case Quotient(inner, divisor):
                found = _affine(inner, at, scalars) // divisor
            case Remainder(inner, divisor):
                found = _affine(inner, at, scalars) % divisor
            case Element(source, _, lo, hi):
                found = _clamped(scalars[int(source)], lo, hi)
        total = total + found * coefficient
    return total


def _clamped(values: Array, lo: int, hi: int) -> Array:
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(max(hi, 0)))
    return np.clip(values.astype(np.int64), lo, hi)


def apply_opcode(opcode: str, dtype: DType, *operands: Array) -> Array:
    """A scalar opcode over arrays of equal shape, by the op table."""
    op = scalar_op(opcode)
    attrs: dict[str, Any] = {"dtype": dtype} if "dtype" in op.attrs else {}
    if op.variant is not None:
        attrs[op.variant] = opcode.upper()
    with np.errstate(all="ignore"):
        (result,) = op.evaluate(operands, attrs, ())
    return result
