"""Where rules write nodes: one emitter for each graph or region under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType

TranslateBlock = Callable[[Any, "Emitter", Sequence[Value]], list[Value]]
"""From a block, the emitter of its nodes and the values of its arguments to the values that it returns."""
TranslateFunction = Callable[[str, "Emitter", Sequence[Value]], list[Value]]
"""The same of a function of the module, by its name."""
_VIEWS = frozenset(("broadcast_in_dim", "reshape", "transpose"))
"""JAX broadcasts a number to no dimensions before it gives it to a window."""


class Emitter:
    """Writes the nodes of one graph or region, and translates blocks and functions of the module into it."""

    def __init__(
        self,
        builder: GraphBuilder,
        block: TranslateBlock,
        function: TranslateFunction,
        numbers: dict[Value, Any] | None = None,
    ) -> None:
        """`numbers`: of the graph around a region."""
        self.builder = builder
        self._block = block
        self._function = function
        self._scalars: dict[tuple[DType, bytes], Value] = {}
        self._numbers: dict[Value, Any] = {} if numbers is None else numbers

    def emit(self, op: str, *operands: Value, **attrs: Any) -> Value:
        """Add a node with one result; a view of a number that is known is that number."""
        value = self.builder.emit(op, operands, **attrs)
        if op in _VIEWS and not value.type.shape:
            self._note_view(operands[0], value)
        return value

    def adopt(self, node: Node, operands: Sequence[Value], number: Any) -> Sequence[Value]:
        """Add a node of another graph on values of the same types; `number`: which its result is, if that is known."""
        results = self.builder.adopt(node, operands)
        if not operands and number is not None:
            self.note(results[0], number)
        elif node.op in _VIEWS and not results[0].type.shape:
            self._note_view(operands[0], results[0])
        return results

    def constant(self, array: NDArray[Any]) -> Value:
        """Add a constant."""
        value = self.builder.constant(array)
        if array.ndim == 0:
            self.note(value, array[()])
        return value

    def note(self, value: Value, number: Any) -> None:
        """Remember which number a scalar is."""
        self._numbers[value] = number

    def _note_view(self, operand: Value, value: Value) -> None:
        if not operand.type.shape and operand in self._numbers:
            self.note(value, self._numbers[operand])

    def number(self, value: Value) -> Any:
        """The number that a scalar is known to be; None if it is not known."""
        return self._numbers.get(value)

    def scalar(self, number: Any, dtype: DType) -> Value:
        """A number as a constant, once in a graph."""
        with np.errstate(all="ignore"):
            array = np.asarray(number).astype(dtype.numpy)
        key = (dtype, array.tobytes())
        if key not in self._scalars:
            self._scalars[key] = self.constant(array)
        return self._scalars[key]

    def full(self, number: Any, type_: TensorType) -> Value:
        """An array of one number."""
        return self.spread(self.scalar(number, type_.dtype), type_.shape)

    def spread(self, value: Value, shape: tuple[int, ...]) -> Value:
        """A scalar as an array of this shape; an array of it as it is."""
        if value.type.shape == shape:
            return value
        return self.emit("broadcast_in_dim", value, shape=shape, broadcast_dimensions=())

    def along(self, value: Value, axis: int, shape: tuple[int, ...]) -> Value:
        """A vector along one dimension of an array of this shape."""
        return self.emit("broadcast_in_dim", value, shape=shape, broadcast_dimensions=(axis,))

    def converted(self, value: Value, dtype: DType) -> Value:
        """A value of another dtype."""
        return value if value.type.dtype == dtype else self.emit("convert", value, dtype=dtype)

    def region(self, name: str, types: Sequence[TensorType]) -> tuple[Emitter, list[Value]]:
        """The emitter of a region of this graph, and the region's inputs."""
        builder = GraphBuilder(name, self.builder)
        builder.location = self.builder.location
        inputs = [builder.input(type_, f"{name}_{number}") for number, type_ in enumerate(types)]
        return Emitter(builder, self._block, self._function, self._numbers), inputs

    def apart(self, name: str, types: Sequence[TensorType]) -> tuple[Emitter, list[Value]]:
        """The emitter of a graph of its own, and its inputs."""
        builder = GraphBuilder(name)
        inputs = [builder.input(type_, f"{name}_{number}") for number, type_ in enumerate(types)]
        return Emitter(builder, self._block, self._function), inputs

    def translated(self, name: str, block: Any, types: Sequence[TensorType]) -> Graph:
        """A block as a region that takes values of these types. It may read values of this graph."""
        emitter, inputs = self.region(name, types)
        return emitter.builder.finish(emitter.block(block, inputs))

    def block(self, block: Any, arguments: Sequence[Value]) -> list[Value]:
        """Translate a block here: the values that it returns."""
        return self._block(block, self, arguments)

    def function(self, name: str, arguments: Sequence[Value]) -> list[Value]:
        """Translate a function of the module here: the values that it returns."""
        return self._function(name, self, arguments)
