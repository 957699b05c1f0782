"""A program as XLA sees it before fusion: one instruction for everything, views and constants included.

What passes before fusion make of a program is modelled as far as it decides kernels:
- a reshape, a transpose that moves extents of 1 only and a broadcast that repeats nothing are bitcasts;
- a repeated constant is a broadcast of a scalar, and equal scalars are one instruction;
- reductions read their initial value; `argmin` and `argmax` are reductions of a pair;
- a running reduction is a reduce-window;
- an op with several results has a get-tuple-element for each;
- a float divided by a constant, or by what exp, power, sqrt or rsqrt give, is a product, which is cheap; an exponential
  or power that others read too is computed once more for it, of the negated exponent;
- a product that reduces nothing is a multiplication, and where `Rewrites` says so one with a vector a reduction of one;
- a reduction of a transpose reduces other dimensions, where that needs no transpose of its result;
- and what `Rewrites` names.
Layouts are row-major throughout: other transposes move data. (XLA, service/algebraic_simplifier.cc, for the rewriting.)

Not modelled are other simplifications, 16-bit floats computed in f32, and the expansion of single ops. A `logistic`, an
`exp2`, a `log2` are one instruction each, as expensive as their expansion.
Opaque ops are custom calls, `scatter` too: no library call takes operations in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.fusion.candidate import is_inlined
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.types import TensorType, of_array
from autofuse.lazydataclass import dataclass
from autofuse.passes.matching import as_number
from autofuse.search.rules.graphqueries import stands_alone
from autofuse.search.rules.hlo_rewrites import Factor, multiplication, product_with_vector
from autofuse.search.rules.xla.hlo import Instruction


@dataclass(frozen=True, slots=True)
class Rewrites:
    """What only some versions and backends make of a program before fusion."""

    split_above: int | None = None
    """A reduction over more elements of a dimension is a reduce-window and a small reduction; None: it is not."""
    reciprocals: bool = False
    """Whether a float divided by a broadcast array is a product with the broadcast of the array's reciprocal."""
    vectors: bool = False
    """Whether a product with a vector is a multiplication and a reduction."""


NO_REWRITES = Rewrites()


def translate(graph: Graph, rewrites: Rewrites = NO_REWRITES) -> Instruction:
    """The program's root, which reads everything that is returned."""
    reader = _Reader(graph, rewrites)
    live = frozenset(_live(graph))
    for value in graph.inputs:
        reader.of[value] = reader.add("parameter", (), value.type)
    for node in graph.nodes:
        if node in live:
            reader.read(node)
    results = tuple(reader.of[value] for value in graph.outputs)
    if len(results) == 1:
        return results[0]
    return reader.add("tuple", results, *(v.type for v in graph.outputs))


