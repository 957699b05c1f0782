"""Clean-up of reductions, running ones and sorts: trivial ones vanish, nested ones merge, views go behind them."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from autofuse.ir.graph import Graph, Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.axismaps import ascending, runs
from autofuse.passes.facts import Facts
from autofuse.passes.matching import filled, is_float, joined
from autofuse.passes.rewriting import Call, Expression, Rules, call, rewrite
from autofuse.passes.viewrules import broadcast

_IDEMPOTENT = ("minimum", "maximum", "and", "or")


@dataclass(frozen=True, slots=True)
class SimplifyReductions:
    """Simplifies `reduce`, `argmin`, `argmax`, `cumulative`, `reduce_window` and `sort`.

    Reductions of one element become reshapes, nested ones merge, transposes and reshapes move behind a reduction, and
    elements that a broadcast repeats are not reduced one by one. Exact for integers, bool and extrema; float sums
    and products merge with themselves and with repetition only under "fast", since partial results round. Moving
    views may change the order in which a float sum is added, which is open.
    """

    numerics: Literal["strict", "fast"] = "strict"
    name: ClassVar[str] = "reductions"

    def apply(self, graph: Graph) -> Graph:
        """The graph with simpler reductions; the same object if nothing applied."""
        return rewrite(graph, lambda: _EXACT if self.numerics == "strict" else _FAST)


def _reduced(x: Expression, node: Node, dimensions: list[int]) -> Call:
    return call("reduce", x, dimensions=tuple(sorted(dimensions)), combiner=node.attrs["combiner"])


def reduce_nothing(node: Node, facts: Facts) -> Value | None:
    """A reduction of no dimensions."""
    return None if node.attrs["dimensions"] else node.inputs[0]


def reduce_unit_axes(node: Node, facts: Facts) -> Call | None:
    """Unit axes are dropped, not reduced. A float sum of one element is x + 0.: it has no -0."""
    (x,), dims = node.inputs, node.attrs["dimensions"]
    unit = [d for d in dims if x.type.shape[d] == 1]
    if not unit:
        return None
    shape = tuple(extent for d, extent in enumerate(x.type.shape) if d not in unit)
    kept = call("reshape", x, shape=shape)
    if len(unit) < len(dims):
        return _reduced(kept, node, [d - sum(u < d for u in unit) for d in dims if d not in unit])
    if node.attrs["combiner"] == "add" and is_float(node):
        return call("add", kept, filled(0.0, node.output.type))
    return kept


def reduce_canonical(node: Node, facts: Facts) -> Call | None:
    """Dimensions in ascending order."""
    dims = node.attrs["dimensions"]
    return None if ascending(dims) else _reduced(node.inputs[0], node, list(dims))


def reduce_reduced(node: Node, facts: Facts) -> Call | None:
    """Two reductions with one combiner are one, where partial results do not round."""
    rounds = is_float(node) and node.attrs["combiner"] in ("add", "multiply")
    return None if rounds else merge_reductions(node, facts)


def merge_reductions(node: Node, facts: Facts) -> Call | None:
    """Two reductions with one combiner are one."""
    inner = facts.producer(node.inputs[0], "reduce")
    if inner is None or inner.attrs["combiner"] != node.attrs["combiner"]:
        return None
    gone = inner.attrs["dimensions"]
    left = [d for d in range(inner.inputs[0].type.rank) if d not in gone]
    return _reduced(inner.inputs[0], node, [*gone, *(left[d] for d in node.attrs["dimensions"])])


def reduce_transposed(node: Node, facts: Facts) -> Call | None:
    """A reduction of a transpose is a transpose of a reduction."""
    inner = facts.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    permutation = inner.attrs["permutation"]
    gone = [permutation[d] for d in node.attrs["dimensions"]]
    left = [axis for axis in permutation if axis not in gone]
    places = tuple(sorted(left).index(axis) for axis in left)
    return call("transpose", _reduced(inner.inputs[0], node, gone), permutation=places)


def reduce_reshaped(node: Node, facts: Facts) -> Call | None:
    """A reduction of a reshape is a reshape of a reduction, where it reduces whole runs of axes."""
    inner = facts.producer(node.inputs[0], "reshape")
    if inner is None or inner.output.type.size == 0:
        return None
    gone: list[int] = []
    for old, new in runs(inner.inputs[0].type.shape, inner.output.type.shape):
        reduced = [axis in node.attrs["dimensions"] for axis in new]
        if any(reduced) and not all(reduced):
            return None
        gone += old if any(reduced) else ()
    if not gone:
        return None
    return call("reshape", _reduced(inner.inputs[0], node, gone), shape=node.output.type.shape)


def reduce_repeated(node: Node, facts: Facts) -> Call | None:
    """The extremum of repeated elements is that of one of them; an integer sum is a multiple."""
    combiner = node.attrs["combiner"]
    if combiner in _IDEMPOTENT or (combiner == "add" and not is_float(node)):
        return reduce_repetition(node, facts)
    return None


def reduce_repetition(node: Node, facts: Facts) -> Call | None:
    """A sum over n repeated elements is n times one of them."""
    inner = facts.producer(node.inputs[0], "broadcast_in_dim")
    if inner is None or node.inputs[0].type.size == 0 or node.attrs["combiner"] == "multiply":
        return None
    (x,), dims, shape = inner.inputs, inner.attrs["broadcast_dimensions"], inner.output.type.shape
    varying = {dim for axis, dim in enumerate(dims) if x.type.shape[axis] != 1}
    repeated = [d for d in node.attrs["dimensions"] if d not in varying]
    if not repeated:
        return None
    kept_axes = [axis for axis, dim in enumerate(dims) if dim not in repeated]
    place = {d: n for n, d in enumerate(d for d in range(len(shape)) if d not in repeated)}
    smaller = broadcast(
        call("reshape", x, shape=tuple(x.type.shape[axis] for axis in kept_axes)),
        [shape[d] for d in place],
        [place[dims[axis]] for axis in kept_axes],
    )
    rest = [place[d] for d in node.attrs["dimensions"] if d not in repeated]
    reduced = _reduced(smaller, node, rest) if rest else smaller
    if node.attrs["combiner"] in _IDEMPOTENT:
        return reduced
    count = math.prod(shape[d] for d in repeated)
    return call("multiply", reduced, filled(count, node.output.type))


def arg_of_one(node: Node, facts: Facts) -> Call | None:
    """The only position is 0."""
    return filled(0, node.output.type) if node.inputs[0].type.shape[node.attrs["dimension"]] == 1 else None


def arg_transposed(node: Node, facts: Facts) -> Call | None:
    """The argmin of a transpose is a transpose of the argmin."""
    inner = facts.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    permutation = inner.attrs["permutation"]
    gone = permutation[node.attrs["dimension"]]
    left = [axis for axis in permutation if axis != gone]
    places = tuple(sorted(left).index(axis) for axis in left)
    found = call(node.op, inner.inputs[0], dimension=gone, dtype=node.attrs["dtype"])
    return call("transpose", found, permutation=places)


def cumulative_of_one(node: Node, facts: Facts) -> Value | None:
    """A running reduction along at most one element."""
    return node.inputs[0] if node.inputs[0].type.shape[node.attrs["dimension"]] <= 1 else None


def cumulative_transposed(node: Node, facts: Facts) -> Call | None:
    """A running reduction of a transpose is a transpose of the running reduction."""
    inner = facts.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    permutation = inner.attrs["permutation"]
    attrs = {**node.attrs, "dimension": permutation[node.attrs["dimension"]]}
    return call("transpose", call("cumulative", inner.inputs[0], **attrs), permutation=permutation)


def window_of_one(node: Node, facts: Facts) -> Value | None:
    """Windows of one element at every position; float sums start at 0. and lose a -0., so they stay."""
    sizes = ("window_dimensions", "window_strides", "base_dilations")
    trivial = all(n == 1 for key in sizes for n in node.attrs[key]) and not any(map(any, node.attrs["padding"]))
    exact = not is_float(node) or node.attrs["combiner"] != "add"
    return node.inputs[0] if trivial and exact else None


def sort_of_one(node: Node, facts: Facts) -> tuple[Value, ...] | None:
    """At most one element is sorted."""
    return node.inputs if node.inputs[0].type.shape[node.attrs["dimension"]] <= 1 else None


_EXACT: Rules = {
    "reduce": (
        *(reduce_nothing, reduce_unit_axes, reduce_canonical, reduce_reduced),
        *(reduce_transposed, reduce_reshaped, reduce_repeated),
    ),
    "argmin": (arg_of_one, arg_transposed),
    "argmax": (arg_of_one, arg_transposed),
    "cumulative": (cumulative_of_one, cumulative_transposed),
    "reduce_window": (window_of_one,),
    "sort": (sort_of_one,),
}
_FAST: Rules = joined(_EXACT, {"reduce": (merge_reductions, reduce_repetition)})
