"""Complex numbers become pairs of real ones, before anything else is done to a graph.

An argument of complex numbers is the same memory seen as reals along a last axis of 2: real part, imaginary part. So is
a result. In between, each complex value is two real values of its shape, so that fusion, prices and code generation see
real numbers only. Operations that move or choose elements do so with both parts; sums add both up; products and
functions are formulas (`autofuse.passes.complexformulas`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir import attributes
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Location, Node, Value
from autofuse.ir.graphbuilder import free_values
from autofuse.ir.optable import lookup
from autofuse.ir.parts import complex_places, in_parts
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.passes import complexformulas
from autofuse.passes.complexformulas import Complex
from autofuse.passes.editing import new_node
from autofuse.passes.realnumbers import Real
from autofuse.passes.rewriting import Names

Pair = tuple[Value, Value]
"""Real and imaginary part of one value."""
_SUFFIXES = ("_re", "_im")


def has_complex(graph: Graph) -> bool:
    """Whether a graph, or a region in it, has complex values."""
    own = any(value.type.dtype.is_complex for value in graph.values())
    return own or any(has_complex(region) for node in graph.nodes for region in node.regions)


def split_complex(graph: Graph) -> Graph:
    """`graph` in real numbers; inputs and outputs that were complex have the types of `in_parts`.

    The graph itself if it has no complex values. Raises GraphError for an operation that has no form in real numbers.
    """
    return _Splitter(graph, Names(graph), {}).whole() if has_complex(graph) else graph


class _Splitter:
    """One graph or region on its way to real numbers; an emitter of formulas."""

    def __init__(self, graph: Graph, names: Names, outer: Mapping[Value, Pair]) -> None:
        self.graph, self.names = graph, names
        self.pairs: dict[Value, Pair] = dict(outer)
        self.nodes: list[Node] = []
        self.replaced: dict[Value, Value] = {}
        self._node: Node | None = None
        self._splats: dict[tuple[bytes, DType, tuple[int, ...]], Value] = {}

    def whole(self) -> Graph:
        """The graph; its complex inputs and outputs in one value each."""
        inputs: list[Value] = []
        for value in self.graph.inputs:
            given = Value(value.name, in_parts(value.type)) if value.type.dtype.is_complex else value
            inputs.append(given)
            if given is not value:
                self.pairs[value] = self.split(given)
        self._walk()
        joined: dict[Value, Value] = {}
        for value in dict.fromkeys(self.graph.outputs):
            if value in self.pairs:
                name = value.name if value not in self.graph.inputs else self.names.fresh(value.name)
                joined[value] = self.joined(self.pairs[value], Value(name, in_parts(value.type)))
        outputs = tuple(joined.get(value, self.current(value)) for value in self.graph.outputs)
        return Graph(self.graph.name, tuple(inputs), tuple(self.nodes), outputs)

    def region(self) -> Graph:
        """A region; each complex input and output is two, next to one another."""
        inputs: list[Value] = []
        for value in self.graph.inputs:
            if value.type.dtype.is_complex:
                re, im = self.fresh_parts(value)
                self.pairs[value] = (re, im)
            inputs += self.flat([value])
        self._walk()
        outputs = self.flat(self.graph.outputs)
        captures = free_values(inputs, self.nodes, outputs)
        return Graph(self.graph.name, tuple(inputs), tuple(self.nodes), tuple(outputs), captures)

    def _walk(self) -> None:
        for node in self.graph.nodes:
            self._node = node
            self._visit(node)

    def _visit(self, node: Node) -> None:
        touched = any(value.type.dtype.is_complex for value in (*node.inputs, *node.outputs))
        regions = any(has_complex(region) or self._captures(region) for region in node.regions)
        if not touched and not regions:
            inputs = tuple(map(self.current, node.inputs))
            self.nodes.append(node if inputs == node.inputs else replace(node, inputs=inputs))
            return
        rule = _RULES.get(node.op)
        if rule is None:
            raise GraphError(f"%{node.name}: {node.op} has no form in real numbers for complex operands")
        first = len(self.nodes)
        wanted: dict[Value, Value] = {}
        results = list(zip(node.outputs, rule(self, node), strict=True))
        for value, result in results:
            if isinstance(result, tuple):
                named = zip(result, _SUFFIXES, strict=True)
                wanted |= {part: self._named(value, part, suffix) for part, suffix in named}
            else:
                wanted[result] = value
        named = self._renamed(first, wanted)
        for value, result in results:
            if isinstance(result, tuple):
                re, im = (named.get(part, part) for part in result)
                self.pairs[value] = (re, im)
            elif named.get(result, result) is not value:
                self.replaced[value] = result

    def _captures(self, region: Graph) -> bool:
        return any(value in self.pairs or value in self.replaced for value in region.captures)

    def _named(self, value: Value, part: Value, suffix: str) -> Value:
        """A part of a value, called after it."""
        return part if part.name.endswith(suffix) else Value(self.names.fresh(value.name + suffix), part.type)

    def _renamed(self, first: int, wanted: Mapping[Value, Value]) -> Mapping[Value, Value]:
        """Call results of nodes from number `first` on as the program calls them; those of older nodes stay."""
        kept = set(self._splats.values())
        made = {value for node in self.nodes[first:] for value in node.outputs if value not in kept}
        new = {old: value for old, value in wanted.items() if old in made and old is not value}
        for place in range(first, len(self.nodes) if new else first):
            node = self.nodes[place]
            inputs, outputs = (tuple(new.get(v, v) for v in values) for values in (node.inputs, node.outputs))
            self.nodes[place] = replace(node, inputs=inputs, outputs=outputs)
        return new

    # ---- operands ------------------------------------------------------------------------------------------------

    def current(self, value: Value) -> Value:
        """What stands for a real value."""
        return self.replaced.get(value, value)

    def part(self, value: Value, number: int) -> Value:
        """A part of a complex value; a real one as it is."""
        return self.pairs[value][number] if value in self.pairs else self.current(value)

    def flat(self, values: Sequence[Value]) -> list[Value]:
        """Real values, and both parts of complex ones."""
        found: list[Value] = []
        for value in values:
            found += self.pairs[value] if value in self.pairs else (self.current(value),)
        return found

    def number(self, value: Value) -> Complex:
        """A complex value in a formula."""
        re, im = self.pairs[value]
        return Complex(Real(re, self), Real(im, self))

    def real(self, value: Value) -> Real:
        return Real(self.current(value), self)

    # ---- new nodes -----------------------------------------------------------------------------------------------

    def emit(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """The result of a new node, which has the location of the one that is being rewritten."""
        node = new_node(self.names, op, inputs, attrs, None, self._location())
        self.nodes.append(node)
        return node.output

    def _location(self) -> Location | None:
        return None if self._node is None else self._node.location

    def emit_many(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value], **changed: Any) -> None:
        """A node like `node`, with other operands, results, and attributes or regions."""
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=tuple(outputs), **changed))

    def splat(self, number: Any, like: Value) -> Value:
        """A number repeated in the type of `like`."""
        type_ = like.type
        array = np.asarray(number, type_.dtype.numpy)
        array.setflags(write=False)
        key = (array.tobytes(), type_.dtype, type_.shape)
        if key not in self._splats:
            scalar = self._splats.get((*key[:2], ())) or self.emit("constant", value=array)
            self._splats[*key[:2], ()] = scalar
            if type_.shape:
                scalar = self.emit("broadcast_in_dim", scalar, shape=type_.shape, broadcast_dimensions=())
            self._splats[key] = scalar
        return self._splats[key]

    def _taken(self, whole: Value, number: int) -> Value:
        """One part of what `in_parts` describes."""
        shape = whole.type.shape[:-1]
        zeros, ones = (0,) * len(shape), (1,) * len(shape)
        part = self.emit(
            "slice",
            whole,
            start_indices=(*zeros, number),
            limit_indices=(*shape, number + 1),
            strides=(*ones, 1),
        )
        return self.emit("reshape", part, shape=shape)

    def split(self, whole: Value) -> Pair:
        """Both parts of what `in_parts` describes."""
        return self._taken(whole, 0), self._taken(whole, 1)

    def joined(self, pair: Pair, output: Value | None = None) -> Value:
        """Two parts as `in_parts` describes them: `output`, or a new value."""
        shape = pair[0].type.shape
        apart = tuple(self.emit("reshape", part, shape=(*shape, 1)) for part in pair)
        node = new_node(self.names, "concatenate", apart, {"dimension": len(shape)}, output, self._location())
        self.nodes.append(node)
        return node.output

    def fresh_parts(self, value: Value) -> tuple[Value, ...]:
        """New values for a result of a node with several: two for a complex one, else the value itself."""
        if not value.type.dtype.is_complex:
            return (value,)
        type_ = TensorType(value.type.shape, value.type.dtype.part)
        return tuple(Value(self.names.fresh(value.name + suffix), type_) for suffix in _SUFFIXES)

    def inside(self, region: Graph) -> Graph:
        """A region of a node in real numbers."""
        outer = {value: self.pairs[value] for value in region.captures if value in self.pairs}
        inner = _Splitter(region, self.names, outer)
        inner.replaced.update((value, self.replaced[value]) for value in region.captures if value in self.replaced)
        return inner.region()


Results = Sequence[Value | Pair]
_Rule = Callable[[_Splitter, Node], Results]


def _pair(z: Complex) -> Pair:
    return z.re.value, z.im.value


def _by_parts(to: _Splitter, node: Node) -> Results:
    """The same to both parts."""
    re, im = (to.emit(node.op, *(to.part(value, n) for value in node.inputs), **node.attrs) for n in (0, 1))
    return [(re, im)]


def _unary(to: _Splitter, node: Node) -> Results:
    return [_pair(complexformulas.UNARY[node.op](to.number(node.inputs[0])))]


def _binary(to: _Splitter, node: Node) -> Results:
    x, y = map(to.number, node.inputs)
    return [_pair(complexformulas.BINARY[node.op](x, y))]


def _abs(to: _Splitter, node: Node) -> Results:
    return [complexformulas.magnitude(to.number(node.inputs[0])).value]


def _compare(to: _Splitter, node: Node) -> Results:
    x, y = map(to.number, node.inputs)
    if node.attrs["direction"] == "EQ":
        return [(x.re.equals(y.re) & x.im.equals(y.im)).value]
    return [(x.re.differs(y.re) | x.im.differs(y.im)).value]


def _complex(to: _Splitter, node: Node) -> Results:
    re, im = map(to.current, node.inputs)
    return [(re, im)]


def _real(to: _Splitter, node: Node) -> Results:
    return [to.pairs[node.inputs[0]][0]]


def _imag(to: _Splitter, node: Node) -> Results:
    return [to.pairs[node.inputs[0]][1]]


def _convert(to: _Splitter, node: Node) -> Results:
    (value,), dtype = node.inputs, cast("DType", node.attrs["dtype"])
    if not dtype.is_complex:
        return [to.emit("convert", to.pairs[value][0], dtype=dtype)]
    if value in to.pairs:
        re, im = (to.emit("convert", part, dtype=dtype.part) for part in to.pairs[value])
        return [(re, im)]
    re = to.emit("convert", to.current(value), dtype=dtype.part)
    return [(re, to.splat(0, re))]


def _constant(to: _Splitter, node: Node) -> Results:
    array = node.attrs["value"]
    re, im = (
        to.emit("constant", value=np.ascontiguousarray(part).reshape(array.shape)) for part in (array.real, array.imag)
    )
    return [(re, im)]


def _bilinear(to: _Splitter, node: Node) -> Results:
    """Contractions: four real ones."""
    (a, b), (c, d) = (to.pairs[value] for value in node.inputs)

    def contracted(x: Value, y: Value) -> Real:
        return Real(to.emit(node.op, x, y, **node.attrs), to)

    return [_pair(Complex(contracted(a, c) - contracted(b, d), contracted(a, d) + contracted(b, c)))]


def _sort(to: _Splitter, node: Node) -> Results:
    """Keys are real; both parts of what goes with them are reordered."""
    outputs = [to.fresh_parts(value) for value in node.outputs]
    to.emit_many(node, to.flat(node.inputs), [value for made in outputs for value in made])
    return _results(outputs)


def _results(outputs: Sequence[tuple[Value, ...]]) -> Results:
    return [(made[0], made[1]) if len(made) == 2 else made[0] for made in outputs]


def _call(to: _Splitter, node: Node) -> Results:
    """A call has its complex operands and results whole, in the memory that it knows."""
    operands = [to.joined(to.pairs[value]) if value in to.pairs else to.current(value) for value in node.inputs]
    results: tuple[TensorType, ...] = node.attrs["results"]
    wholes = [Value(to.names.fresh(v.name), in_parts(v.type)) if v.type.dtype.is_complex else v for v in node.outputs]
    attrs = {
        **node.attrs,
        "results": tuple(map(in_parts, results)),
        "complex_operands": complex_places(node.inputs),
        "complex_results": complex_places(node.outputs),
    }
    to.emit_many(node, operands, wholes, attrs=attributes.normalized(lookup(node.op), attrs))
    return [to.split(whole) if whole is not value else value for whole, value in zip(wholes, node.outputs, strict=True)]


def _loop(to: _Splitter, node: Node) -> Results:
    """Loops and branches: each complex operand, result, and value of a region is two."""
    outputs = [to.fresh_parts(value) for value in node.outputs]
    regions = tuple(map(to.inside, node.regions))
    attrs = dict(node.attrs)
    if "carries" in attrs:
        attrs["carries"] = len(to.flat(node.inputs[: attrs["carries"]]))
    flat = [value for made in outputs for value in made]
    to.emit_many(node, to.flat(node.inputs), flat, regions=regions, attrs=attrs)
    return _results(outputs)


_MOVING = (
    *("reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "concatenate", "pad", "gather"),
    *("dynamic_slice", "dynamic_update_slice", "select", "reduce", "cumulative", "reduce_window", "scatter"),
    "optimization_barrier",
)
"""What treats both parts alike: chooses elements, or adds them up."""
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(complexformulas.UNARY, _unary),
    **dict.fromkeys(complexformulas.BINARY, _binary),
    **dict.fromkeys(_MOVING, _by_parts),
    "abs": _abs,
    "compare": _compare,
    "complex": _complex,
    "real": _real,
    "imag": _imag,
    "convert": _convert,
    "constant": _constant,
    "dot_general": _bilinear,
    "convolution": _bilinear,
    "sort": _sort,
    "custom_call": _call,
    **dict.fromkeys(("scan", "while", "if"), _loop),
}