class _Reader:
    """Makes instructions, in order."""

    def __init__(self, graph: Graph, rewrites: Rewrites) -> None:
        self.of: dict[Value, Instruction] = {}
        self._graph = graph
        self._rewrites = rewrites
        self._count = 0
        self._scalars: dict[tuple[str, bytes], Instruction] = {}
        self._reciprocals: dict[Instruction, Instruction] = {}
        """By broadcast, the broadcast of the reciprocal."""
        self._inverses: dict[Instruction, Instruction] = {}
        """By exponential or power, the one of the negated exponent."""

    def add(
        self,
        opcode: str,
        operands: tuple[Instruction, ...],
        *types: TensorType,
        node: Node | None = None,
        axes: tuple[int, ...] = (),
        scalar: float | int | None = None,
    ) -> Instruction:
        """One more instruction."""
        self._count += 1
        return Instruction(self._count, opcode, operands, types, node, axes, scalar)

    def read(self, node: Node) -> None:
        """Find the instructions of a node."""
        if stands_alone(node):
            self._read_call(node)
        else:
            self.of[node.output] = _SPECIAL.get(node.op, _Reader.plain)(self, node)

    def _read_call(self, node: Node) -> None:
        reads = (*node.inputs, *(value for region in node.regions for value in region.captures))
        operands = tuple(self.of[value] for value in reads)
        call = self.add("custom_call", operands, *(value.type for value in node.outputs), node=node)
        for value in node.outputs:
            self.of[value] = call if len(node.outputs) == 1 else self.add("get_tuple_element", (call,), value.type)

    # ---- constants and views -------------------------------------------------------------------------------------

    def constant(self, node: Node) -> Instruction:
        array: NDArray[Any] = node.attrs["value"]
        if not is_inlined(node):
            return self.add("constant", (), node.output.type, node=node)
        scalar = self._scalar(array.reshape(-1)[:1].reshape(()))
        if not array.shape:
            return scalar
        return self.add("broadcast", (scalar,), node.output.type, node=node)

    def _scalar(self, array: NDArray[Any]) -> Instruction:
        key = array.dtype.name, array.tobytes()
        if key not in self._scalars:
            self._scalars[key] = self.add("constant", (), of_array(array), scalar=as_number(array))
        return self._scalars[key]

    def _initial(self, combiner: str, dtype: DType) -> Instruction:
        with np.errstate(all="ignore"):
            return self._scalar(np.array(combiner_identity(combiner, dtype)).astype(dtype.numpy))

    def iota(self, node: Node) -> Instruction:
        return self.add("iota", (), node.output.type, node=node)

    def _view(self, opcode: str, node: Node) -> Instruction:
        return self.add(opcode, (self.of[node.inputs[0]],), node.output.type, node=node)

    def broadcast(self, node: Node) -> Instruction:
        same = node.output.type.size == node.inputs[0].type.size
        return self._view(
            "bitcast" if same and _is_increasing(node.attrs["broadcast_dimensions"]) else "broadcast", node
        )

    def reshape(self, node: Node) -> Instruction:
        return self._view("bitcast", node)

    def transpose(self, node: Node) -> Instruction:
        shape = node.inputs[0].type.shape
        moved = not _is_increasing(axis for axis in node.attrs["permutation"] if shape[axis] != 1)
        return self._view("transpose" if moved else "bitcast", node)

    # ---- elementwise ---------------------------------------------------------------------------------------------

    def plain(self, node: Node) -> Instruction:
        return self.add(node.op, tuple(self.of[value] for value in node.inputs), node.output.type, node=node)

    def product(self, node: Node) -> Instruction:
        """A call, a multiplication, or a multiplication and a reduction, which is then a view of it to our groups."""
        operands = tuple(self.of[value] for value in node.inputs)
        form = multiplication(node) or (product_with_vector(node) if self._rewrites.vectors else None)
        if form is None:
            return self.add("dot", operands, node.output.type, node=node)
        dtype = node.output.type.dtype
        pairs = zip(operands, form.factors, strict=True)
        factors = tuple(self._repeated(x, factor, form.shape) for x, factor in pairs)
        made = self.add("multiply", factors, TensorType(form.shape, dtype), node=node)
        if not form.reduced:
            return made
        shape = tuple(extent for axis, extent in enumerate(form.shape) if axis not in form.reduced)
        made = self.add("reduce", (made, self._initial("add", dtype)), TensorType(shape, dtype), axes=form.reduced)
        return made if made.type == node.output.type else self.add("bitcast", (made,), node.output.type)

    def _repeated(self, x: Instruction, factor: Factor, shape: tuple[int, ...]) -> Instruction:
        """An operand as it is multiplied."""
        if x.type.shape == shape and factor.places == tuple(range(len(shape))):
            return x
        if x.type.shape != factor.kept:
            x = self.add("bitcast", (x,), TensorType(factor.kept, x.type.dtype))
        opcode = "bitcast" if x.size == prod(shape) and _is_increasing(factor.places) else "broadcast"
        return self.add(opcode, (x,), TensorType(shape, x.type.dtype))

    def divide(self, node: Node) -> Instruction:
        left, right = (self.of[value] for value in node.inputs)
        if not node.output.type.dtype.is_float:
            return self.plain(node)
        if self._inverts(node, left, right):
            return self.add("multiply", (left, self._inverse(node.inputs[1], right)), node.output.type, node=node)
        if self._rewrites.reciprocals and right.opcode == "broadcast" and right.operands[0].size > 1:
            return self.add("multiply", (left, self._reciprocal(right)), node.output.type, node=node)
        return self.plain(node)

    def _inverts(self, node: Node, left: Instruction, right: Instruction) -> bool:
        """Whether the inverse of a divisor costs no division."""
        source = right.operands[0] if right.opcode == "broadcast" else right
        if source.opcode == "constant":
            return left.opcode != "constant"
        once = len(self._graph.users[node.inputs[1]]) == 1 and node.inputs[1] not in self._graph.outputs
        return right.opcode in ("exp", "power") or (right.opcode in ("sqrt", "rsqrt") and once)

    def _inverse(self, value: Value, divisor: Instruction) -> Instruction:
        """The factor in place of a divisor. One that only this division reads is replaced, and stands for itself."""
        shared = len(self._graph.users[value]) > 1 or value in self._graph.outputs
        if not shared or divisor.opcode not in ("exp", "power"):
            return divisor
        if divisor not in self._inverses:
            exponent = divisor.operands[-1]
            operands = (*divisor.operands[:-1], self.add("negation", (exponent,), *exponent.types))
            self._inverses[divisor] = self.add(divisor.opcode, operands, *divisor.types, node=divisor.node)
        return self._inverses[divisor]

    def _reciprocal(self, repeated: Instruction) -> Instruction:
        if repeated not in self._reciprocals:
            source = repeated.operands[0]
            inverse = self.add("reciprocal", (source,), *source.types)
            self._reciprocals[repeated] = self.add("broadcast", (inverse,), *repeated.types)
        return self._reciprocals[repeated]

    # ---- reductions ----------------------------------------------------------------------------------------------

    def reduction(self, node: Node) -> Instruction:
        source, axes = self._untransposed(node)
        initial = self._initial(node.attrs["combiner"], node.output.type.dtype)
        if self._rewrites.split_above is not None:
            source = self._windowed(source, axes, initial, self._rewrites.split_above)
        return self.add("reduce", (source, initial), node.output.type, node=node, axes=axes)

    def _untransposed(self, node: Node) -> tuple[Instruction, tuple[int, ...]]:
        """What a reduction reduces, and over which dimensions, a transpose looked through if it may be."""
        source, axes = self.of[node.inputs[0]], tuple(node.attrs["dimensions"])
        if source.opcode != "transpose" or source.node is None:
            return source, axes
        permutation = source.node.attrs["permutation"]
        kept = [permutation[axis] for axis in range(source.type.rank) if axis not in axes]
        is_free = len(kept) < 2 or all(user.op == "reduce" for user in self._graph.users[node.inputs[0]])
        if not is_free or not _is_increasing(kept):
            return source, axes
        return source.operands[0], tuple(permutation[axis] for axis in axes)

    def _windowed(self, source: Instruction, axes: tuple[int, ...], initial: Instruction, most: int) -> Instruction:
        """The reduce-windows of a tree of reductions, as one; none if the reduction is short."""
        left = list(source.type.shape)
        if all(left[axis] <= most for axis in axes):
            return source
        while any(left[axis] > most for axis in axes):
            for axis in axes:
                left[axis] = -(-left[axis] // max(1, min(left[axis], most)))
        return self.add("reduce_window", (source, initial), TensorType(tuple(left), source.type.dtype))

    def window(self, node: Node) -> Instruction:
        """A reduce-window, or a running reduction, which is one with a window as long as its axis."""
        initial = self._initial(node.attrs["combiner"], node.output.type.dtype)
        return self.add("reduce_window", (self.of[node.inputs[0]], initial), node.output.type, node=node)

    def position(self, node: Node) -> Instruction:
        """`argmin`, `argmax`: a reduction of elements and positions, of which the position is taken."""
        source, result = self.of[node.inputs[0]], node.output.type
        positions = self.add("iota", (), TensorType(source.type.shape, result.dtype))
        element = TensorType(result.shape, source.type.dtype)
        combiner = "minimum" if node.op == "argmin" else "maximum"
        initial = self._initial(combiner, element.dtype), self._initial("add", result.dtype)
        axes = (node.attrs["dimension"],)
        reduction = self.add("reduce", (source, positions, *initial), element, result, node=node, axes=axes)
        return self.add("get_tuple_element", (reduction,), result)


_SPECIAL: Mapping[str, Callable[[_Reader, Node], Instruction]] = {
    "constant": _Reader.constant,
    "iota": _Reader.iota,
    "broadcast_in_dim": _Reader.broadcast,
    "reshape": _Reader.reshape,
    "transpose": _Reader.transpose,
    "divide": _Reader.divide,
    "dot_general": _Reader.product,
    "reduce": _Reader.reduction,
    "reduce_window": _Reader.window,
    "cumulative": _Reader.window,
    "argmin": _Reader.position,
    "argmax": _Reader.position,
}
"""Ops that are not simply an instruction of the same name."""


def _is_increasing(axes: Iterable[int]) -> bool:
    listed = list(axes)
    return listed == sorted(listed)


def _live(graph: Graph) -> Iterator[Node]:
    """The nodes that outputs are computed from."""
    wanted = set(graph.outputs)
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(graph.reads(node))
            yield node
