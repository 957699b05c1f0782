"""A function of JAX's, called while JAX traces: its arrays go through a plan, everything else stays around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.extend import source_info_util
from jax.extend.core import jaxpr_as_fun

from autofuse.jax.arguments import Chosen, leaf_names
from autofuse.jax.plain import Plain
from autofuse.jax.planner import Planner
from autofuse.jax.primitive import call
from autofuse.jax.refusals import refusal

source_info_util.register_exclusion(str(Path(__file__).parent))  # operations are of the lines that call this package


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
    paths = [path for path, _ in pairs]
    given_away, names = donated.leaves(paths), leaf_names(function, paths)
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
    plain = Plain(closed, traced, [given_away[place] for place in places], [names[place] for place in places])
    computed = call(plain.callee(planner), plain.operands(given)) if plain.results else []
    return results.put_back(plain.outputs(given, computed))


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
