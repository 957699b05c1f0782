"""Loop bodies as Inductor traces them: one element of a result as a function of its index.

Values that are no buffers are computed on the way, through views. Each distinct thing counts once (ops_handler.py,
OpCounterCSE): arithmetic, constants, loads by buffer and address, index expressions of masks and iotas.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping

from autofuse.fusion.candidate import is_inlined
from autofuse.ir import index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Element, Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition, Piece, within
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.inductor.iteration_ranges import (
    Index,
    is_repeated,
    pieces_of,
    product_index,
    reduced_axes,
    reduced_extents,
    reduction_index,
    result_loops,
)
from autofuse.search.rules.inductor.lowering_kinds import Kind, Program

_INDIRECT = "tmp"
"""First letters of symbols that stand for positions read at run time."""


@dataclass(frozen=True, slots=True)
class Load:
    """One address that a body reads."""

    value: Value
    offset: Affine
    """In elements."""

    @property
    def is_indirect(self) -> bool:
        """Whether the address depends on what memory holds."""
        return any(symbol.name.startswith(_INDIRECT) for symbol in index.symbols_of(self.offset))


@dataclass(slots=True)
class Body:
    """The loop nest of one value, and what its innermost loop holds."""

    node: Node
    loops: tuple[Symbol, ...]
    """Over the result; one per axis, except the axis that a `cumulative` walks."""
    reduced: tuple[Symbol, ...]
    store: Affine
    """Where the result is written, in elements."""
    loads: dict[Load, None] = field(default_factory=dict[Load, None])
    """In order of first use."""
    formulas: dict[Affine, None] = field(default_factory=dict[Affine, None])
    """Index expressions that are computed with: in masks, of iotas."""
    ops: set[str] = field(default_factory=set[str])
    numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """The distinct things the body computes, numbered."""

    @property
    def op_count(self) -> int:
        return len(self.numbers)

    @property
    def read_count(self) -> int:
        """Distinct addresses, not buffers."""
        return len(self.loads)

    @property
    def moving_reads(self) -> int:
        """Loads whose address is not one number."""
        return sum(not load.offset.is_constant for load in self.loads)

    def note(self, op: str, *arguments: Hashable) -> int:
        """The number of a computation."""
        self.ops.add(op)
        return self.numbers.setdefault((op, *arguments), len(self.numbers))


@dataclass(slots=True)
class Tracer:
    """Traces bodies. `is_read(reader, source)`: whether `reader` finds a value in memory instead of computing it."""

    program: Program
    is_read: Callable[[Node, Value], bool]
    strides: Mapping[Value, tuple[int, ...]] = field(default_factory=dict[Value, tuple[int, ...]])
    """Of values that are not stored row by row."""

    def body(self, node: Node, kind: Kind) -> Body:
        """The loop nest of an operation with one result."""
        symbols, at = result_loops(node)
        store = self._offset(node.output, at)
        if kind is not Kind.REDUCTION:
            body = Body(node, symbols, (), store)
            _Walk(self, body).computed(node, at)
            return body
        if node.op == "cumulative":
            (axis,) = reduced_axes(node)
            body = Body(node, symbols[:axis] + symbols[axis + 1 :], (symbols[axis],), store)
            _Walk(self, body).element(node, node.inputs[0], at)
            return body
        reduced = tuple(Symbol(f"r{number}", extent) for number, extent in enumerate(reduced_extents(node)))
        body = Body(node, symbols, reduced, store)
        _Walk(self, body).reduced_element(node, at, tuple(map(index.of, reduced)))
        return body

    def _offset(self, value: Value, at: Index) -> Affine:
        strides = self.strides.get(value) or index.strides_of(value.type.shape)
        offset = Affine()
        for position, stride in zip(at, strides, strict=True):
            offset = offset + position * stride
        return offset

    def load(self, value: Value, at: Index) -> Load:
        """The address of an element."""
        return Load(value, self._offset(value, at))


@dataclass(slots=True)
class _Walk:
    """One trace."""

    tracer: Tracer
    body: Body
    known: dict[tuple[Value, Index], int] = field(default_factory=dict[tuple[Value, Index], int])
    indirect: dict[Hashable, Affine] = field(default_factory=dict[Hashable, Affine])

    def element(self, reader: Node, value: Value, at: Index) -> int:
        """The number of an operand's element, as `reader` gets it."""
        program = self.tracer.program
        node = program.graph.producers.get(value)
        if node is not None and program.passes(node):
            return self.element(reader, node.inputs[0], pieces_of(node, at)[0].index)
        if node is None or (node.op == "constant" and not is_inlined(node)):
            return self._load(value, at)
        if node in program.atoms.atom_of and self.tracer.is_read(reader, value):
            return self._load(value, at)
        if (value, at) not in self.known:
            self.known[value, at] = self.computed(node, at)
        return self.known[value, at]

    def computed(self, node: Node, at: Index) -> int:
        """The number of an element that is computed here."""
        match role_of(node):
            case Role.ELEMENTWISE:
                return self._elementwise(node, [self.element(node, value, at) for value in node.inputs])
            case Role.SCAN | Role.WINDOW:
                return self._window(node, at)
            case role if role.is_leaf:
                return self._leaf(node, at)
            case role if role.moves:
                return self._moved(node, pieces_of(node, at))
            case _:
                ranges = [range(extent) for extent in reduced_extents(node)]
                places = [tuple(map(index.of, place)) for place in itertools.product(*ranges)]
                return self._chain(node.op, [self.reduced_element(node, at, place) for place in places])

    def reduced_element(self, node: Node, at: Index, place: Index) -> int:
        """What a reduction, a product or a window reduces at one place of its reduced loops."""
        match node.op:
            case "dot_general":
                left, right = product_index(node, at, place)
                factors = (self.element(node, node.inputs[0], left), self.element(node, node.inputs[1], right))
                return self.body.note("multiply", *factors)
            case "reduce_window":
                return self._window_element(node, at, place)
            case _:
                return self.element(node, node.inputs[0], reduction_index(node, at, place))

    def _load(self, value: Value, at: Index) -> int:
        load = self.tracer.load(value, at)
        self.body.loads[load] = None
        return self.body.note("load", load)

    def _elementwise(self, node: Node, operands: Iterable[int]) -> int:
        if node.op == "clamp":
            low, value, high = operands
            return self.body.note("minimum", self.body.note("maximum", value, low), high)
        attributes = tuple(str(node.attrs[key]) for key in sorted(node.attrs))
        return self.body.note(node.op, *attributes, *operands)

    def _leaf(self, node: Node, at: Index) -> int:
        if node.op == "constant":
            value = node.attrs["value"]
            return self.body.note("constant", value.dtype.str, value.reshape(-1)[:1].tobytes())
        position = at[node.attrs["iota_dimension"]]
        self.body.formulas[position] = None
        return self.body.note("index_expr", position)

    def _moved(self, node: Node, pieces: tuple[Piece, ...]) -> int:
        """One element chosen among pieces: each but the last is masked, and selected unless the last is a constant."""
        if is_repeated(node):
            return self._repeated(node, pieces[0].index)
        if node.op == "pad":
            self._check_edges(node, pieces[0].index)
        masked, last = pieces[:-1], pieces[-1]
        tests = [self._chain("and", [self._condition(node, test) for test in piece.conditions]) for piece in masked]
        numbers = [self.body.note("masked", t, self._piece(node, p)) for t, p in zip(tests, masked, strict=True)]
        if masked and self.tracer.program.is_leaf(self.tracer.program.source(node.inputs[last.operand])):
            return numbers[0]
        found = self._piece(node, last)
        for test, number in zip(reversed(tests), reversed(numbers), strict=True):
            found = self.body.note("where", test, number, found)
        return found

    def _check_edges(self, node: Node, at: Index) -> None:
        """Positions are looked at along every axis that is padded or cut (lowering.py, constant_pad_nd)."""
        edges = zip(at, node.attrs["edge_padding_low"], node.attrs["edge_padding_high"], strict=False)
        self.body.formulas |= {position: None for position, low, high in edges if low or high}

    def _repeated(self, node: Node, at: Index) -> int:
        """An element of a value that is joined with itself; `at` continues beyond the first copy."""
        axis, value = node.attrs["dimension"], node.inputs[0]
        where = at[axis] % value.type.shape[axis]
        return self.element(node, value, (*at[:axis], where, *at[axis + 1 :]))

    def _piece(self, node: Node, piece: Piece) -> int:
        where = tuple(self._resolved(node, position) for position in piece.index)
        return self.element(node, node.inputs[piece.operand], where)

    def _condition(self, node: Node, test: Condition) -> int:
        value = self._resolved(node, test.value)
        self.body.formulas[value] = None
        position = self.body.note("index_expr", value)
        least, greatest = index.bounds(value)
        parts = [
            self.body.note(op, position, self.body.note("constant", limit))
            for op, limit, needed in (("ge", test.lo, least < test.lo), ("lt", test.hi, greatest >= test.hi))
            if needed
        ]
        if test.multiple > 1:
            self.body.formulas[value % test.multiple] = None
            rest = self.body.note("index_expr", value % test.multiple)
            parts.append(self.body.note("eq", rest, self.body.note("constant", test.remainder)))
        return self._chain("and", parts) if parts else position

    def _chain(self, op: str, numbers: list[int]) -> int:
        """Numbers combined one after the other; a constant of nothing."""
        if not numbers:
            return self.body.note("constant", op)
        result = numbers[0]
        for number in numbers[1:]:
            result = self.body.note(op, result, number)
        return result

    def _resolved(self, node: Node, position: Affine) -> Affine:
        """A position with symbols in the place of what is read at run time."""

        def replaced(variable: index.Variable) -> Affine | None:
            if not isinstance(variable, Element) or not isinstance(variable.source, int):
                return None
            where = tuple(self._resolved(node, inner) for inner in variable.index)
            number = self.element(node, node.inputs[variable.source], where)
            symbol = Symbol(f"{_INDIRECT}{len(self.indirect)}", variable.hi + 1)
            return self.indirect.setdefault((number, variable.lo, variable.hi), index.of(symbol))

        return index.substitute(position, replaced)

    def _window(self, node: Node, at: Index) -> int:
        ranges = [range(extent) for extent in node.attrs["window_dimensions"]]
        places = [tuple(map(index.of, place)) for place in itertools.product(*ranges)]
        return self._chain(node.op, [self._window_element(node, at, place) for place in places])

    def _window_element(self, node: Node, at: Index, place: Index) -> int:
        """One element under a window: masked where padding or holes may lie."""
        attrs, where, masks = node.attrs, list[Affine](), list[int]()
        for axis, extent in enumerate(node.inputs[0].type.shape):
            step, low = attrs["base_dilations"][axis], attrs["padding"][axis][0]
            offset = at[axis] * attrs["window_strides"][axis] + place[axis] * attrs["window_dilations"][axis] - low
            test = within(offset, 0, (extent - 1) * step + 1, step)
            if test is False:
                return self.body.note("constant", "identity")
            if isinstance(test, Condition):
                masks.append(self._condition(node, test))
            where.append(offset // step if step > 1 else offset)
        number = self.element(node, node.inputs[0], tuple(where))
        return self.body.note("masked", self._chain("and", masks), number) if masks else number
