"""The walk: every value of a graph with its bound, node by node, as long as something reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autofuse.ir import dtypes
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.interpreter import evaluate_node, live_nodes
from autofuse.ir.oprecord import Role, is_fast
from autofuse.ir.optable import index_op, lookup, role_of
from autofuse.measurement.errorbounds import callbounds, elementwisebounds, productbounds, reductionbounds
from autofuse.measurement.errorbounds.roundings import (
    Array,
    Bound,
    anything,
    distance,
    filled,
    made_smaller,
    magnitude,
    precision,
    relative,
    sum_rounding,
    summed,
    unless_too_large,
)

Known = tuple[Array, Bound, Bound]
"""A value, its bound, and what of that is of single roundings, where those to 16 bits are among them."""


def bounds_of(graph: Graph, arrays: Sequence[Array]) -> tuple[Bound, ...]:
    """By how much each output may differ from the interpreter's, for these inputs, which are exact.

    None where it may not differ at all. See `roundings` for what a bound is. Takes two to three times as long as the
    interpreter, and twice the memory.
    """
    with np.errstate(all="ignore"):
        return tuple(bound for _, bound, _ in _walk(graph, [(array, None, None) for array in arrays], ()))


def _walk(graph: Graph, inputs: Sequence[Known], captured: Sequence[Known]) -> list[Known]:
    known: dict[Value, Known] = dict(zip(graph.inputs, inputs, strict=True))
    known.update(zip(graph.captures, captured, strict=True))
    needed, last_use = live_nodes(graph)
    for position, node in needed:
        known.update(zip(node.outputs, _node(node, known), strict=True))
        for value in last_use.get(position, ()):
            known.pop(value, None)
    return [known[value] for value in graph.outputs]


def _node(node: Node, known: Mapping[Value, Known]) -> Sequence[Known]:
    through_regions = _REGIONS.get(role_of(node))
    if through_regions is not None:
        return through_regions(node, known)
    operands = [known[value][0] for value in node.inputs]
    bounds = [known[value][1] for value in node.inputs]
    singles = [known[value][2] for value in node.inputs]
    results = evaluate_node(node, {value: known[value][0] for value in node.inputs})
    found = _bounds(node, operands, bounds, singles, results)
    return list(zip(results, found, _singles(node, operands, singles, results, found), strict=True))


def _singles(
    node: Node, operands: Sequence[Array], singles: Sequence[Bound], results: Sequence[Array], totals: Sequence[Bound]
) -> tuple[Bound, ...]:
    """What of the bounds of results is of single roundings: their own, and those of operands. Sums of many are not."""
    kinds = [value.type.dtype for value in node.outputs]
    if all(single is None for single in singles) and not any(kind.is_float and kind.bits == 16 for kind in kinds):
        return (None,) * len(kinds)
    match role_of(node):
        case Role.DOT | Role.CONVOLUTION:
            return (relative(results[0], kinds[0], 1.0) if kinds[0].is_float and kinds[0].bits == 16 else None,)
        case Role.CALL:
            return tuple(totals)
        case _:
            found = _bounds(node, operands, singles, singles, results)
    pairs = zip(found, totals, strict=True)
    return tuple(None if one is None or most is None else np.minimum(one, most) for one, most in pairs)


def _bounds(
    node: Node,
    operands: Sequence[Array],
    bounds: Sequence[Bound],
    singles: Sequence[Bound],
    results: Sequence[Array],
) -> tuple[Bound, ...]:
    match role_of(node):
        case Role.ELEMENTWISE:
            return (elementwisebounds.elementwise(node, operands, bounds, results[0]),)
        case Role.REDUCE | Role.SCAN | Role.WINDOW:
            return (reductionbounds.reduction(node, operands, bounds, results[0]),)
        case Role.ARG_REDUCE:
            return (reductionbounds.position(node, operands, bounds),)
        case Role.DOT | Role.CONVOLUTION:
            return (productbounds.product(node, operands, bounds, singles, results[0]),)
        case Role.SORT:
            return reductionbounds.sort(node, operands, bounds, results)
        case Role.SCATTER:
            return (_scattered(node, operands, bounds, results[0]),)
        case role if role.is_leaf:
            return (None,)
        case role if role.moves:
            return (_moved(node, operands, bounds, results[0]),)
        case _:
            return callbounds.called(node, operands, bounds, results)


def _moved(node: Node, operands: Sequence[Array], bounds: Sequence[Bound], result: Array) -> Bound:
    """Bounds move as their elements do; where an index may differ, anything may come."""
    count, dtype = index_op(node).data, node.output.type.dtype
    if any(bound is not None and bool(np.any(bound > 0)) for bound in bounds[count:]):
        return np.full(result.shape, np.inf, precision(dtype))
    if all(bound is None for bound in bounds[:count]):
        return None
    data = [
        filled(bound, operand.shape, dtype) for operand, bound in zip(operands[:count], bounds[:count], strict=True)
    ]
    return lookup(node.op).evaluate([*data, *operands[count:]], node.attrs, ())[0]


def _scattered(node: Node, operands: Sequence[Array], bounds: Sequence[Bound], result: Array) -> Bound:
    dtype, (x, indices, updates) = node.output.type.dtype, operands
    if bounds[1] is not None and bool(np.any(bounds[1] > 0)):
        return np.full(result.shape, np.inf, precision(dtype))
    carried = None
    if bounds[0] is not None or bounds[2] is not None:
        combiner = "set" if node.attrs["combiner"] == "set" else "add"
        given = [
            filled(bounds[0], x.shape, dtype),
            indices,
            filled(bounds[2], updates.shape, dtype),
        ]
        carried = lookup(node.op).evaluate(given, {**node.attrs, "combiner": combiner}, ())[0]
        if node.attrs["combiner"] == "multiply":
            carried = np.where(carried > 0, np.inf, 0).astype(carried.dtype)
        if node.attrs["combiner"] == "add" and dtype.is_float:  # what is a little off may be rounded the other way
            rounding = filled(_in_any_order(node, operands, result), result.shape, dtype)
            carried = carried + np.where(carried > 0, rounding, 0).astype(carried.dtype)
    return summed(carried, _in_any_order(node, operands, result)) if is_fast(node.attrs) else carried


def _in_any_order(node: Node, operands: Sequence[Array], result: Array) -> Bound:
    """What another order of the updates may change."""
    dtype, (x, indices, updates) = node.output.type.dtype, operands

    def added(x: Array, updates: Array) -> Array:
        return lookup(node.op).evaluate([x, indices, updates], node.attrs, ())[0]

    sizes = added(magnitude(x, dtype), magnitude(updates, dtype))
    terms = int(added(np.ones(x.shape, np.int64), np.ones(updates.shape, np.int64)).max(initial=1))
    rounding = sum_rounding(dtype, terms, terms, sizes, result)
    return unless_too_large(rounding, sizes, lambda: added(made_smaller(x, dtype), made_smaller(updates, dtype)))


def _while(node: Node, known: Mapping[Value, Known]) -> Sequence[Known]:
    condition, body = node.regions
    state = [known[value] for value in node.inputs]
    outer = [[known[value] for value in region.captures] for region in node.regions]
    while True:
        ((goes_on, unsure, _),) = _walk(condition, state, outer[0])
        if unsure is not None and bool(np.any(unsure > 0)):
            exact = evaluate_node(node, {value: array for value, (array, _, _) in known.items()})
            return [(array, np.full(array.shape, np.inf), None) for array in exact]
        if not goes_on:
            return state
        state = _walk(body, state, outer[1])


def _scan(node: Node, known: Mapping[Value, Known]) -> Sequence[Known]:
    (body,) = node.regions
    length, count = node.attrs["length"], node.attrs["carries"]
    captured = [known[value] for value in body.captures]
    state, sequences = [known[value] for value in node.inputs[:count]], [known[value] for value in node.inputs[count:]]
    stacked: dict[int, list[Known]] = {}
    for i in range(length)[:: -1 if node.attrs["reverse"] else 1]:
        rows = [(array[i, ...], _row(bound, i), _row(single, i)) for array, bound, single in sequences]
        found = _walk(body, [*state, *rows], captured)
        state, stacked[i] = found[:count], found[count:]
    columns = zip(*(stacked[i] for i in range(length)), strict=True)
    return [*state, *map(_stacked, columns)]


def _row(bound: Bound, i: int) -> Bound:
    return None if bound is None else bound[i, ...]


def _stacked(rows: Sequence[Known]) -> Known:
    arrays, bounds, singles = zip(*rows, strict=True)
    dtype = dtypes.from_numpy(arrays[0].dtype)

    def all_of(parts: Sequence[Bound]) -> Bound:
        if all(part is None for part in parts):
            return None
        return np.stack([filled(part, arrays[0].shape, dtype) for part in parts])

    return np.stack(arrays), all_of(bounds), all_of(singles)


def _if(node: Node, known: Mapping[Value, Known]) -> Sequence[Known]:
    pred, unsure, _ = known[node.inputs[0]]
    taken, left = node.regions if pred else reversed(node.regions)
    chosen = _walk(taken, (), [known[value] for value in taken.captures])
    if unsure is None or not np.any(unsure > 0):
        return chosen
    other = _walk(left, (), [known[value] for value in left.captures])
    found: list[Known] = []
    for (here, bound, single), (there, beside, _), value in zip(chosen, other, node.outputs, strict=True):
        apart = summed(distance(here, there, value.type.dtype), bound, beside)
        found.append((here, None if apart is None else anything(apart), single))
    return found


_REGIONS: Mapping[Role, Callable[[Node, Mapping[Value, Known]], Sequence[Known]]] = {
    Role.COUNTED_LOOP: _scan,
    Role.LOOP: _while,
    Role.BRANCH: _if,
}
