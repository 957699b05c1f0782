"""Loops in the bodies of loops: one stage walks them all, by one symbol for each depth.

    for t:                      t      walks the iterations of the loop itself
      a = a + 1
      for 3 times: ...          k = 0  starts the first loop of its body, 1 to 3 are its iterations
      until b > a: ...          k = 4  starts one that data end, 5 is done again and again
      b = ...                   k = 6  is the end of the body: what the next iteration gets, and rows that it makes

The positions of a symbol are those that the body with the most of them has. What a loop without loops in its body does
in an iteration is done at the last position of each symbol of loops that are deeper than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.nodeaxes import Taken, body_of, is_loop, loops_inside, parts_of_state
from autofuse.ir import index
from autofuse.ir.graph import Graph, Node
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.phasedrafts import Instance
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.statements import Scalar

GUESSED_TRIPS = 32
"""Iterations of a loop whose number only data know."""


@dataclass(eq=False)
class Loop:
    """A loop that is being lowered."""

    node: Node
    outer: Loop | None = None
    """The loop in whose body it stands."""
    taken: Taken = ()
    """Of branches in that body."""
    start: int = 0
    """The position at which it starts, among those of the loops in that body."""
    inner: list[Loop] = field(default_factory=list["Loop"])
    """The loops in its body, in order."""
    carries: dict[Instance, Scalar] = field(default_factory=dict[Instance, Scalar])
    """Elements of the state that the body reads."""
    waiting: list[Instance] = field(default_factory=list[Instance])
    """Those whose value in the next iteration is not lowered yet."""
    constant: dict[Instance, Scalar] = field(default_factory=dict[Instance, Scalar])
    """Values of the enclosing graph, computed once before the loop."""
    kept: dict[Instance, str] = field(default_factory=dict[Instance, str])
    """The scratch of elements of rows that what follows it in the body reads."""
    symbols: tuple[Symbol, ...] = ()
    """Of a loop in no other's body: what walks it, and the loops inside of it by depth."""
    following: dict[Scalar, Scalar] = field(default_factory=dict[Scalar, Scalar])
    """By carry, what an iteration makes of it."""
    results: set[Scalar] = field(default_factory=set[Scalar])
    """Carries that are read once the loop is done."""
    is_draining: bool = False
    settled: Scalar | None = None
    """Of a `while`, once its condition is lowered: whether it does not hold."""

    @property
    def body(self) -> Graph:
        return body_of(self.node)

    @property
    def parts(self) -> int:
        """Of the state."""
        return parts_of_state(self.node)

    @property
    def is_while(self) -> bool:
        """Whether data end it."""
        return role_of(self.node) is Role.LOOP

    @property
    def whole(self) -> Loop:
        """The loop around all."""
        return self if self.outer is None else self.outer.whole

    @property
    def depth(self) -> int:
        """How many loops are around it."""
        return 0 if self.outer is None else 1 + self.outer.depth

    @property
    def stop(self) -> int:
        """The position behind its last one."""
        return self.start + 1 + (1 if self.is_while else self.node.attrs["length"])

    def all(self) -> Iterator[Loop]:
        """It, and all loops inside of it, from the outside inwards."""
        yield self
        for loop in self.inner:
            yield from loop.all()


def loop_trees(nodes: Sequence[Node]) -> list[Loop]:
    """The loops among the nodes, each with those in its body."""
    loops = [Loop(node) for node in nodes if is_loop(node)]
    for loop in loops:
        _add_inner(loop)
    return loops


def _add_inner(loop: Loop) -> None:
    position = 0
    for node, taken in loops_inside(loop.node):
        inner = Loop(node, loop, taken, position)
        loop.inner.append(inner)
        position = inner.stop
        _add_inner(inner)


def walked(frame: PhaseFrame, loop: Loop) -> tuple[Symbol, ...]:
    """The symbols of the stage that walks a loop and those around and inside of it, from the outermost inwards."""
    whole = loop.whole
    if not whole.symbols:
        extents = _positions(whole)
        trips = whole.node.attrs.get("length", GUESSED_TRIPS)
        whole.symbols = (counted_by(frame, whole) or frame.fresh_stream(trips), *map(frame.fresh_stream, extents))
    return whole.symbols


