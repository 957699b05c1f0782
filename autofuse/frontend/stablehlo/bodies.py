"""What a region computes on numbers: the bodies of reductions, windows, scatters and sorts.

A body is a graph of scalars. `combiner_of` and `chooses` find what it is; `vectorised` applies it to arrays, element by
element, whatever it is. A body that only compares and chooses is known by its values on a few numbers: on arguments
that are ordered alike it does alike. `probes` are numbers of every order relative to one another and to the constants
of the body, so that agreement on all of them is agreement everywhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.types import TensorType, of_array

Array = NDArray[Any]
_COMBINERS = ("add", "multiply", "minimum", "maximum", "and", "or")
_OF_BOOL: Mapping[str, str] = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
_ORDER_ONLY = frozenset(("compare", "select", "and", "or", "xor", "not", "maximum", "minimum", "constant"))
_LOGIC = frozenset(("and", "or", "xor", "not"))
_MOST_PROBES = 1 << 16
_MOST_CONSTANTS = 4


def body_of(emitter: Emitter, block: Any, dtypes_: Sequence[DType]) -> Graph:
    """A block that takes scalars of these dtypes, as a graph; it may read values of the graph around it.

    Numbers that are known there are constants of the body.
    """
    body = emitter.translated("body", block, [TensorType((), dtype) for dtype in dtypes_])
    known = {value: emitter.number(value) for value in body.captures if emitter.number(value) is not None}
    constants = [Node("constant", (), (value,), {"value": np.asarray(number)}) for value, number in known.items()]
    captures = tuple(value for value in body.captures if value not in known)
    return Graph(body.name, body.inputs, (*constants, *body.nodes), body.outputs, captures)


def combiner_of(body: Graph, dtype: DType, number: int = 0) -> str | None:
    """The combiner that result `number` is of two arguments of a dtype; None if it is none that the op table has.

    The arguments are inputs `number` and `number` behind the first half.
    """
    first, second = body.inputs[number], body.inputs[number + len(body.inputs) // 2]
    made = body.producers.get(body.outputs[number])
    if dtype.is_complex:
        return "add" if made is not None and made.op == "add" and {*made.inputs} == {first, second} else None
    if made is not None and made.op in _COMBINERS and {*made.inputs} == {first, second}:
        return _OF_BOOL.get(made.op, made.op) if dtype.kind == "bool" else made.op
    if len(body.inputs) == 2 and dtype.kind != "bool":
        found = (name for name in ("maximum", "minimum") if chooses(body, _extreme(name)))
        return next(found, None)
    return None


def is_identity(value: Value, combiner: str, emitter: Emitter) -> bool:
    """Whether a scalar is known to change nothing when combined; of a sum a zero of either sign."""
    number = emitter.number(value)
    if number is None:
        return False
    return bool(number == np.asarray(combiner_identity(combiner, value.type.dtype)).astype(number.dtype))


def vectorised(body: Graph, emitter: Emitter, arguments: Sequence[Value], shape: tuple[int, ...]) -> list[Value]:
    """The results of a body on arrays of one shape, element by element.

    Raises UnsupportedOperation for a body that computes anything but numbers from numbers.
    """
    held = dict(zip(body.inputs, arguments, strict=True))
    held |= {value: emitter.spread(value, shape) for value in body.captures}
    for node in body.nodes:
        held |= zip(node.outputs, _spread_node(node, held, emitter, shape), strict=True)
    return [held[value] if value in held else emitter.spread(value, shape) for value in body.outputs]


def _spread_node(node: Node, held: Mapping[Value, Value], emitter: Emitter, shape: tuple[int, ...]) -> Sequence[Value]:
    if any(value.type.shape for value in (*node.inputs, *node.outputs)):
        raise UnsupportedOperation(f"has a body in which {node.op} works on arrays")
    match role_of(node):
        case Role.ELEMENTWISE | Role.COMPLEX:
            return (emitter.emit(node.op, *(held[value] for value in node.inputs), **node.attrs),)
        case Role.CONSTANT:
            return (emitter.full(node.attrs["value"], TensorType(shape, node.output.type.dtype)),)
        case Role.VIEW | Role.RESHAPE:
            return (held[node.inputs[0]],)  # of a scalar there is one view
        case _:
            raise UnsupportedOperation(f"has a body that needs {node.op}, which is not computed element by element")


Expected = Callable[[Sequence[Array]], Sequence[Array]]
"""From the arguments of a body to the results that it is asked about."""


def _all(columns: Sequence[Array]) -> Array:
    return np.ones(columns[0].shape, np.bool_)


def chooses(body: Graph, expected: Expected, matters: Callable[[Sequence[Array]], Array] = _all) -> bool:
    """Whether a body does nothing but compare and choose, and gives these results.

    Zeros of both signs are equal, as are all NaN. `matters`: which arguments can come.
    """
    asked = answered(body)
    if asked is None:
        return False
    columns, results = asked
    kept = matters(columns)
    wanted = expected([column[kept] for column in columns])
    return all(_alike(result[kept], other) for result, other in zip(results, wanted, strict=True))


def answered(body: Graph) -> tuple[Sequence[Array], Sequence[Array]] | None:
    """All combinations of `probes`, a column for each argument, and what a body makes of them; None without probes."""
    points = probes(body)
    if points is None:
        return None
    columns = [np.ascontiguousarray(grid.ravel()) for grid in np.meshgrid(*points, indexing="ij")]
    return columns, evaluated(body, columns)


def evaluated(body: Graph, columns: Sequence[Array]) -> tuple[Array, ...]:
    """A body on vectors of arguments, of one length."""
    return _interpreted(lambda emitter, inputs: vectorised(body, emitter, inputs, columns[0].shape), columns)


def computed(rule: Callable[[Emitter, Value], Value], column: Array) -> Array:
    """What nodes that a rule emits make of an array."""
    return _interpreted(lambda emitter, inputs: [rule(emitter, inputs[0])], [column])[0]


def _interpreted(
    emit: Callable[[Emitter, Sequence[Value]], Sequence[Value]], arrays: Sequence[Array]
) -> tuple[Array, ...]:
    def nothing(*_: Any) -> list[Value]:
        raise UnsupportedOperation("is not translated here")

    builder = GraphBuilder("probe")
    inputs = [builder.input(of_array(array)) for array in arrays]
    return interpret(builder.finish(emit(Emitter(builder, nothing, nothing), inputs)), *arrays)


def probes(body: Graph) -> list[Array] | None:
    """For each argument, numbers of every order relative to the others and to the constants of the body.

    None for a body that does more than compare and choose, or is too large to try.
    """
    keys = order_keys(body)
    others = [node for node in body.nodes if node not in keys]
    if body.captures or any(value.type.dtype.is_complex for value in body.inputs):
        return None
    if not all(map(_is_order_only, others)):
        return None
    read = {value for node in others for value in node.inputs}
    constants = [float(n.attrs["value"]) for n in others if n.op == "constant" and n.output in read]
    numbers = sorted({0.0, *(n for n in constants if math.isfinite(n))})
    if len(numbers) > _MOST_CONSTANTS:
        return None
    used = {*read, *(value for node in keys for value in node.inputs), *body.outputs}
    points = [_points(numbers if value in used else (), value.type.dtype) for value in body.inputs]
    return points if math.prod(len(found) for found in points) <= _MOST_PROBES else None


def _is_order_only(node: Node) -> bool:
    if node.op in _LOGIC and node.output.type.dtype.kind != "bool":
        return False
    return node.op in _ORDER_ONLY and not node.output.type.shape


def order_keys(body: Graph) -> frozenset[Node]:
    """The nodes by which a body turns floats into integers of the same order (`ordering.total_order`)."""
    found: set[Node] = set()
    for node in body.nodes:
        parts = [body.producers.get(value) for value in node.inputs]
        if node.op != "xor" or None in parts:
            continue
        bits, flips = (part for part in parts if part is not None)
        chain = [flips, *(body.producers.get(value) for value in flips.inputs)]
        shift = chain[1]
        if bits.op == "bitcast_convert" and flips.op == "and" and shift is not None and shift.inputs[0] is bits.output:
            found |= {node, bits, flips, shift}
    return frozenset(found)


def _points(numbers: Sequence[float], dtype: DType) -> Array:
    """The numbers, and two in each gap around them; one alone where there are none. Floats: those that are none too."""
    if dtype.kind == "bool":
        return np.array([False, True]) if numbers else np.array([False])
    if not numbers:
        return np.zeros(1, dtype.numpy)
    found = [numbers[0] - 2, numbers[0] - 1, *numbers, numbers[-1] + 1, numbers[-1] + 2]
    for low, high in itertools.pairwise(numbers):
        found += [low + (high - low) / 3, low + (high - low) * 2 / 3]
    if dtype.kind == "uint":
        found = [number for number in found if number >= 0]
    if dtype.is_float:
        found += [-0.0, math.inf, -math.inf, math.nan, -math.nan]
    with np.errstate(all="ignore"):
        return np.array(found).astype(dtype.numpy)


def _alike(a: Array, b: Array) -> bool:
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    return bool(np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True))


def _extreme(name: str) -> Expected:
    function = np.maximum if name == "maximum" else np.minimum
    return lambda columns: [function(columns[0], columns[1])]
