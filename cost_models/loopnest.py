"""The loops that run around a statement, as a code generator arranges them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Stage

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class LoopNest:
    """Loops from outermost to innermost. The vectorised loop advances by vectors, `unroll` of them at a time."""

    rounds: tuple[int, ...]
    """Times each loop goes round per entry; the vectorised one counts groups of `unroll` vectors."""
    vectors: tuple[int, ...]
    """The same, but the vectorised one counts single vectors."""
    extents: tuple[float, ...]
    """The same, but the vectorised one counts elements."""
    spans: Mapping[Symbol, tuple[int, ...]]
    """Symbol -> for each depth d, how many values it takes while loops d, d+1, ... run."""
    positions: Mapping[Symbol, int]
    """Symbol -> the innermost loop that moves it."""
    vectorised: Symbol | None
    lanes: int
    """Elements of a vector; 1 where none is vectorised."""
    unroll: int
    copies: int = 1
    """Copies of scratch side by side: one for each grid point of the vectors in flight."""

    @cached_property
    def rounds_to(self) -> tuple[int, ...]:
        """For each depth d, how often loops d, d+1, ... are entered."""
        return _products(self.rounds)

    @cached_property
    def vectors_to(self) -> tuple[int, ...]:
        """The same in single vectors."""
        return _products(self.vectors)

    @cached_property
    def elements_to(self) -> tuple[float, ...]:
        """The same in elements."""
        return _products(self.extents)

    @property
    def depth(self) -> int:
        return len(self.rounds)

    def inner(self, stage: Stage, lanes: int, unroll: int) -> LoopNest:
        """The nest with the loops of a stage inside; `lanes` and `unroll` count if the stage vectorises a loop."""
        rounds, vectors = list(self.rounds), list(self.vectors)
        spans, positions = dict(self.spans), dict(self.positions)
        count = self.depth + len(stage.symbols)
        own = stage.vectorised is not None and self.vectorised is None
        for symbol, inside in spans.items():
            spans[symbol] = inside + (inside[-1],) * len(stage.symbols)
        for symbol in stage.symbols:
            at = len(rounds)
            step = lanes * unroll if own and symbol == stage.vectorised else 1
            rounds.append(-(-symbol.extent // step))
            vectors.append(-(-symbol.extent // lanes) if step > 1 else symbol.extent)
            spans[symbol] = (symbol.extent,) * (at + 1) + (min(step, symbol.extent),) * (count - at)
            positions[symbol] = at
        vectorised = stage.vectorised if own else self.vectorised
        return LoopNest(
            tuple(rounds),
            tuple(vectors),
            (*self.extents, *(symbol.extent for symbol in stage.symbols)),
            spans,
            positions,
            vectorised,
            lanes if own else self.lanes,
            unroll if own else self.unroll,
            self.copies,
        )


def _products(factors: Sequence[Number]) -> tuple[Number, ...]:
    done: list[Any] = [1]
    for factor in factors:
        done.append(done[-1] * factor)
    return tuple(done)


def sources_of(value: Affine) -> Iterable[Symbol | int]:
    """Symbols, and numbers of scalars read as indices, that an expression depends on (repeats possible)."""
    for variable, _ in value.terms:
        match variable:
            case Symbol():
                yield variable
            case Quotient(inner, _) | Remainder(inner, _):
                yield from sources_of(inner)
            case Element(source, _, _, _):
                yield int(source)
