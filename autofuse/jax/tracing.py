"""A function of JAX's, called while JAX traces: its arrays go through a plan, everything else stays around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.core import ShapedArray, Tracer
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from autofuse.jax.arguments import Chosen
from autofuse.jax.callee import Callee
from autofuse.jax.planner import Planner
from autofuse.jax.primitive import call
from autofuse.jax.refusals import refusal

source_info_util.register_exclusion(str(Path(__file__).parent))  # operations are of the lines that call this package
_MOST_CONSTANT_BYTES = 16 << 10
"""Larger arrays that a function reads from outside are arguments of its plan, whose values may change."""


def planned(
    function: Callable[..., Any], planner: Planner, donated: Chosen, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """What `function(*args, **kwargs)` returns, by a plan. To be called where JAX traces.

    `donated`: arguments whose memory the plan may use for results.
    """
    pairs, structure = jax.tree.flatten_with_path((tuple(args), dict(kwargs)))
    leaves = [leaf for _, leaf in pairs]
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
    given = [_opened(leaves[place]) for place in places]
    kinds = [_key_kind(leaves[place]) for place in places]
    given_away = donated.leaves([path for path, _ in pairs])
    results = _Results()

    def flat(*arrays: Any) -> list[Any]:
        merged = list(leaves)
        for place, array, kind in zip(places, arrays, kinds, strict=True):
            merged[place] = _closed(array, kind)
        positional, by_name = jax.tree.unflatten(structure, merged)
        return results.taken(function(*positional, **by_name))

    flat.__name__ = flat.__qualname__ = planner.name
    traced: Any = jax.jit(flat, keep_unused=True).trace(*given)
    closed = traced.jaxpr
    if len(closed.jaxpr.invars) != len(given):  # it reads values of traces around it: here they are constants
        closed = jax.make_jaxpr(flat)(*given)
    if closed.effects:
        error = refusal(closed, planner.name)
        if planner.on_unsupported != "xla":
            raise error
        planner.warn_once(error)
        return results.put_back(jaxpr_as_fun(closed)(*given))
    plain = _Plain(closed, traced, [given_away[place] for place in places])
    return results.put_back(plain.called(planner, given))


class _Results:
    """The structure of what the function returns."""

    def taken(self, returned: Any) -> list[Any]:
        """The arrays among the results."""
        leaves, self._structure = jax.tree.flatten(returned)
        self._kinds = [_key_kind(leaf) for leaf in leaves]
        return [_opened(leaf) for leaf in leaves]

    def put_back(self, arrays: Sequence[Any]) -> Any:
        """The results, from arrays."""
        return jax.tree.unflatten(self._structure, map(_closed, arrays, self._kinds))


class _Plain:
    """A jaxpr as a callee: without inputs that nobody reads, and results that are inputs or stand twice."""

    def __init__(self, closed: Any, traced: Any, donated: Sequence[bool]) -> None:
        """`donated`: by input."""
        jaxpr = closed.jaxpr
        self.closed, self.traced = closed, traced
        used = {id(atom) for equation in jaxpr.eqns for atom in equation.invars}
        made = {id(out) for equation in jaxpr.eqns for out in equation.outvars}
        self.read = [number for number, var in enumerate(jaxpr.invars) if id(var) in used]
        self.outside = [number for number, value in enumerate(closed.consts) if _is_operand(value)]
        wanted = {id(out): out for out in jaxpr.outvars if id(out) in made}
        self.pairs = _pairs([(n, jaxpr.invars[n]) for n in self.read if donated[n]], list(wanted.values()))
        last = {id(out) for _, out in self.pairs}
        self.results = [out for key, out in wanted.items() if key not in last] + [out for _, out in self.pairs]

    def called(self, planner: Planner, given: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs, what has to be computed by a plan."""
        jaxpr, consts = self.closed.jaxpr, self.closed.consts
        values = {
            id(var): value for var, value in zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True)
        }
        if self.results:
            operands = [*(consts[n] for n in self.outside), *(given[n] for n in self.read)]
            for out, value in zip(self.results, call(self._callee(planner), operands), strict=True):
                values[id(out)] = value
        return [out.val if isinstance(out, Literal) else values[id(out)] for out in jaxpr.outvars]

    def _callee(self, planner: Planner) -> Callee:
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
        return Callee(jaxpr_as_fun(closed), *types, planner, donated=donated, traced=traced)

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


def _key_kind(value: Any) -> Any:
    """The generator of a typed random key; None for any other array."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
        return None
    return jax.random.key_impl(value)


def _opened(value: Any) -> Any:
    """A typed random key as its numbers."""
    return value if _key_kind(value) is None else jax.random.key_data(value)


def _closed(value: Any, kind: Any) -> Any:
    """The reverse."""
    return value if kind is None else jax.random.wrap_key_data(value, impl=kind)
