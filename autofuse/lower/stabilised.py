"""Sums that are stabilised by a maximum, found in the stages of a row: what may be rescaled as the maximum grows.

    stage (k) { x = ...; m = reduce maximum x }
    stage (k) { e = exp(x - m); l = reduce add e }
    stage (k) { p = e / l; store p }

Values are numbered: equal expressions of equal iterations are one, whichever stage computes them and under whichever
scalar. A value is a *weight* if it is exp(x - m) times what no reduction decides, and then times or over *factors* that
a row has one of. A maximum m' that is smaller makes all weights exp(m - m') times as large, and so their sums: these
can be made while the maximum is not known yet (Milakov and Gimelshein 2018, "Online normalizer calculation for
softmax").

A choice between a weight and zero is a weight too, but a row has to know whether anything of it was *chosen*: if not,
zero is right though the maximum, or a factor before the choice, is NaN or infinite.

What is no weight, as the rescaled sums would not be what they were: a choice of choices, and what could be too large
for its type while the maximum is small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import ml_dtypes

from autofuse.ir import index
from autofuse.ir.dtypes import BOOL, DType
from autofuse.ir.index import Affine, Element, Symbol
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.lower.rewrite import affines, operands, rewritten
from autofuse.lower.statements import (
    Constant,
    Leave,
    Load,
    Map,
    Next,
    Position,
    Reduce,
    Repeat,
    Scalar,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Stage

Number = int
"""Of a value: equal values have one."""
WALK = "walked"
"""The name of the symbol that stands for the loops of all stages."""


class UnknownFormError(Exception):
    """The stages hold something that is not looked through."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a number stands for."""

    statement: Statement
    """Makes it, of operands that are numbers; for a reduction, as it stands in its stage."""
    walked: bool
    """Whether it differs along the axis."""
    reduced: bool
    """Whether a reduction decides it."""


@dataclass(frozen=True, slots=True)
class Factor:
    """What a weight is multiplied with or divided by, and all weights of a row alike."""

    opcode: str
    """`multiply` or `divide`."""
    value: Number
    inside: bool = False
    """Whether a choice was made after it: it does not concern a row of which nothing was chosen."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A value that is proportional to exp(-maximum)."""

    base: Number
    """It without the factors: how large it is depends on the maximum alone."""
    factors: tuple[Factor, ...]
    """In order."""
    maximum: Number
    """A reduction."""
    argument: Number
    """What the maximum is of, and is subtracted from."""
    most: float
    """Magnitude that a finite base does not exceed, whatever the maximum."""
    chosen: Number | None = None
    """A bool: where it does not hold the base is zero, whatever the maximum is; None: there is no such choice."""


