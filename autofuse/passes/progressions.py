"""Integers that grow by the same step from one iteration of a loop to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.facts import Facts
from autofuse.passes.matching import limits, number_of


@dataclass(frozen=True, slots=True)
class Progression:
    """`first + i * step` in iteration i of `count`."""

    first: int
    step: int
    count: int

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.step

    @property
    def least(self) -> int:
        return min(self.first, self.last)

    @property
    def greatest(self) -> int:
        return max(self.first, self.last)

    def turned(self) -> Progression:
        """From the last to the first."""
        return Progression(self.last, -self.step, self.count)

    def __add__(self, other: Progression) -> Progression:
        return Progression(self.first + other.first, self.step + other.step, self.count)

    def __neg__(self) -> Progression:
        return Progression(-self.first, -self.step, self.count)

    def __sub__(self, other: Progression) -> Progression:
        return self + -other

    def __mul__(self, number: int) -> Progression:
        return Progression(self.first * number, self.step * number, self.count)


class Progressions:
    """Which integers of a loop's body are progressions, or which arrays outside whose rows it gets."""

    def __init__(self, facts: Facts, count: int, rows: Mapping[Value, Progression] | None = None) -> None:
        """`facts`: of the graph that they are in. `rows`: of a body, those that are; None outside of it."""
        self._facts = facts
        self._count = count
        self.in_body = rows is not None
        """Whether values are scalars of a body, not arrays of one element for each iteration."""
        self._size = 1 if self.in_body else count
        self._known: dict[Value, Progression | None] = dict(rows or {})

    def of(self, value: Value) -> Progression | None:
        """What `value` is in each iteration; None if it is no progression, wraps around, or that is not known."""
        if value not in self._known:
            found = self._find(value) if value.type.dtype.kind in ("int", "uint") else None
            low, high = (0, 0) if found is None else limits(value.type.dtype)
            fits = found is not None and low <= found.least and found.greatest <= high
            self._known[value] = found if fits else None
        return self._known[value]

    def decided(self, compare: Node) -> bool | None:
        """What a comparison gives in all iterations; None if that changes, or is not known."""
        first, second = map(self.of, compare.inputs)
        if first is None or second is None:
            return None
        return _decided(compare.attrs["direction"], first - second)

    def condition(self, value: Value) -> bool | None:
        """What a truth value is in all iterations, if a comparison decides it."""
        compare = self._facts.producer(value, "compare")
        return None if compare is None else self.decided(compare)

    def _find(self, value: Value) -> Progression | None:
        if value.type.size != self._size:
            return None
        number = number_of(self._facts, value)
        if number is not None:
            return Progression(int(number), 0, self._count)
        node = self._facts.producer(value)
        rule = None if node is None else _RULES.get(node.op)
        return None if node is None or rule is None else rule(self, node)

    def operands(self, node: Node) -> list[Progression] | None:
        """Those of all operands of a node."""
        found = list(map(self.of, node.inputs))
        held = [part for part in found if part is not None]
        return held if len(held) == len(found) else None


def _decided(direction: str, difference: Progression) -> bool | None:
    """Whether `difference DIRECTION 0` holds in all iterations, or in none."""
    low, high = difference.least, difference.greatest
    always, never = {
        "LT": (high < 0, low >= 0),
        "LE": (high <= 0, low > 0),
        "GT": (low > 0, high <= 0),
        "GE": (low >= 0, high < 0),
        "EQ": (low == high == 0, _avoids_zero(difference)),
        "NE": (_avoids_zero(difference), low == high == 0),
    }[direction]
    return True if always else False if never else None


def _avoids_zero(difference: Progression) -> bool:
    if difference.least > 0 or difference.greatest < 0:
        return True
    return difference.step != 0 and difference.first % difference.step != 0


def _linear(combine: Callable[[Sequence[Progression]], Progression | None]) -> Callable[..., Progression | None]:
    def found(progressions: Progressions, node: Node) -> Progression | None:
        operands = progressions.operands(node)
        return None if operands is None else combine(operands)

    return found


def _iota(progressions: Progressions, node: Node) -> Progression | None:
    shape = node.attrs["shape"]
    return Progression(0, 1, *shape) if len(shape) == 1 and not progressions.in_body else None


def _constant(progressions: Progressions, node: Node) -> Progression | None:
    """An array whose elements are evenly spaced."""
    array = node.attrs["value"]
    if array.ndim != 1 or len(array) < 2:
        return None
    first, step = int(array[0]), int(array[1]) - int(array[0])
    expected = Progression(first, step, len(array))
    exact = range(first, expected.last + step, step) if step else (first,) * len(array)
    return expected if array.tolist() == list(exact) else None


def _product(operands: Sequence[Progression]) -> Progression | None:
    first, second = operands
    if second.step == 0:
        return first * second.first
    return second * first.first if first.step == 0 else None


def _smaller(operands: Sequence[Progression]) -> Progression | None:
    first, second = operands
    below = _decided("LE", first - second)
    return None if below is None else first if below else second


def _greater(operands: Sequence[Progression]) -> Progression | None:
    first, second = operands
    above = _decided("GE", first - second)
    return None if above is None else first if above else second


def _clamped(operands: Sequence[Progression]) -> Progression | None:
    low, x, high = operands
    raised = _greater((x, low))
    return None if raised is None else _smaller((raised, high))


def _same(progressions: Progressions, node: Node) -> Progression | None:
    """An integer of another dtype: it is the same number where that holds it, which is asked of every result."""
    return progressions.of(node.inputs[0])


def _scalar_view(progressions: Progressions, node: Node) -> Progression | None:
    return progressions.of(node.inputs[0]) if node.inputs[0].type.size == node.output.type.size == 1 else None


def _chosen(progressions: Progressions, node: Node) -> Progression | None:
    """A branch of select, where its condition is a comparison that is decided."""
    decided = progressions.condition(node.inputs[0])
    return None if decided is None else progressions.of(node.inputs[1 if decided else 2])


def _turned(progressions: Progressions, node: Node) -> Progression | None:
    found = progressions.of(node.inputs[0]) if node.output.type.rank == 1 else None
    return None if found is None else found.turned()


_RULES: Mapping[str, Callable[[Progressions, Node], Progression | None]] = {
    "iota": _iota,
    "constant": _constant,
    "add": _linear(lambda parts: parts[0] + parts[1]),
    "subtract": _linear(lambda parts: parts[0] - parts[1]),
    "negate": _linear(lambda parts: -parts[0]),
    "multiply": _linear(_product),
    "minimum": _linear(_smaller),
    "maximum": _linear(_greater),
    "clamp": _linear(_clamped),
    "convert": _same,
    "reshape": _scalar_view,
    "broadcast_in_dim": _scalar_view,
    "select": _chosen,
    "reverse": _turned,
}
