"""Statements of a stage as C: every statement once per copy (a copy = one of the neighbouring lanes of a thread)."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir import dtypes, index
from autofuse.ir.dtypes import DType
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass
from autofuse.lower.raresides import RareSide, with_rare_sides
from autofuse.lower.rewrite import affines
from autofuse.lower.statements import (
    ArgReduce,
    Carry,
    Constant,
    Effect,
    Leave,
    Load,
    Map,
    Next,
    Position,
    Reduce,
    Repeat,
    Scalar,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Stage
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.branches import Branch
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import unwrapped
from autofuse.targets.cuda.codegen.rescaling import Rescaling
from autofuse.targets.cuda.codegen.statements import dtype_of, invariants, loads_first
from autofuse.targets.cuda.codegen.transfers import Transfers
from autofuse.targets.cuda.ctypes_text import literal, register_type


@dataclass(slots=True)
class Accumulator:
    """The running value of a Reduce, ArgReduce, Scan or Carry, one per grid point."""

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
        self.rescaling = Rescaling.of(code, stage)
        """How sums follow a maximum; None where none does."""
        self.inside: Sequence[Statement] = stage.body
        """What is written in each iteration."""

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

    def begin(self, copies: Copies) -> None:
        """What is carried, with its value before the first iteration."""
        code, memory = self.code, Transfers(self.code, copies)
        for statement in loads_first(self.stage.before, code.places):
            self.statement(statement, copies, memory)
        for statement in self.stage.body:
            if isinstance(statement, Carry):
                names = self._fresh(f"c{statement.result}", self.points)
                for copy, name in enumerate(names):
                    first = unwrapped(code.value(statement.initial, copy))
                    code.out.line(f"{register_type(statement.dtype)} {name} = {first};")
                self.accumulators[statement.result] = Accumulator(names)

    def _operand_dtype(self, number: Scalar) -> DType:
        if number in self.code.types:
            return self.code.types[number]
        return next(dtype_of(s) for s in self.stage.body if not isinstance(s, Effect) and s.result == number)

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
            if isinstance(statement, Reduce | Carry):
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

    def ahead(self, copies: Copies) -> None:
        """Before the loops: what is the same in all iterations. `copies`: of the grid points, or one."""
        outside, self.inside = invariants(self.stage, self.code.places)
        memory = Transfers(self.code, copies)
        for statement in outside:
            self.statement(statement, copies, memory)

    def body(self, copies: Copies) -> None:
        """All statements of one iteration (of `copies.count` neighbouring ones)."""
        memory = Transfers(self.code, copies)
        ordered = loads_first(self.inside, self.code.places)
        for item in self._with_branches(ordered):
            if not isinstance(item, RareSide):
                self.statement(item, copies, memory)
                continue
            branch = Branch(self.code, item, copies)
            with self.code.out.braces(branch.head()):
                for statement in (*item.inside, *item.selects):
                    self.statement(statement, copies, memory)
                branch.hand_out()
            branch.behind()

    def _with_branches(
        self, ordered: Sequence[Statement | tuple[Load, ...]]
    ) -> Sequence[Statement | tuple[Load, ...] | RareSide]:
        """The statements with costly sides of choices as branches, if the schedule wants them in such a stage."""
        carries = any(isinstance(s, Carry) for s in self.inside)
        if self.code.sides == "always" or (self.code.sides == "auto" and not carries):
            return ordered
        single = [s for part in ordered for s in (part if isinstance(part, tuple) else (part,))]
        items = with_rare_sides(single, lambda _: True)
        return items if any(isinstance(item, RareSide) for item in items) else ordered

    def statement(self, statement: Statement | tuple[Load, ...], copies: Copies, memory: Transfers) -> None:
        """One statement of an iteration, or loads that are made together."""
        match statement:
            case Load():
                memory.load((statement,))
            case tuple() as batch:
                memory.load(batch)
            case Store():
                memory.store(statement)
            case Reduce():
                self._reduce(statement, copies)
            case ArgReduce():
                self._arg_reduce(statement, copies)
            case Scan():
                self._scan(statement, copies)
            case Carry() | Leave() | Repeat() | Next():
                self._carried(statement)
            case Constant() | Position() | Test() | Map():
                self._define(statement, copies, memory)

    def _carried(self, statement: Carry | Leave | Repeat | Next) -> None:
        code = self.code
        assert not isinstance(statement, Repeat), "the loops of a stage say what is repeated"
        if isinstance(statement, Leave):
            held = dict.fromkeys(code.value(statement.settled, copy) for copy in range(self.points))
            code.out.line(f"if ({' && '.join(map(unwrapped, held))}) break;")
            return
        if isinstance(statement, Carry):
            held = self.accumulators[statement.result].values
            code.bind(statement.result, statement.dtype, dict(enumerate(held)), len(held))
            return
        for copy, name in enumerate(self.accumulators[statement.carry].values):
            code.out.line(f"{name} = {unwrapped(code.value(statement.value, copy))};")

    def _define(self, statement: Constant | Position | Test | Map, copies: Copies, memory: Transfers) -> None:
        code, dtype = self.code, dtype_of(statement)
        code.types[statement.result] = dtype
        match statement:
            case Constant():
                code.values[statement.result] = (literal(statement.value, statement.dtype),)
                return
            case Test():
                level = max(copies.level_of_test(statement), memory.level(statement, ()))
            case _:
                level = memory.level(statement, tuple(affines(statement)))
        texts = {copy: self._expression(statement, copies, copy) for copy in memory.leaders(level)}
        code.bind(statement.result, dtype, texts, copies.count)

    def _expression(self, statement: Position | Test | Map, copies: Copies, copy: int) -> str:
        code = self.code
        match statement:
            case Map(_, dtype, opcode, numbers, fast):
                operands = [code.value(number, copy) for number in numbers]
                kinds = [code.types[number] for number in numbers]
                return scalars.map_expression(code.prelude, opcode, operands, kinds, dtype, fast=fast)
            case Position(_, dtype, value):
                source = dtypes.I64 if code.index.type == "long long" else dtypes.I32
                return scalars.convert(code.prelude, code.at(value, copies, copy), source, dtype)
            case Test(_, conditions):
                tests = [t for c in conditions for t in self._tests(c, copies, copy)]
                return " && ".join(tests) or "true"

    def _tests(self, condition: Condition, copies: Copies, copy: int) -> list[str]:
        lo, hi = index.bounds(condition.value)
        text = self.code.at(condition.value, copies, copy)
        tests = [f"{text} >= {condition.lo}"] if lo < condition.lo else []
        if hi >= condition.hi:
            tests.append(f"{text} < {condition.hi}")
        if condition.multiple > 1:
            name, type_ = self.code.prelude.use("floor_modulo"), self.code.index.type
            tests.append(f"{name}<{type_}>({text}, {condition.multiple}) == {condition.remainder}")
        return tests

    def _reduce(self, reduce: Reduce, copies: Copies) -> None:
        code = self.code
        values = [
            scalars.convert(code.prelude, code.value(reduce.operand, copy), code.types[reduce.operand], reduce.dtype)
            for copy in range(copies.count)
        ]
        totals = self.accumulators[reduce.result].values
        rescaling = self.rescaling if reduce.result == self.stage.stabiliser else None
        if rescaling is not None:
            rescaling.keep(totals[0])
        for point, total in enumerate(totals):
            value = self._tree(reduce.combiner, values[point :: len(totals)], reduce.dtype)
            text = scalars.combine(code.prelude, reduce.combiner, total, value, reduce.dtype)
            code.out.line(f"{total} = {unwrapped(text)};")
        if rescaling is not None:
            rescaling.apply(totals[0], [self.accumulators[scalar].values[0] for scalar in rescaling.sums])

    def _tree(self, combiner: str, values: list[str], dtype: DType) -> str:
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [scalars.combine(self.code.prelude, combiner, a, b, dtype) for a, b in pairs]
        return values[0]

    def _arg_reduce(self, reduce: ArgReduce, copies: Copies) -> None:
        code, best = self.code, self.accumulators[reduce.result]
        first = code.prelude.use("greater_first" if reduce.direction == "argmax" else "less_first")
        for copy in range(copies.count):
            point = copy % self.points
            value, at = code.value(reduce.operand, copy), best.positions[point]
            place = code.at(reduce.position, copies, copy)
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
        code.bind(scan.result, scan.dtype, dict(enumerate(texts)), len(texts))