@dataclass(slots=True)
class RowValues:
    """The values of the stages of a row, which all walk one axis or nothing."""

    extent: int
    """Of the axis."""
    values: list[Value] = field(default_factory=list[Value])
    stores: list[tuple[Store, Number, bool]] = field(default_factory=list[tuple[Store, Number, bool]])
    """What is stored, the value, and whether it is for each element of the axis; offsets walk `walk`."""
    reductions: list[Number] = field(default_factory=list[Number])
    known: dict[Scalar, Number] = field(default_factory=dict[Scalar, Number])
    """The numbers of the stages' scalars."""
    _numbers: dict[Statement, Number] = field(default_factory=dict[Statement, Number])
    _kept: dict[tuple[str, Affine], Number] = field(default_factory=dict[tuple[str, Affine], Number])
    """What stands in scratch, by buffer and place."""

    @property
    def walk(self) -> Symbol:
        """The loop of all stages."""
        return Symbol(WALK, self.extent)

    def give(self, scalar: Scalar, dtype: DType) -> None:
        """A scalar that stages before these made: it has one value for all elements of the axis."""
        self.known[scalar] = self.number(Load(0, dtype, f"%{scalar}", Affine()))

    def read(self, stages: Iterable[Stage], scratch: frozenset[str]) -> None:
        """Number the values of stages in order. Raises UnknownFormError where a stage walks or computes otherwise.

        So does one that reads what stages before these made, and was not given. `scratch`: buffers whose elements are
        found again by their places.
        """
        known = self.known
        for stage in stages:
            if any(symbol.extent != self.extent for symbol in stage.symbols) or len(stage.symbols) > 1:
                raise UnknownFormError
            place = {symbol: index.of(self.walk) for symbol in stage.symbols}
            for statement in stage.body:
                self._read(statement, place, known, scratch, walked=bool(stage.symbols))

    def _read(
        self,
        statement: Statement,
        place: dict[Symbol, Affine],
        known: dict[Scalar, Number],
        scratch: frozenset[str],
        *,
        walked: bool,
    ) -> None:
        if any(number not in known for number in operands(statement)):
            raise UnknownFormError
        moved = rewritten(statement, lambda value: _numbered(index.renamed(value, place), known))
        match moved:
            case Store(buffer, offset, scalar, mask):
                self.stores.append((replace(moved, value=known[scalar]), known[scalar], walked))
                if mask is not None:
                    raise UnknownFormError
                if buffer in scratch:
                    self._kept[buffer, offset] = known[scalar]
            case Load(result, _, buffer, offset, mask, fill):
                found = self._kept.get((buffer, offset)) if mask is None else None
                asked = replace(moved, result=0, mask=_of(mask, known), fill=_of(fill, known))
                known[result] = self.number(asked) if found is None else found
            case Map(result=result, operands=numbers):
                inside = tuple(known[number] for number in numbers)
                known[result] = self.number(replace(moved, result=0, operands=inside))
            case Constant(result) | Position(result) | Test(result):
                known[result] = self.number(replace(moved, result=0))
            case Reduce(result) if walked:
                known[result] = self._add(replace(moved, operand=known[moved.operand]), walked=False, reduced=True)
                self.reductions.append(known[result])
            case _:
                raise UnknownFormError

    def number(self, statement: Statement) -> Number:
        """The number of what a statement makes of values that have numbers."""
        known = self._numbers.get(statement)
        if known is None:
            before = [self.values[number] for number in operands(statement)]
            here = any(self.walk in index.symbols_of(value) for value in affines(statement))
            walked, reduced = here or any(v.walked for v in before), any(v.reduced for v in before)
            known = self._numbers[statement] = self._add(statement, walked=walked, reduced=reduced)
        return known

    def _add(self, statement: Statement, *, walked: bool, reduced: bool) -> Number:
        self.values.append(Value(statement, walked, reduced))
        return len(self.values) - 1

    def needed(self, roots: Iterable[Number], known: Iterable[Number]) -> list[Number]:
        """What has to be computed for some values, in an order in which it can be; `known` is there already."""
        wanted, there = set(roots), set(known)
        for number in range(len(self.values) - 1, -1, -1):
            if number in wanted and number not in there:
                wanted.update(operands(self.values[number].statement))
        return sorted(wanted - there)


