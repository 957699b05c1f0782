"""The loops that run around a statement, as a code generator arranges them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol
from autofuse.lower.tile import Stage

Number = TypeVar("Number", int, float)


class LoopNest:
    """Loops from outermost to innermost. The vectorised loop advances by vectors, `unroll` of them at a time.

    It does not change once it is made.
    """

    __slots__ = (
        "copies",
        "depth",
        "elements_to",
        "extents",
        "lanes",
        "positions",
        "rounds",
        "rounds_to",
        "spans",
        "times",
        "unroll",
        "vectorised",
        "vectors",
        "vectors_to",
        "walks",
    )

    def __init__(
        self,
        rounds: Sequence[int],
        vectors: Sequence[int],
        extents: Sequence[float],
        spans: Mapping[Symbol, tuple[int, ...]],
        positions: Mapping[Symbol, int],
        vectorised: Symbol | None,
        lanes: int,
        unroll: int,
        copies: int = 1,
    ) -> None:
        self.rounds = tuple(rounds)
        """Times each loop goes round per entry; the vectorised one counts groups of `unroll` vectors."""
        self.vectors = tuple(vectors)
        """The same, but the vectorised one counts single vectors."""
        self.extents = tuple(extents)
        """The same, but the vectorised one counts elements."""
        self.spans = spans
        """Symbol -> for each depth d, how many values it takes while loops d, d+1, ... run."""
        self.positions = positions
        """Symbol -> the innermost loop that moves it."""
        self.vectorised = vectorised
        self.lanes = lanes
        """Elements of a vector; 1 where none is vectorised."""
        self.unroll = unroll
        self.copies = copies
        """Copies of scratch side by side: one for each grid point of the vectors in flight."""
        self.depth = len(self.rounds)
        self.rounds_to = _products(self.rounds)
        """For each depth d, how often loops d, d+1, ... are entered."""
        self.vectors_to = _products(self.vectors)
        """The same in single vectors."""
        self.elements_to = _products(self.extents)
        """The same in elements."""
        self.times = self._times()
        """For each depth, how often something runs that loops up to number `depth` - 1 move.

        First where it serves all lanes, then in single vectors, where lanes differ."""
        self.walks: dict[Any, Any] = {}
        """For whoever asks the same of many offsets: what was found, by their terms."""

    def _times(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        once = tuple(map(float, self.rounds_to))
        if self.vectorised is None:
            return once, once
        at = self.positions[self.vectorised]
        whole = self.vectors[at]
        every = [float(n * (1 if depth > at else whole)) for depth, n in enumerate(self.vectors_to)]
        return once, tuple(every)

    def moved_from(self, symbol: Symbol) -> int:
        """Loops up to the one in whose rounds a symbol takes new values; 0 for one that is set once.

        A loop of one round moves nothing: what depends on its symbol alone is computed before the loops around it.
        """
        at = self.positions.get(symbol, -1)
        return at + 1 if at >= 0 and self.rounds[at] > 1 else 0

    def inner(
        self, stage: Stage, lanes: int, unroll: int, count: int | None = None, groups: int | None = None
    ) -> LoopNest:
        """The nest with the loops of a stage inside; `lanes` and `unroll` count if the stage vectorises a loop.

        `count`, `groups`: vectors, and groups of `unroll`, of that loop, where it is cut in parts; by default in one.
        """
        if not stage.symbols:
            return self
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
            rounds,
            vectors,
            (*self.extents, *stage.trips),
            spans,
            positions,
            vectorised,
            lanes if own else self.lanes,
            unroll if own else self.unroll,
            self.copies,
        )


def grouped(nest: LoopNest, symbol: Symbol, together: int) -> LoopNest:
    """The nest when so many iterations of its innermost loop, over `symbol`, are done for a vector before the next one.

    It tells how memory is walked: its rounds are no counts of work.
    """
    at = nest.positions[symbol]
    rounds, spans = list(nest.rounds), dict(nest.spans)
    rounds[at] = -(-rounds[at] // together)
    inside = min(together, symbol.extent)
    spans[symbol] = spans[symbol][: at + 1] + (inside,) * (nest.depth - at)
    fields = nest.positions, nest.vectorised, nest.lanes, nest.unroll, nest.copies
    return LoopNest(rounds, nest.vectors, nest.extents, spans, *fields)


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
