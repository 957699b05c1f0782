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

    def moved_from(self, symbol: Symbol) -> int:
        """Loops up to the one in whose rounds a symbol takes new values; 0 for one that is set once.

        A loop of one round moves nothing: what depends on its symbol alone is computed before the loops around it.
        """
        at = self.positions.get(symbol, -1)
        return at + 1 if at >= 0 and self.rounds[at] > 1 else 0

    def times(self, depth: int, *, varying: bool) -> float:
        """How often something runs that loops up to number `depth` - 1 move; in single vectors, if lanes differ."""
        if not varying or self.vectorised is None:
            return float(self.rounds_to[depth])
        at = self.positions[self.vectorised]
        return float(self.vectors_to[depth] * (1 if depth > at else self.vectors[at]))

    def inner(
        self, stage: Stage, lanes: int, unroll: int, count: int | None = None, groups: int | None = None
    ) -> LoopNest:
        """The nest with the loops of a stage inside; `lanes` and `unroll` count if the stage vectorises a loop.

        `count`, `groups`: vectors, and groups of `unroll`, of that loop, where it is cut in parts; by default in one.
        """
        rounds, vectors = list(self.rounds), list(self.vectors)
        spans, positions = dict(self.spans), dict(self.positions)
        depth = self.depth + len(stage.symbols)
        own = stage.vectorised is not None and self.vectorised is None
        for symbol, inside in spans.items():
            spans[symbol] = inside + (inside[-1],) * len(stage.symbols)
        for symbol, trips in zip(stage.symbols, stage.trips, strict=True):
            at = len(rounds)
            step = lanes * unroll if own and symbol == stage.vectorised else 1
            is_vectorised = own and symbol == stage.vectorised
            fewest, single = -(-trips // step), -(-trips // lanes)
            rounds.append(fewest if not is_vectorised or groups is None else groups)
            vectors.append(trips if not is_vectorised else single if count is None else count)
            spans[symbol] = (symbol.extent,) * (at + 1) + (min(step, symbol.extent),) * (depth - at)
            positions[symbol] = at
        vectorised = stage.vectorised if own else self.vectorised
        return LoopNest(
            tuple(rounds),
            tuple(vectors),
            (*self.extents, *stage.trips),
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