def _positions(whole: Loop) -> list[int]:
    """How many positions the loops at each depth have: one behind the last, for the end of the body."""
    most: dict[int, int] = {}
    for loop in whole.all():
        if loop.inner:
            most[loop.depth] = max(most.get(loop.depth, 0), loop.inner[-1].stop + 1)
    return [most[depth] for depth in range(len(most))]


def counted_by(frame: PhaseFrame, loop: Loop) -> Symbol | None:
    """The symbol of the axis that counts a loop's iterations in its rows; None if it has none."""
    node, count = loop.node, loop.parts
    uses = [frame.dims.use(node, number) for number in range(count, len(node.inputs))]
    axes = [frame.dims.axes(use)[0] for use in (*uses, *node.outputs[count:])]
    if axes and len(axes[0]) > 1:
        raise LegalityError(f"{node.op} %{node.name}: its iterations are read as more than one axis")
    return frame.symbol(axes[0][0]) if axes and axes[0] else None


def is_reversed(loop: Loop) -> bool:
    """Whether a stage walks the symbol of a loop backwards: with loops inside, positions say which row is meant."""
    return loop.node.attrs.get("reverse", False) and not loop.whole.inner


def row(frame: PhaseFrame, loop: Loop) -> Affine:
    """The number of a loop's iteration."""
    symbol = index.of(walked(frame, loop)[loop.depth])
    number = symbol if loop.outer is None else symbol - (loop.start + 1)
    if not loop.node.attrs.get("reverse", False) or is_reversed(loop):
        return number
    return number * -1 + (loop.node.attrs["length"] - 1)


def starts(frame: PhaseFrame, loop: Loop) -> tuple[Condition, ...]:
    """Where a loop in a body starts."""
    return (*_at(frame, loop, loop.start, loop.start + 1), *_at_ends(frame, loop))


def iterates(frame: PhaseFrame, loop: Loop) -> tuple[Condition, ...]:
    """Where a loop's iterations are walked, with all that is inside of them; nothing of one in no other's body."""
    return () if loop.outer is None else _at(frame, loop, loop.start + 1, loop.stop)


def hands_on(frame: PhaseFrame, loop: Loop) -> tuple[Condition, ...]:
    """Where an iteration of a loop ends."""
    return (*iterates(frame, loop), *_at_ends(frame, loop))


def is_done(frame: PhaseFrame, loop: Loop) -> tuple[Condition, ...]:
    """What follows a loop in the body that it stands in."""
    return _at(frame, loop, loop.stop, walked(frame, loop)[loop.depth].extent)


def _at(frame: PhaseFrame, loop: Loop, lo: int, hi: int) -> tuple[Condition, ...]:
    """In iterations of the loops around it, the positions of a loop's symbol from `lo` to `hi`."""
    assert loop.outer is not None
    return (*iterates(frame, loop.outer), Condition(index.of(walked(frame, loop)[loop.depth]), lo, hi))


def _at_ends(frame: PhaseFrame, loop: Loop) -> Iterator[Condition]:
    for symbol in walked(frame, loop)[loop.depth + 1 :]:
        yield Condition(index.of(symbol), symbol.extent - 1, symbol.extent)


def sections(frame: PhaseFrame, loop: Loop) -> tuple[tuple[Symbol, tuple[int, ...]], ...]:
    """The positions of each symbol of loops in bodies where other loops start, iterate or end."""
    symbols, cuts = walked(frame, loop), dict[int, set[int]]()
    for one in loop.whole.all():
        if one.outer is not None:
            cuts.setdefault(one.depth, {symbols[one.depth].extent - 1}).update((one.start, one.start + 1, one.stop))
    return tuple((symbols[depth], tuple(sorted(cuts[depth] - {0, symbols[depth].extent}))) for depth in sorted(cuts))
