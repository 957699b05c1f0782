"""A random graph under construction: what the rules of random graphs pick from and add to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Value
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType

INPUT_BOUND = 2.0
"""Float inputs lie in -2..2."""
_LIMIT = 100.0
"""Floats of a larger possible magnitude are scaled down, those of 16 bits squashed by tanh: a rounding error must not
grow beyond what the size of an answer lets one expect."""


class Grower:
    """A graph under construction and, per float value, a bound of its magnitude."""

    def __init__(self, rng: np.random.Generator, dtype: DType, extents: Sequence[int], max_rank: int) -> None:
        self.rng = rng
        self.dtype = dtype
        """Of the floats that rules work on now."""
        self.extents = [int(n) for n in rng.choice(extents, 3)]
        self.max_rank = max_rank
        self.builder = GraphBuilder("random")
        self.values: dict[Value, float] = {}
        self.inputs: list[Value] = []
        self.used: set[Value] = set()
        self.input(self.shape(), dtype)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def below(self, count: int) -> int:
        return int(self.rng.integers(count))

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.below(len(items))]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        count = self.below(self.max_rank + 1) if rank is None else rank
        return tuple(self.one_of(self.extents) for _ in range(count))

    def input(self, shape: tuple[int, ...], dtype: DType) -> Value:
        value = self.builder.input(TensorType(shape, dtype), f"x{len(self.inputs)}")
        self.inputs.append(value)
        self.values[value] = INPUT_BOUND
        return value

    def pick(self, dtype: DType | None = None, shape: tuple[int, ...] | None = None, least_rank: int = 0) -> Value:
        """An existing value of that kind, the later the likelier; else a new input."""
        wanted = dtype or self.dtype
        found = [
            value
            for value in self.values
            if value.type.dtype == wanted and value.type.rank >= least_rank and shape in (None, value.type.shape)
        ]
        if not found or self.chance(0.1):
            rank = max(least_rank, self.below(self.max_rank + 1))
            return self.input(self.shape(rank) if shape is None else shape, wanted)
        return found[max(self.below(len(found)), self.below(len(found)))]

    def emit(self, op: str, inputs: Sequence[Value], bound: float, **attrs: Any) -> Value:
        """Add a node; a float that could become large is brought back."""
        self.used.update(inputs)
        value = self.builder.emit(op, inputs, **attrs)
        self.values[value] = bound
        if not value.type.dtype.is_float or bound <= _LIMIT:
            return value
        if value.type.dtype.bits == 16:
            return self.emit("tanh", [value], 1.0)
        return self.emit("multiply", [value, self.splat(1 / bound, value)], 1.0)

    def splat(self, number: float, like: Value) -> Value:
        """One number in the type of `like`."""
        constant = self.builder.constant(np.array(number, like.type.dtype.numpy))
        shape = like.type.shape
        return self.emit("broadcast_in_dim", [constant], abs(number), shape=shape, broadcast_dimensions=())

    def bound(self, value: Value) -> float:
        return self.values[value]

    def finish(self) -> Graph:
        """All values that nobody reads are outputs, and now and then one that somebody does."""
        made = [value for value in self.values if value not in self.inputs]
        outputs = [value for value in made if value not in self.used or self.chance(0.1)]
        return self.builder.finish(outputs)
