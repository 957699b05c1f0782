"""A function together with what its derivative takes over from it.

The derivative would compute the forward part again. Results of products, reductions and other costly work are handed on
in place of that; elementwise work and views are computed again, as the search does within a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Literal

from autofuse.jax.callee import Callee, like, merged, strong
from autofuse.jax.plain import Plain
from autofuse.lazydataclass import dataclass

_AGAIN = frozenset(
    (
        *("abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh"),
        *("bitcast_convert_type", "broadcast_in_dim", "cbrt", "ceil", "clamp", "clz", "complex", "concatenate"),
        *("conj", "convert_element_type", "copy", "copy_p", "cos", "cosh", "div", "dynamic_slice", "eq", "erf"),
        *("erf_inv", "erfc", "exp", "exp2", "expand_dims", "expm1", "floor", "gather", "ge", "gt", "imag"),
        *("integer_pow", "iota", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul"),
        *("ne", "neg", "nextafter", "not", "optimization_barrier", "or", "pad", "population_count", "pow"),
        *("real", "reduce_precision", "rem", "reshape", "rev", "round", "rsqrt", "select_n", "shift_left"),
        *("shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "slice", "split", "sqrt"),
        *("square", "squeeze", "stop_gradient", "sub", "tan", "tanh", "transpose", "xor"),
        *("random_bits", "random_fold_in", "random_seed", "random_split", "random_unwrap", "random_wrap"),
        *("threefry2x32"),
    )
)
"""JAX's operations that are computed again: elementwise work, views, and random bits, whose keys are no arrays."""


@dataclass(frozen=True, slots=True)
class Linearised:
    """A callee at a point: what computes its outputs with what is handed on, and the linear rest."""

    callee: Callee
    plain: Plain
    """Outputs, then what is handed on."""
    pushed: Callee
    """From what is handed on, and tangents of the inputs that move, to tangents of the outputs that are floats."""

    @property
    def hands_on(self) -> bool:
        """Whether something is handed on that is no input."""
        made = {id(out) for equation in self.plain.closed.jaxpr.eqns for out in equation.outvars}
        return any(id(out) in made for out in self._residuals)

    @property
    def _residuals(self) -> Sequence[Any]:
        return self.plain.closed.jaxpr.outvars[len(self.callee.outputs) :]

    def residuals(self, given: Sequence[Any]) -> list[Any]:
        """What is handed on, of the inputs, where all of that is inputs."""
        jaxpr, consts = self.plain.closed.jaxpr, self.plain.closed.consts
        known = zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True)
        values = {id(var): value for var, value in known}
        return [out.val if isinstance(out, Literal) else values[id(out)] for out in self._residuals]


def linearised(callee: Callee, moving: Sequence[int], floating: Sequence[int]) -> Linearised:
    """`moving`: inputs that have tangents; `floating`: outputs that are to have them. Traces the callee."""
    keeps = callee.planner.hands_on
    again = jax.checkpoint(callee.function, policy=_is_costly if keeps else None, prevent_cse=False)
    structures: list[Any] = []

    def forward(*points: Any) -> list[Any]:
        def moved(*those: Any) -> tuple[list[Any], Sequence[Any]]:
            results = again(*merged(points, moving, those))
            return [results[number] for number in floating], results

        _, pushed, results = jax.linearize(moved, *(points[number] for number in moving), has_aux=True)
        residuals, structure = jax.tree.flatten(pushed)
        structures.append(structure)
        return [*results, *residuals]

    forward.__name__ = forward.__qualname__ = callee.planner.name
    traced: Any = jax.jit(forward, keep_unused=True).trace(*map(like, callee.inputs))
    closed = traced.jaxpr
    residuals = [_plain(out.aval) for out in closed.jaxpr.outvars[len(callee.outputs) :]]
    (structure,) = structures
    count = len(residuals)

    def push(*given: Any) -> Sequence[Any]:
        return jax.tree.unflatten(structure, given[:count])(*given[count:])

    pushed = Callee(
        push,
        (*residuals, *(strong(callee.inputs[number]) for number in moving)),
        [strong(callee.outputs[number]) for number in floating],
        callee.planner,
        linear=frozenset(range(count, count + len(moving))),
    )
    return Linearised(callee, Plain(closed, traced, [False] * len(callee.inputs)), pushed)


def _is_costly(primitive: Any, *_types: Any, **_parameters: Any) -> bool:
    return primitive.name not in _AGAIN


def _plain(aval: Any) -> ShapedArray:
    return ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