class Weights:
    """Which of the values of a row are weights."""

    def __init__(self, row: RowValues) -> None:
        self._row = row
        self._found: dict[Number, Weight] = {}
        for number in range(len(row.values)):  # operands come first; bases are added behind
            statement = row.values[number].statement
            weight = self._of(number, statement) if isinstance(statement, Map) else None
            if weight is not None:
                self._found[number] = weight

    def of(self, number: Number) -> Weight | None:
        """A value as a weight; None if it is none."""
        return self._found.get(number)

    def carries(self, number: Number, maximum: Number) -> bool:
        """Whether a reduction can be made before the maximum is known: no maximum decides it, or all of it alike."""
        reduce = self._row.values[number].statement
        if not isinstance(reduce, Reduce):
            return False
        if not self._row.values[reduce.operand].reduced:
            return True
        weight = self.of(reduce.operand)
        return (
            weight is not None
            and weight.base == reduce.operand
            and weight.maximum == maximum
            and weight.chosen is None
            and reduce.combiner == "add"
        )

    def _of(self, number: Number, statement: Map) -> Weight | None:
        match statement.opcode, statement.operands:
            case "exp", (inside,):
                return self._exponential(number, inside)
            case "convert", (inside,) if statement.dtype.is_float:
                return self._passed(statement, inside, 1.0)
            case "multiply", (a, b):
                return self._scaled(statement, a, b) or self._scaled(statement, b, a)
            case "divide", (a, b):
                return self._scaled(statement, a, b)
            case "select", (condition, a, b):
                if self._is_zero(b):
                    return self._chosen(statement, a, condition)
                return self._chosen(statement, b, condition, negated=True) if self._is_zero(a) else None
            case _:
                return None

    def _exponential(self, number: Number, inside: Number) -> Weight | None:
        difference = self._row.values[inside].statement
        if not isinstance(difference, Map) or difference.opcode != "subtract":
            return None
        argument = self._unwidened(difference.operands[0])
        maximum = self._maximum_behind(difference.operands[1], argument)
        if self._row.values[argument].reduced or maximum is None:
            return None
        return Weight(number, (), maximum, argument, 1.0)

    def _maximum_behind(self, number: Number, argument: Number) -> Number | None:
        """The reduction whose result a value is, if it is the maximum of `argument` and no conversion rounds it."""
        least = dtype_of(self._row.values[argument].statement)
        while True:
            match self._row.values[number].statement:
                case Reduce(dtype=dtype, combiner="maximum", operand=operand) if dtype.is_float:
                    return number if self._unwidened(operand) == argument else None
                case Map(dtype=dtype, opcode="convert", operands=(inside,)) if _holds(dtype, least):
                    number = inside
                case _:
                    return None

    def _unwidened(self, number: Number) -> Number:
        """A value before conversions that change nothing."""
        while True:
            match self._row.values[number].statement:
                case Map(dtype=dtype, opcode="convert", operands=(inside,)) if _holds(
                    dtype, dtype_of(self._row.values[inside].statement)
                ):
                    number = inside
                case _:
                    return number

    def _scaled(self, statement: Map, number: Number, by: Number) -> Weight | None:
        """A weight times or over another value: what a row has one of is a factor, all else stays inside."""
        weight, other = self.of(number), self._row.values[by]
        if weight is None or (other.walked and other.reduced):
            return None
        if other.reduced:
            return replace(weight, factors=(*weight.factors, Factor(statement.opcode, by)))
        most = self._most(by)
        if statement.opcode == "divide":  # by what is known: else it may be as small as there is
            most = 1 / most if isinstance(other.statement, Constant) and most > 0 else math.inf
        return self._passed(statement, number, most)

    def _is_zero(self, number: Number) -> bool:
        statement = self._row.values[number].statement
        return isinstance(statement, Constant) and statement.value == 0

    def _chosen(self, statement: Map, number: Number, condition: Number, *, negated: bool = False) -> Weight | None:
        """A weight where a condition holds, or does not, and zero elsewhere."""
        weight = self.of(number)
        if weight is None or weight.chosen is not None or self._row.values[condition].reduced:
            return None
        passed = self._passed(statement, number, 1.0)
        if passed is None:
            return None
        chosen = self._row.number(Map(0, BOOL, "not", (condition,))) if negated else condition
        factors = tuple(replace(factor, inside=True) for factor in weight.factors)
        return replace(passed, chosen=chosen, factors=factors)

    def _passed(self, statement: Map, number: Number, larger: float) -> Weight | None:
        """The weight that an operation makes of one, which it makes up to so many times as large."""
        weight = self.of(number)
        if weight is None or not (most := weight.most * larger) <= _largest(statement.dtype):
            return None
        inside = tuple(weight.base if one == number else one for one in statement.operands)
        return replace(weight, base=self._row.number(replace(statement, operands=inside)), most=most)

    def _most(self, number: Number) -> float:
        """Magnitude that a finite value does not exceed."""
        statement = self._row.values[number].statement
        match statement:
            case Constant(value=value):
                return abs(float(value))
            case Map(opcode="convert", operands=(inside,)):
                return min(self._most(inside), _largest(statement.dtype))
            case Map(opcode="select", operands=(_, a, b)):
                return max(self._most(a), self._most(b))
            case _:
                return _largest(dtype_of(statement))


def _largest(dtype: DType) -> float:
    """A power of two that stands for the largest finite values of a type, which is the same for f32 and bf16."""
    if dtype.is_float:
        return 2.0 ** (int(ml_dtypes.finfo(dtype.numpy).maxexp) - 1)
    return 1.0 if dtype == BOOL else 2.0**dtype.bits


def dtype_of(statement: Statement) -> DType:
    """Of what a statement makes. Raises TypeError for one that makes nothing."""
    match statement:
        case Test():
            return BOOL
        case Leave() | Repeat() | Next() | Store():
            raise TypeError(f"a {type(statement).__name__} has no result")
        case _:
            return statement.dtype


def _holds(dtype: DType, other: DType) -> bool:
    """Whether one type of floats has all values of another."""
    wider = dtype.bits > other.bits and dtype.is_float and other.is_float
    return dtype == other or wider


def _numbered(value: Affine, known: Mapping[Scalar, Number]) -> Affine:
    """An index expression whose elements are read by number."""
    if index.is_static(value):
        return value

    def numbered(variable: index.Variable) -> Affine | None:
        if isinstance(variable, Element):
            return index.of(Element(known[int(variable.source)], (), variable.lo, variable.hi))
        return None

    return index.substitute(value, numbered)


def _of(scalar: Scalar | None, known: Mapping[Scalar, Number]) -> Number | None:
    return None if scalar is None else known[scalar]
