"""MatMul, BiasAdd and the operations that tf.nn.gelu writes out, as one kernel of oneDNN (FindMatMulBiasAddAndGelu).

Products are compared as sets of factors, since Grappler's own reordering of products comes before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.graphqueries import Use
from autofuse.search.rules.grappler.node_matcher import MOST_FACTORS
from autofuse.search.rules.grappler.op_graph import Op, OpGraph
from autofuse.search.rules.grappler.remapper_patterns import (
    ADDITIONS,
    MATMUL,
    Match,
    biased,
    is_same,
    is_transposed,
    sides,
)

TOLERANCE = 0.01
"""How far a constant may be from the one that a pattern has (VerifyConstants)."""
_HALF, _ROOT_OF_HALF, _CUBIC, _ROOT = 0.5, 0.7071, 0.044715, 0.79788
_CUBE = 3


@dataclass(slots=True)
class _Product:
    """The factors of a product, numbers apart, and the operations that multiply."""

    factors: list[Use] = field(default_factory=list[Use])
    numbers: list[float] = field(default_factory=list[float])
    ops: list[Op] = field(default_factory=list[Op])

    def is_of(self, x: Use, power: int, number: float) -> bool:
        """Whether it is `number * x**power`."""
        return self.has(number) and len(self.factors) == power and all(is_same(use, x) for use in self.factors)

    def has(self, number: float) -> bool:
        """Whether this is its only number."""
        return len(self.numbers) == 1 and abs(self.numbers[0] - number) <= TOLERANCE


def _product(graph: OpGraph, op: Op | None) -> _Product:
    """The product that ends in an operation; it goes on through products that have one reader.

    Nothing is found of one that has too many factors for any pattern.
    """
    found = _Product()
    todo = [] if op is None else [op]
    while todo:
        if len(found.factors) + len(found.numbers) + len(todo) > MOST_FACTORS:
            return _Product()
        op = todo.pop()
        found.ops.append(op)
        for use in _factors(graph, op):
            inner, number = graph.maker(use, "Mul", "Square", "Pow"), _number(graph, use)
            if number is not None:
                found.numbers.append(number)
            elif inner is not None and graph.used_once(inner) and _factors(graph, inner):
                todo.append(inner)
            else:
                found.factors.append(use)
    return found


def _factors(graph: OpGraph, op: Op) -> Sequence[Use]:
    """What an operation multiplies; nothing if it does something else."""
    match op.kind:
        case "Mul":
            return op.inputs
        case "Square":
            return op.inputs * 2
        case "Pow" if graph.number(op.inputs[1]) == _CUBE:
            return op.inputs[:1] * _CUBE
        case _:
            return ()


def _number(graph: OpGraph, use: Use) -> float | None:
    """A factor that is a number; a divisor is one as its inverse."""
    number = graph.number(use)
    return 1 / number if number and use.reader.op == "divide" and use.operand == 1 else number


def gelu(graph: OpGraph, op: Op) -> Match | None:
    """B1: MatMul, bias, gelu: exact at once, approximate once the product and its bias are one operation."""
    if op.kind != "Mul":
        return None
    outer = _product(graph, op)
    if len(outer.factors) != 2 or not outer.has(_HALF):
        return None
    for use, z in (outer.factors, outer.factors[::-1]):
        for inner in _gates(graph, use, z):
            source = _source(graph, z, exact=inner[1].kind == "Erf")
            parts = (*outer.ops[1:], *inner, *source)
            if source and graph.is_closed(op, parts):
                return Match(f"_Fused{MATMUL}", parts, ("BiasAdd", "Gelu"))
    return None


def _gates(graph: OpGraph, use: Use, z: Use) -> Iterator[tuple[Op, ...]]:
    """The operations of 1 + erf(z / sqrt 2) or 1 + tanh(...), the addition and the function first."""
    total = graph.maker(use, *ADDITIONS)
    for value, one in sides(total) if total is not None else ():
        function, number = graph.maker(value, "Erf", "Tanh"), graph.number(one)
        if total is None or function is None or number is None or abs(number - 1) > TOLERANCE:
            continue
        inner = _product(graph, graph.maker(function.inputs[0], "Mul"))
        if function.kind == "Erf" and inner.is_of(z, 1, _ROOT_OF_HALF):
            yield (total, function, *inner.ops)
        elif function.kind == "Tanh" and inner.has(_ROOT) and len(inner.factors) == 1:
            cubic = _cubic(graph, inner.factors[0], z)
            if cubic:
                yield (total, function, *inner.ops, *cubic)


def _cubic(graph: OpGraph, use: Use, z: Use) -> tuple[Op, ...]:
    """The operations of z + 0.044715 * z**3; () if it is no such thing."""
    total = graph.maker(use, *ADDITIONS)
    for linear, other in sides(total) if total is not None else ():
        power = _product(graph, graph.maker(other, "Mul"))
        if total is not None and is_same(linear, z) and power.is_of(z, _CUBE, _CUBIC):
            return (total, *power.ops)
    return ()


def _source(graph: OpGraph, z: Use, *, exact: bool) -> tuple[Op, ...]:
    """What makes z and goes into the kernel, too; () if z is no product with a bias."""
    if not exact:
        fused = graph.maker(z, f"_Fused{MATMUL}")
        if fused is None or fused.fused != ("BiasAdd",) or _is_transposed(fused):
            return ()
        return (fused,)
    bias = graph.maker(z, "BiasAdd")
    contraction = None if bias is None else biased(graph, bias, "onednn")
    if bias is None or contraction is None or contraction.kind != MATMUL or is_transposed(contraction.root):
        return ()
    return (bias, contraction)


def _is_transposed(op: Op) -> bool:
    return any(node.op == "dot_general" and is_transposed(node) for node in op.nodes)
