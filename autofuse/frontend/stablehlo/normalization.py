"""Rules of batch normalisation, by the specification's formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class _Features:
    """One array, and which of its dimensions counts features."""

    x: Value
    axis: int
    epsilon: float
    emitter: Emitter

    @property
    def count(self) -> int:
        """Elements of each feature."""
        extent = self.x.type.shape[self.axis]
        return self.x.type.size // extent if extent else 0

    def of(self, op: str, *operands: Value, **attrs: Any) -> Value:
        return self.emitter.emit(op, *operands, **attrs)

    def along(self, vector: Value) -> Value:
        """A number for each feature, as an array."""
        return self.emitter.along(vector, self.axis, self.x.type.shape)

    def summed(self, value: Value) -> Value:
        """The sum over all but the features."""
        others = tuple(axis for axis in range(value.type.rank) if axis != self.axis)
        return self.of("reduce", value, dimensions=others, combiner="add")

    def mean(self, value: Value) -> Value:
        total = self.summed(value)
        return self.of("divide", total, self.emitter.full(self.count, total.type))

    def deviation(self, variance: Value) -> Value:
        """The square root of the variance and epsilon."""
        return self.of("sqrt", self.of("add", variance, self.emitter.full(self.epsilon, variance.type)))


def _features(operation: Operation, emitter: Emitter) -> _Features:
    epsilon = operation.number("epsilon")
    return _Features(operation.operands[0], operation.integer("feature_index"), epsilon, emitter)


def _normalised(found: _Features, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
    centred = found.of("subtract", found.x, found.along(mean))
    unit = found.of("divide", centred, found.along(found.deviation(variance)))
    return found.of("add", found.of("multiply", unit, found.along(scale)), found.along(offset))


def _inference(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    _, scale, offset, mean, variance = operation.operands
    return (_normalised(_features(operation, emitter), scale, offset, mean, variance),)


def _training(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    found = _features(operation, emitter)
    _, scale, offset = operation.operands
    mean = found.mean(found.x)
    centred = found.of("subtract", found.x, found.along(mean))
    variance = found.mean(found.of("multiply", centred, centred))
    return _normalised(found, scale, offset, mean, variance), mean, variance


def _grad(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    found = _features(operation, emitter)
    _, scale, mean, variance, grad = operation.operands
    deviation = found.along(found.deviation(variance))
    centred = found.of("subtract", found.x, found.along(mean))
    unit = found.of("divide", centred, deviation)
    grad_scale, grad_offset = found.summed(found.of("multiply", grad, unit)), found.summed(grad)
    count = emitter.full(found.count, grad.type)
    apart = found.of("subtract", found.of("multiply", count, grad), found.along(grad_offset))
    apart = found.of("subtract", apart, found.of("multiply", unit, found.along(grad_scale)))
    factor = found.of("divide", found.of("divide", found.along(scale), deviation), count)
    return found.of("multiply", factor, apart), grad_scale, grad_offset


RULES: Mapping[str, Rule] = {
    "stablehlo.batch_norm_grad": _grad,
    "stablehlo.batch_norm_inference": _inference,
    "stablehlo.batch_norm_training": _training,
}
