"""Statements of a stage as C: every statement once per copy (a copy = one of the neighbouring lanes of a thread)."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir import dtypes, index
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Element, Symbol
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.rewrite import affines
from autofuse.lower.tile import (
    ArgReduce,
    Constant,
    Load,
    Map,
    Position,
    Reduce,
    Scalar,
    Scan,
    Stage,
    Statement,
    Store,
    Test,
)
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.access import VECTOR_BYTES, is_aligned, is_unit_stride
from autofuse.targets.cuda.codegen.ctext import IndexText, Names, Writer
from autofuse.targets.cuda.codegen.places import Place, unwrapped
from autofuse.targets.cuda.ctypes_text import literal, register_type
from autofuse.targets.cuda.prelude import Prelude


@dataclass(slots=True)
class PhaseCode:
    """What all stages of one phase share while their code is written."""

    out: Writer
    prelude: Prelude
    index: IndexText
    names: Names
    places: dict[str, Place]
    symbols: dict[Symbol, str] = field(default_factory=dict[Symbol, str])
    """C names of the symbols in scope."""
    values: dict[Scalar, tuple[str, ...]] = field(default_factory=dict[Scalar, tuple[str, ...]])
    """C names of each scalar: one per copy, or a single one that serves all copies."""
    types: dict[Scalar, DType] = field(default_factory=dict[Scalar, DType])
    _loops: dict[Symbol, str] = field(default_factory=dict[Symbol, str])

    def loop_name(self, symbol: Symbol) -> str:
        """The C name of a symbol, the same in every loop over it; it comes into scope."""
        if symbol not in self._loops:
            self._loops[symbol] = self.names.fresh(symbol.name)
        self.symbols[symbol] = self._loops[symbol]
        return self._loops[symbol]

    def affine(self, value: Affine, copy: int = 0) -> str:
        """An index expression, as read by `copy`."""
        return self.index.write(value, self.symbols, lambda number: self.value(number, copy))

    def value(self, number: Scalar, copy: int = 0) -> str:
        names = self.values[number]
        return names[copy if len(names) > 1 else 0]


@dataclass(frozen=True, slots=True)
class Copies:
    """Copy `v` of a statement stands at `lane + v`."""

    lane: Symbol | None
    count: int
    chunk: str = "0"
    """C expression numbering the chunks of `count` lanes that the thread walks."""
    leader: str | None = None
    """C condition under which stores happen, when all threads of a group run the same iteration."""
    combined: bool = False
    """Copies are iterations (a reduction combines them), not grid points (a reduction keeps one result for each)."""


@dataclass(slots=True)
class Accumulator:
    """The running value of a Reduce, ArgReduce or Scan, one per grid point."""

    values: tuple[str, ...]
    positions: tuple[str, ...] = ()
    """ArgReduce: where the value stands; empty otherwise."""


class StageBody:
    """Writes one stage: `declare` before its loops, `body` inside them, `finish` behind them."""

    def __init__(self, code: PhaseCode, stage: Stage, points: int) -> None:
        self.code = code
        self.stage = stage
        self.points = points
        """Grid points the thread works on side by side."""
        self.accumulators: dict[Scalar, Accumulator] = {}

    def declare(self) -> None:
        """Start values of reductions and scans."""
        for statement in self.stage.body:
            if isinstance(statement, Reduce | Scan):
                self._declare(statement.result, statement.dtype, statement.combiner, "r")
            elif isinstance(statement, ArgReduce):
                dtype = self._operand_dtype(statement.operand)
                combiner = "maximum" if statement.direction == "argmax" else "minimum"
                self._declare(statement.result, dtype, combiner, "best")
                places = self._fresh(f"at{statement.result}", self.points)
                last = "9223372036854775807LL" if self.code.index.type == "long long" else "2147483647"
                for name in places:
                    self.code.out.line(f"{self.code.index.type} {name} = {last};")
                self.accumulators[statement.result].positions = places

    def _operand_dtype(self, number: Scalar) -> DType:
        if number in self.code.types:
            return self.code.types[number]
        return next(dtype_of(s) for s in self.stage.body if not isinstance(s, Store) and s.result == number)

    def _declare(self, result: Scalar, dtype: DType, combiner: str, letter: str) -> None:
        names = self._fresh(f"{letter}{result}", self.points)
        for name in names:
            self.code.out.line(f"{register_type(dtype)} {name} = {unwrapped(scalars.identity(combiner, dtype))};")
        self.accumulators[result] = Accumulator(names)

    def _fresh(self, wish: str, count: int) -> tuple[str, ...]:
        if count == 1:
            return (self.code.names.fresh(wish),)
        return tuple(self.code.names.fresh(f"{wish}_{copy}") for copy in range(count))

    def finish(self) -> None:
        """Make reduced values readable by later stages (after they were combined across threads, if they were)."""
        code = self.code
        for statement in self.stage.body:
            if isinstance(statement, Reduce):
                code.values[statement.result] = self.accumulators[statement.result].values
                code.types[statement.result] = statement.dtype
            elif isinstance(statement, ArgReduce):
                source = dtypes.I64 if code.index.type == "long long" else dtypes.I32
                names = self._fresh(f"arg{statement.result}", self.points)
                for name, at in zip(names, self.accumulators[statement.result].positions, strict=True):
                    text = scalars.convert(code.prelude, at, source, statement.dtype)
                    code.out.line(f"const {register_type(statement.dtype)} {name} = {text};")
                code.values[statement.result] = names
                code.types[statement.result] = statement.dtype

    def body(self, copies: Copies) -> None:
        """All statements of one iteration (of `copies.count` neighbouring ones)."""
        for statement in self.stage.body:
            self.statement(statement, copies)

    def statement(self, statement: Statement, copies: Copies) -> None:
        """One statement of an iteration."""
        match statement:
            case Store():
                self._store(statement, copies)
            case Reduce():
                self._reduce(statement, copies)
            case ArgReduce():
                self._arg_reduce(statement, copies)
            case Scan():
                self._scan(statement, copies)
            case Load():
                self._load(statement, copies)
            case Constant() | Position() | Test() | Map():
                self._define(statement, copies)

    def _define(self, statement: Constant | Position | Test | Map, copies: Copies) -> None:
        code, dtype = self.code, dtype_of(statement)
        count = copies.count if self._varies(statement, copies) else 1
        code.types[statement.result] = dtype
        if isinstance(statement, Constant):
            code.values[statement.result] = (literal(statement.value, dtype),)
            return
        texts = [self._expression(statement, copies, copy) for copy in range(count)]
        code.values[statement.result] = self._bind(statement.result, dtype, texts)

    def _bind(self, result: Scalar, dtype: DType, texts: Sequence[str]) -> tuple[str, ...]:
        names = tuple(f"v{result}" if len(texts) == 1 else f"v{result}_{copy}" for copy in range(len(texts)))
        for name, text in zip(names, texts, strict=True):
            self.code.out.line(f"const {register_type(dtype)} {name} = {unwrapped(text)};")
        return names

    def _varies(self, statement: Statement, copies: Copies) -> bool:
        """Whether copies may differ."""
        if copies.count == 1:
            return False
        if any(len(self.code.values[number]) > 1 for number in operands_of(statement)):
            return True
        return any(copies.lane in index.symbols_of(value) for value in affines(statement))

    def _expression(self, statement: Position | Test | Map, copies: Copies, copy: int) -> str:
        code = self.code
        match statement:
            case Map(_, dtype, opcode, numbers):
                operands = [code.value(number, copy) for number in numbers]
                kinds = [code.types[number] for number in numbers]
                return scalars.map_expression(code.prelude, opcode, operands, kinds, dtype)
            case Position(_, dtype, value):
                text = code.affine(_shifted(value, copies.lane, copy), copy)
                source = dtypes.I64 if code.index.type == "long long" else dtypes.I32
                return scalars.convert(code.prelude, text, source, dtype)
            case Test(_, conditions):
                tests = [t for c in conditions for t in self._tests(c, copies, copy)]
                return " && ".join(tests) or "true"

    def _tests(self, condition: Condition, copies: Copies, copy: int) -> list[str]:
        lo, hi = index.bounds(condition.value)
        text = self.code.affine(_shifted(condition.value, copies.lane, copy), copy)
        tests = [f"{text} >= {condition.lo}"] if lo < condition.lo else []
        if hi >= condition.hi:
            tests.append(f"{text} < {condition.hi}")
        if condition.multiple > 1:
            name, type_ = self.code.prelude.use("floor_modulo"), self.code.index.type
            tests.append(f"{name}<{type_}>({text}, {condition.multiple}) == {condition.remainder}")
        return tests

    def _load(self, load: Load, copies: Copies) -> None:
        code, place = self.code, self.code.places[load.buffer]
        code.types[load.result] = load.dtype
        if self._is_pack(load.offset, load.mask, place, copies):
            pack = f"p{load.result}"
            address = f"{place.name} + {unwrapped(code.affine(load.offset))}"
            head = f"const {code.prelude.use('Pack')}<{place.element}, {copies.count}> {pack}"
            code.out.line(f"{head} = {code.prelude.use('load_pack')}<{copies.count}>({address});")
            texts = [place.read(code.prelude, f"{pack}.at[{copy}]") for copy in range(copies.count)]
        else:
            count = copies.count if place.kind == "owned" or self._varies(load, copies) else 1
            texts = [self._load_one(load, place, copies, copy) for copy in range(count)]
        code.values[load.result] = self._bind(load.result, load.dtype, texts)

    def _load_one(self, load: Load, place: Place, copies: Copies, copy: int) -> str:
        code = self.code
        text = place.read(code.prelude, self._element(load.offset, place, copies, copy))
        if load.mask is None:
            return text
        fill = literal(0, load.dtype) if load.fill is None else code.value(load.fill, copy)
        return f"({code.value(load.mask, copy)} ? {text} : {fill})"

    def _element(self, offset: Affine, place: Place, copies: Copies, copy: int) -> str:
        text = self.code.affine(_shifted(offset, copies.lane, copy), copy)
        chunk = copies.chunk if copies.count == 1 else f"{copies.chunk} * {copies.count} + {copy}"
        return place.at(text, chunk)

    def _is_pack(self, offset: Affine, mask: Scalar | None, place: Place, copies: Copies) -> bool:
        if copies.count == 1 or copies.lane is None or mask is not None or place.kind != "memory":
            return False
        if place.dtype.itemsize * copies.count > VECTOR_BYTES:
            return False
        return is_unit_stride(offset, copies.lane) and is_aligned(offset, copies.lane, copies.count)

    def _store(self, store: Store, copies: Copies) -> None:
        code, place = self.code, self.code.places[store.buffer]
        if self._is_pack(store.offset, store.mask, place, copies):
            pack = code.names.fresh("pack")
            code.out.line(f"{code.prelude.use('Pack')}<{place.element}, {copies.count}> {pack};")
            for copy in range(copies.count):
                code.out.line(f"{pack}.at[{copy}] = {place.written(code.prelude, code.value(store.value, copy))};")
            address = f"{place.name} + {unwrapped(code.affine(store.offset))}"
            code.out.line(f"{code.prelude.use('store_pack')}({address}, {pack});")
            return
        count = copies.count if place.kind == "owned" or self._varies(store, copies) else 1
        for copy in range(count):
            target = self._element(store.offset, place, copies, copy)
            text = f"{target} = {place.written(code.prelude, code.value(store.value, copy))};"
            masks = [] if store.mask is None else [code.value(store.mask, copy)]
            if copies.leader is not None and not place.in_registers:
                masks.insert(0, copies.leader)
            code.out.line(f"if ({' && '.join(masks)}) {text}" if masks else text)

    def _reduce(self, reduce: Reduce, copies: Copies) -> None:
        code = self.code
        values = [
            scalars.convert(code.prelude, code.value(reduce.operand, copy), code.types[reduce.operand], reduce.dtype)
            for copy in range(copies.count)
        ]
        totals = self.accumulators[reduce.result].values
        if copies.combined:
            values = [self._tree(reduce.combiner, values, reduce.dtype)]
        for total, value in zip(totals, values, strict=True):
            text = scalars.combine(code.prelude, reduce.combiner, total, value, reduce.dtype)
            code.out.line(f"{total} = {unwrapped(text)};")

    def _tree(self, combiner: str, values: list[str], dtype: DType) -> str:
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [scalars.combine(self.code.prelude, combiner, a, b, dtype) for a, b in pairs]
        return values[0]

    def _arg_reduce(self, reduce: ArgReduce, copies: Copies) -> None:
        code, best = self.code, self.accumulators[reduce.result]
        first = code.prelude.use("greater_first" if reduce.direction == "argmax" else "less_first")
        for copy in range(copies.count):
            point = 0 if copies.combined else copy
            value, at = code.value(reduce.operand, copy), best.positions[point]
            place = code.affine(_shifted(reduce.position, copies.lane, copy), copy)
            call = f"{first}<{register_type(code.types[reduce.operand])}, {code.index.type}>"
            with code.out.braces(f"if ({call}({value}, {place}, {best.values[point]}, {at}))"):
                code.out.line(f"{best.values[point]} = {value};")
                code.out.line(f"{at} = {unwrapped(place)};")

    def _scan(self, scan: Scan, copies: Copies) -> None:  # noqa: ARG002  # a scan by many threads minds them
        code, totals = self.code, self.accumulators[scan.result].values
        texts: list[str] = []
        for copy, total in enumerate(totals):
            value = scalars.convert(code.prelude, code.value(scan.operand, copy), code.types[scan.operand], scan.dtype)
            text = scalars.combine(code.prelude, scan.combiner, total, value, scan.dtype)
            code.out.line(f"{total} = {unwrapped(text)};")
            texts.append(total)
        code.types[scan.result] = scan.dtype
        code.values[scan.result] = self._bind(scan.result, scan.dtype, texts)


def _shifted(value: Affine, lane: Symbol | None, copy: int) -> Affine:
    if copy == 0 or lane is None:
        return value
    return index.renamed(value, {lane: index.of(lane) + copy})


def dtype_of(statement: Constant | Position | Test | Load | Map | Reduce | ArgReduce | Scan) -> DType:
    """The dtype of a statement's result."""
    return dtypes.BOOL if isinstance(statement, Test) else statement.dtype


def operands_of(statement: Statement) -> tuple[Scalar, ...]:
    """The scalars a statement reads, those inside its index expressions too."""
    match statement:
        case Map():
            return statement.operands
        case Reduce() | ArgReduce() | Scan():
            return (statement.operand, *_elements(statement))
        case Load():
            named = (statement.mask, statement.fill)
        case Store():
            named = (statement.value, statement.mask)
        case _:
            named = ()
    return (*(number for number in named if number is not None), *_elements(statement))


def _elements(statement: Statement) -> tuple[Scalar, ...]:
    found: list[Scalar] = []

    def note(variable: index.Variable) -> None:
        if isinstance(variable, Element):
            found.append(int(variable.source))

    for value in affines(statement):
        index.substitute(value, note)
    return tuple(found)
