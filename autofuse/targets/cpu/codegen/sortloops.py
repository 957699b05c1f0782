"""A sort as loops: what is put in order in memory, and how.

A row is copied into records: a key, an unsigned integer in whose order the rows are, and below it or beside it what
goes along. That is the element's number in the row, a few bits of the only operand that goes along, or nothing.

    ranked     short rows: a record's place is how many others come before it; nothing depends on data
    radix      long ones: stable passes over digits of the keys, 8 bits each, without those that are all alike

Both keep equal keys in order, so `stable` asks for nothing more.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

from autofuse.errors import BackendError
from autofuse.ir import dtypes, index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Element, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.elements import Elements, Result, elements_of
from autofuse.lower.librarykernels import Counted, results_needed, source_of
from autofuse.lower.statements import Store
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.codegen.layers import Layers, statements_ns

MOST_RANKED = 192
"""Records of a row; more are put in order by radix."""
DIGIT_BITS = 8
_RADIX_NS, _DIGIT_NS, _RANK_NS = 1.5, 180.0, 0.35
"""Of a record in a pass, of the sums of a pass, and of comparing a record with a vector of others."""
_COPY_NS = 2.0


@dataclass(frozen=True, slots=True)
class Records:
    """How a record lies in memory."""

    key_bits: int
    """Of the order: as many as the dtype of the keys has."""
    goes: Literal["nothing", "number", "bits"]
    """What goes along with a key."""

    @property
    def width(self) -> int:
        """Bits of the array that holds the keys; in the upper ones, if what goes along is below them."""
        return self.key_bits if self.goes == "nothing" else 64

    @property
    def shift(self) -> int:
        """Bits below the key."""
        return 32 if self.goes != "nothing" and self.key_bits <= 32 else 0

    @property
    def beside(self) -> bool:
        """Whether what goes along has an array of its own, of 64 bits."""
        return self.goes != "nothing" and self.key_bits == 64

    @property
    def free_bits(self) -> int:
        """How much can go along."""
        return 64 if self.beside else self.shift

    @property
    def digits(self) -> int:
        """Passes of a radix sort."""
        return self.key_bits // DIGIT_BITS


class SortLoops:
    """The loops of one sort."""

    def __init__(self, program: OpaqueProgram, node: Node, vector_bits: int) -> None:
        self.program, self.node = program, node
        self.keys: DType = node.inputs[0].type.dtype
        self.descending: bool = node.attrs["descending"]
        shape, axis = node.inputs[0].type.shape, node.attrs["dimension"]
        self.extent = shape[axis]
        self.rows = tuple(Symbol(f"r{d}", extent) for d, extent in enumerate(shape) if d != axis)
        self.walked = Symbol("k", self.extent)
        self.place = Symbol("q", self.extent)
        """Where in the row a record has come to lie."""
        self.wanted = tuple(map(node.outputs.index, results_needed(program.graph, node)))
        """Numbers of the results that are written, or that something is made of."""
        self.alone = self.wanted == (0,)
        """Whether keys alone are put in order: they are made of records."""
        self.records = self._records()
        self.loads = elements_of(program.graph, self._loaded(self._at(self.walked)))
        """Keys, and bits that go along, at `walked`."""
        self.layers = Layers(self.loads, (*self.rows, self.walked))
        self.results = self._results()
        """What is written at `place`, of scalar 0: a record's number, or the only result that is needed."""
        self.stores = self._stores()
        """What is written at `place`: into the outputs, of the scalars of `results`."""
        self.lanes = self._lanes(self.layers.lanes(len(self.rows) + 1, self.keys, self.extent, vector_bits))

    def _lanes(self, most: int) -> int:
        """Records that are made side by side, and made into results."""
        return min(most, max(1, 512 // self.records.width))

    def _records(self) -> Records:
        bits = 8 if self.keys.kind == "bool" else self.keys.bits
        if self.alone:
            return Records(bits, "nothing")
        by_bits = Records(bits, "bits")
        fits = len(self.wanted) == 1 and self._operand(self.wanted[0]).type.dtype.bits <= by_bits.free_bits
        return by_bits if fits and not self._counts(self._operand(self.wanted[0])) else Records(bits, "number")

    def _counts(self, value: Value) -> bool:
        """Whether a value is 0, 1, 2, ... along the rows."""
        try:
            source = source_of(self.program.graph, value, self._at(self.walked))
        except BackendError:
            return False
        return isinstance(source, Counted) and source.value == index.of(self.walked)

    def _operand(self, number: int) -> Value:
        return self.node.inputs[number]

    def _at(self, walked: Symbol | Affine) -> tuple[Affine, ...]:
        """An index whose position in the row is `walked`."""
        at = [index.of(symbol) for symbol in self.rows]
        at.insert(self.node.attrs["dimension"], walked if isinstance(walked, Affine) else index.of(walked))
        return tuple(at)

    def _loaded(self, at: tuple[Affine, ...]) -> list[tuple[Value, tuple[Affine, ...]]]:
        values = [self._operand(0)]
        if self.records.goes == "bits":
            values.append(self._operand(self.wanted[0]))
        return [(value, at) for value in values]

    def _results(self) -> Elements:
        graph, wanted = self.program.graph, [(value, self._at(self.place)) for value in self.program.graph.outputs]
        if self.records.goes != "number":
            return elements_of(graph, wanted, (self.held,), {self.node.outputs[self.wanted[0]]: lambda *_: 0})
        number = index.of(Element("%0", (), 0, max(self.extent - 1, 0)))
        results = {self.node.outputs[n]: self._reader(self._operand(n), self._at(number)) for n in self.wanted}
        return elements_of(graph, wanted, (dtypes.I64,), results)

    @staticmethod
    def _reader(operand: Value, at: tuple[Affine, ...]) -> Result:
        return lambda builder, stage, _, guard: builder.value(stage, operand, at, guard)

    def _stores(self) -> tuple[Store, ...]:
        offset = index.linearize(self._at(self.place), self.node.inputs[0].type.shape)
        names = [buffer.name for buffer in self.program.buffers][len(self.program.graph.inputs) :]
        return tuple(Store(name, offset, scalar) for name, scalar in zip(names, self.results.results, strict=True))

    @property
    def held(self) -> DType:
        """The dtype of the only result that is needed, where records hold it."""
        return self._operand(self.wanted[0]).type.dtype

    @property
    def is_ranked(self) -> bool:
        return self.extent <= MOST_RANKED

    @property
    def blocks(self) -> int:
        """Rows."""
        return math.prod(symbol.extent for symbol in self.rows) if self.extent else 0

    @property
    def has_epilogue(self) -> bool:
        """Whether something is made of the results."""
        return not set(self.program.graph.outputs) <= set(self.node.outputs)

    @cached_property
    def row_ns(self) -> float:
        """What a row takes, roughly."""
        n = self.extent
        load = n * (self.layers.ns(len(self.rows) + 1, self.lanes) + _COPY_NS)
        if self.has_epilogue:
            load += n * statements_ns(self.results.statements, self.lanes)
        if self.is_ranked:
            return load + n * -(-n // max(1, 512 // self.records.width)) * _RANK_NS
        return load + self.records.digits * (n * _RADIX_NS + _DIGIT_NS)
