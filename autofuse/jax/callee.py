"""What a plan is made of: a function of arrays, and the functions that JAX's transformations make of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.core import ShapedArray

if TYPE_CHECKING:
    from autofuse.jax.planner import Planner

Function = Callable[..., Sequence[Any]]


class Callee:
    """A function of arrays that one plan computes, in one call of JAX's. Equal to itself only.

    Neither it nor what is made of it here is traced before it is lowered: most of it never is.
    """

    def __init__(
        self,
        function: Function,
        inputs: Sequence[ShapedArray],
        outputs: Sequence[ShapedArray],
        planner: Planner,
        *,
        linear: frozenset[int] = frozenset(),
        donated: tuple[tuple[int, int], ...] = (),
        traced: Any = None,
        names: Sequence[str | None] = (),
    ) -> None:
        """`function`: from arrays of the types `inputs`, one by one, to a sequence of arrays of the types `outputs`.

        `linear`: the inputs in which it is linear, all together. `donated`: (input, output) pairs of equal types: the
        output may be written into the memory of the input. `traced`: a `jax.stages.Traced` of the function.
        `names`: of the inputs, for those who read the plan; none where nobody knows them.
        """
        self.function, self.inputs, self.outputs, self.planner = function, tuple(inputs), tuple(outputs), planner
        self.linear, self.donated = linear, donated
        self.names = tuple(names)
        self._traced = traced
        self.key: Hashable = None
        """What its plan is known by, once it was lowered."""

    def lowered(self) -> Any:
        """The module of the function for CPUs, as `jax.stages.Lowered`. The first use forgets the trace."""
        traced, self._traced = self._traced, None
        if traced is None:
            traced = jax.jit(_named(self.function, self.planner.name), keep_unused=True).trace(*map(like, self.inputs))
        return traced.lower(lowering_platforms=("cpu",))

    def transposed(self, unknown: Sequence[int], pulled: Sequence[int]) -> Callee:
        """From the inputs but `unknown`, and cotangents of the outputs `pulled`, to cotangents of the unknown ones.

        The function is linear in the unknown inputs. What it adds to that is left out.
        """
        known = [number for number in range(len(self.inputs)) if number not in unknown]

        def cotangents(*given: Any) -> Sequence[Any]:
            def pushed(*those: Any) -> list[Any]:
                places = [None] * len(self.inputs)
                results = self.function(*merged(merged(places, known, given[: len(known)]), unknown, those))
                return [results[number] for number in pulled]

            pull = jax.linear_transpose(pushed, *(like(self.inputs[number]) for number in unknown))
            return pull(list(given[len(known) :]))

        return Callee(
            cotangents,
            [*(self.inputs[number] for number in known), *(strong(self.outputs[number]) for number in pulled)],
            [strong(self.inputs[number]) for number in unknown],
            self.planner,
            linear=frozenset(range(len(known), len(known) + len(pulled))),
        )

    def batched(self, inputs: Sequence[ShapedArray], axes: Sequence[int | None], size: int) -> Callee:
        """Over a batch of inputs of other types: those with an axis have one more, of `size`. So have all outputs."""
        return Callee(
            jax.vmap(self.function, in_axes=tuple(axes), out_axes=0),
            inputs,
            [ShapedArray((size, *output.shape), output.dtype, weak_type=output.weak_type) for output in self.outputs],
            self.planner,
            linear=self.linear,
            names=self.names,
        )


def merged(values: Sequence[Any], places: Sequence[int], others: Sequence[Any]) -> list[Any]:
    """The values, with others in some places."""
    merged = list(values)
    for place, other in zip(places, others, strict=True):
        merged[place] = other
    return merged


def strong(aval: ShapedArray) -> ShapedArray:
    """The type of tangents."""
    return ShapedArray(aval.shape, aval.dtype)


def like(aval: ShapedArray) -> jax.ShapeDtypeStruct:
    """What stands for an array of a type where JAX traces."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _named(function: Function, name: str) -> Function:
    def named(*given: Any) -> Sequence[Any]:
        return function(*given)

    named.__name__ = named.__qualname__ = name
    return named
