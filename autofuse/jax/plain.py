"""A traced function without what needs no plan: inputs that nobody reads, results that are inputs or stand twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from autofuse.jax.callee import Callee

if TYPE_CHECKING:
    from autofuse.jax.planner import Planner

_MOST_CONSTANT_BYTES = 16 << 10
"""Larger arrays that a function reads from outside are arguments of its plan, whose values may change."""


class Plain:
    """A jaxpr as a callee: without inputs that nobody reads, and results that are inputs or stand twice."""

    def __init__(self, closed: Any, traced: Any, donated: Sequence[bool], names: Sequence[str | None] = ()) -> None:
        """`donated`, `names`: by input."""
        jaxpr = closed.jaxpr
        self.closed, self.traced, self.names = closed, traced, names
        used = {id(atom) for equation in jaxpr.eqns for atom in equation.invars}
        made = {id(out) for equation in jaxpr.eqns for out in equation.outvars}
        self.read = [number for number, var in enumerate(jaxpr.invars) if id(var) in used]
        self.outside = [number for number, value in enumerate(closed.consts) if _is_operand(value)]
        wanted = {id(out): out for out in jaxpr.outvars if id(out) in made}
        self.pairs = _pairs([(n, jaxpr.invars[n]) for n in self.read if donated[n]], list(wanted.values()))
        last = {id(out) for _, out in self.pairs}
        self.results = [out for key, out in wanted.items() if key not in last] + [out for _, out in self.pairs]

    def operands(self, given: Sequence[Any]) -> list[Any]:
        """Those of the callee, for these inputs."""
        return [*(self.closed.consts[n] for n in self.outside), *(given[n] for n in self.read)]

    def outputs(self, given: Sequence[Any], computed: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs, of which the callee has `computed` what is to be computed."""
        jaxpr, consts = self.closed.jaxpr, self.closed.consts
        values = {
            id(var): value for var, value in zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True)
        }
        values.update((id(out), value) for out, value in zip(self.results, computed, strict=True))
        return [out.val if isinstance(out, Literal) else values[id(out)] for out in jaxpr.outvars]

    def callee(self, planner: Planner) -> Callee:
        """What computes `results` of the operands."""
        jaxpr = self.closed.jaxpr
        inputs = [*(jaxpr.constvars[n] for n in self.outside), *(jaxpr.invars[n] for n in self.read)]
        numbers = {id(var): number for number, var in enumerate(inputs)}
        first = len(self.results) - len(self.pairs)
        donated = tuple((numbers[id(var)], first + number) for number, (var, _) in enumerate(self.pairs))
        same = (
            not self.outside
            and self.closed is self.traced.jaxpr
            and len(self.read) == len(jaxpr.invars)
            and self._same_results()
        )
        closed = self.closed if same else self._reduced(inputs)
        types = [_plain(var.aval) for var in inputs], [_plain(out.aval) for out in self.results]
        traced = self.traced if same else None
        names = (*(None for _ in self.outside), *(self.names[n] for n in self.read)) if self.names else ()
        return Callee(jaxpr_as_fun(closed), *types, planner, donated=donated, traced=traced, names=names)

    def _same_results(self) -> bool:
        outs = self.closed.jaxpr.outvars
        return len(outs) == len(self.results) and all(map(lambda a, b: a is b, outs, self.results))

    def _reduced(self, inputs: Sequence[Any]) -> ClosedJaxpr:
        jaxpr = self.closed.jaxpr
        kept = [n for n in range(len(jaxpr.constvars)) if n not in self.outside]
        smaller = jaxpr.replace(
            constvars=[jaxpr.constvars[n] for n in kept],
            invars=list(inputs),
            outvars=list(self.results),
            debug_info=jaxpr.debug_info.with_unknown_names(),
        )
        return ClosedJaxpr(smaller, [self.closed.consts[n] for n in kept])


def _pairs(donated: Sequence[tuple[int, Any]], results: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Donated inputs, by number, and for each the first result of its type that no other one has."""
    free = list(results)
    pairs: list[tuple[Any, Any]] = []
    for _, var in donated:
        fits = [out for out in free if (out.aval.shape, out.aval.dtype) == (var.aval.shape, var.aval.dtype)]
        if fits:
            free = [out for out in free if out is not fits[0]]
            pairs.append((var, fits[0]))
    return pairs


def _is_operand(value: Any) -> bool:
    """Whether an array from outside goes into the plan as an argument."""
    return isinstance(value, Tracer) or value.nbytes > _MOST_CONSTANT_BYTES


def _plain(aval: Any) -> ShapedArray:
    return ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)
