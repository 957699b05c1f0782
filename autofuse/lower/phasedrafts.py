"""Mutable drafts of phases and stages while a kernel is being lowered."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from typing import NamedTuple, TypeVar

from autofuse.errors import LegalityError
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Value
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.statements import Scalar, Statement
from autofuse.lower.tile import Buffer, Dot, Space

Instance = tuple[Value, tuple[Affine, ...]]
"""A value at an index: the unit that is computed once per stage."""


@dataclass(eq=False)
class StageDraft:
    """One stage being filled."""

    level: int
    """How many reductions, dots and scans lie before it on the longest path."""
    late: bool
    """It runs after the level's other stages, to keep their results for a later row group."""
    symbols: tuple[Symbol, ...]
    body: list[Statement] = field(default_factory=list[Statement])
    memo: dict[tuple[tuple[Affine, ...], Scalar | None], dict[Value, Scalar]] = field(
        default_factory=dict[tuple[tuple[Affine, ...], int | None], dict[Value, int]]
    )
    """By index and guard, the values that are there."""
    reads: dict[Instance, list[Instance]] = field(default_factory=dict[Instance, list[Instance]])
    """Which instances each instance was computed from, in this stage."""
    roots: list[Instance] = field(default_factory=list[Instance])
    """What is stored or reduced."""
    conditions: dict[object, Scalar] = field(default_factory=dict[object, int])
    """Tests and conjunctions already made."""
    before: StageDraft | None = None
    """What runs once, before the first iteration."""
    resting: list[Resting] = field(default_factory=list["Resting"])
    """Of loops that others of a worker's points may keep going."""
    sections: tuple[tuple[Symbol, tuple[int, ...]], ...] = ()
    """As of the stage."""
    in_order: bool = False
    """As of the stage."""
    loads: dict[Scalar, int] = field(default_factory=dict[Scalar, int])
    """By load of state in memory, how many updates of that come before it."""
    updates: dict[int, int] = field(default_factory=dict[int, int])
    """By place in the body, of stores of state in memory: how many updates of that come before each."""

    last: tuple[tuple[Affine, ...], Scalar | None, dict[Value, Scalar]] | None = None
    """What was asked for last: mostly the next question is the same."""

    def scalars_at(self, at: tuple[Affine, ...], guard: Scalar | None) -> dict[Value, Scalar]:
        """The values that are there at an index, under a guard; to be added to."""
        last = self.last
        if last is not None and last[0] is at and last[1] == guard:
            return last[2]
        key = at, guard
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = {}
        self.last = at, guard, found
        return found


class Resting(NamedTuple):
    """What must not change any more at points that a loop goes on at because others need it."""

    moving: Scalar
    """False at such points."""
    following: Mapping[Scalar, Scalar]
    """By carry of the loop, what an iteration makes of it."""
    results: Collection[Scalar]
    """The carries that are read once the loop is done."""


class Wanted(NamedTuple):
    """A stage's request for the scalar that is `value` at `at`; memory is touched only where `guard` is true."""

    stage: StageDraft
    value: Value
    at: tuple[Affine, ...]
    guard: Scalar | None


T = TypeVar("T")
Demand = Generator[Wanted, Scalar, T]
"""Computes a T, and yields a request for each scalar that it needs; whoever runs it sends the scalar in."""


@dataclass(eq=False)
class PhaseDraft:
    """One phase being filled: numbers scalars, keeps stages by their place in the order."""

    stages: dict[tuple[int, bool, tuple[Symbol, ...]], StageDraft] = field(
        default_factory=dict[tuple[int, bool, tuple[Symbol, ...]], StageDraft]
    )
    dots: list[tuple[int, Dot]] = field(default_factory=list[tuple[int, Dot]])
    """Dots with the level at whose end they run."""
    dtypes: list[DType] = field(default_factory=list[DType])
    """dtype of each scalar, by number."""
    limit: int = 1 << 20
    """Most scalars."""

    def stage(self, level: int, symbols: tuple[Symbol, ...], late: bool = False) -> StageDraft:
        """The stage at this place, made if missing."""
        key = (level, late, symbols)
        if key not in self.stages:
            self.stages[key] = StageDraft(level, late, symbols)
        return self.stages[key]

    def scalar(self, dtype: DType) -> Scalar:
        """A new scalar number. Raises LegalityError when there are too many."""
        if len(self.dtypes) >= self.limit:
            raise LegalityError(f"more than {self.limit} scalar values in one kernel: too much is recomputed")
        self.dtypes.append(dtype)
        return len(self.dtypes) - 1

    def ordered(self) -> Iterator[StageDraft]:
        """Stages in running order."""
        yield from sorted(self.stages.values(), key=lambda stage: (stage.level, stage.late))


class BufferTable:
    """The buffers of a program, by the value they hold."""

    def __init__(self) -> None:
        self.all: list[Buffer] = []
        self._by_value: dict[Value, Buffer] = {}

    def add(self, name: str, type_: TensorType, space: Space, *, is_state: bool = False) -> Buffer:
        """A new buffer with a unique name."""
        taken = {buffer.name for buffer in self.all}
        unique, number = name, 1
        while unique in taken:
            unique, number = f"{name}_{number}", number + 1
        buffer = Buffer(unique, type_, space, is_state=is_state)
        self.all.append(buffer)
        return buffer

    def add_value(self, value: Value, space: Space, *, is_state: bool = False, same: Value | None = None) -> None:
        """The parameter buffer that holds `value`; `same`: one that has its elements, and a buffer."""
        known = None if same is None else self._by_value[same]
        self._by_value[value] = known or self.add(value.name, value.type, space, is_state=is_state)

    def has(self, value: Value) -> bool:
        """Whether a buffer holds `value`."""
        return value in self._by_value

    def of(self, value: Value) -> Buffer:
        return self._by_value[value]
