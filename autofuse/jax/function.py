"""Functions of JAX's whose calls run plans."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any

import jax
from jax.core import Tracer, eval_jaxpr

from autofuse.api.plan import Plan
from autofuse.errors import ArgumentError
from autofuse.jax.arguments import chosen
from autofuse.jax.callee import Callee
from autofuse.jax.lowering import taking_apart
from autofuse.jax.planner import Planner
from autofuse.jax.primitive import call_p
from autofuse.jax.tracing import planned


class JaxFunction:
    """A compiled function of `jax.Array`s. JAX tells its calls apart, as it does for `jax.jit`, and runs them.

    It may be called from several threads, and inside functions that JAX transforms.
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]
    """Run the plan for these arguments, made at the first such call. Raises ArgumentError for a deleted array.

    Python looks for it on the class, where the slot hands out what the object has: no frame of Python's is made.
    """

    def __init__(self, function: Callable[..., Any], planner: Planner, options: Mapping[str, Any]) -> None:
        """`options`: those of `jax.jit`."""
        functools.update_wrapper(self, function)
        self.function = function
        self.planner = planner
        donated = chosen(function, options.get("donate_argnums"), options.get("donate_argnames"))
        self._static = chosen(function, options.get("static_argnums"), options.get("static_argnames"))

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            return planned(function, planner, donated, args, kwargs)

        self._jitted: Any = jax.jit(traced, **options)
        self.__call__ = _first(self._jitted, planner, weakref.ref(self))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The function as a method: its object is an argument, of a type that JAX knows, or static."""
        return self if instance is None else MethodType(self, instance)

    def plan(self, /, *args: Any, **kwargs: Any) -> Plan:
        """The plan that a call with these arguments runs; a `jax.ShapeDtypeStruct` may stand for each array.

        The plan takes the arrays that are read, one by one, as NumPy's. Raises ArgumentError where there is nothing to
        compute, or JAX computes it.
        """
        callee, _ = self.callee(args, kwargs)
        with taking_apart():
            return self.planner.plan(callee)

    def callee(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Callee, Callable[[], list[Any]]]:
        """What a call of these arguments plans, and what computes its operands. Raises ArgumentError if nothing."""
        closed = self._jitted.trace(*args, **kwargs).jaxpr
        jaxpr, leaves = closed.jaxpr, self._static.without(args, kwargs)
        place = next((n for n, equation in enumerate(jaxpr.eqns) if equation.primitive is call_p), None)
        if place is None:
            raise ArgumentError(f"{self.planner.name}: these arguments have no plan: JAX computes all that there is")
        equation, unnamed = jaxpr.eqns[place], jaxpr.debug_info.with_unknown_names()
        before = jaxpr.replace(eqns=jaxpr.eqns[:place], outvars=list(equation.invars), debug_info=unnamed)
        return equation.params["callee"], lambda: eval_jaxpr(before, closed.consts, *leaves)

    def lower(self, /, *args: Any, **kwargs: Any) -> Any:
        """As of a function of `jax.jit`'s: the module that calls the plan."""
        return self._jitted.lower(*args, **kwargs)

    def trace(self, /, *args: Any, **kwargs: Any) -> Any:
        """As of a function of `jax.jit`'s."""
        return self._jitted.trace(*args, **kwargs)

    def eval_shape(self, /, *args: Any, **kwargs: Any) -> Any:
        """As of a function of `jax.jit`'s: types of the results, with nothing planned."""
        return self._jitted.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget what was compiled."""
        self._jitted.clear_cache()

    def __repr__(self) -> str:
        return f"<autofuse.jax function {self.planner.name}>"


def _first(jitted: Callable[..., Any], planner: Planner, place: weakref.ref[JaxFunction]) -> Callable[..., Any]:
    """What calls a function until a plan is there. Then native code takes its place, which does the same."""
    handler = partial(_retold, planner.name)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            results = jitted(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as native code does
            return handler(error, *args, **kwargs)
        function = place()
        if planner.guarded is not None and function is not None:
            function.__call__ = planner.guarded(jitted, handler)
        return results

    return call


def _retold(name: str, error: Exception, /, *args: Any, **kwargs: Any) -> Any:
    """Raise an error of a call of the function `name`; JAX's own check of arrays as one that says what to do."""
    deleted = _deleted(name, args, kwargs) if isinstance(error, RuntimeError | ValueError) else None
    if deleted is not None:
        raise ArgumentError(deleted) from error
    try:
        raise error
    finally:
        del error  # it would be kept by its own traceback, and arguments with it


def _deleted(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What is wrong with a call where an array was donated to an earlier one; None where none was."""
    leaves, _ = jax.tree.flatten_with_path((args, kwargs))
    for path, leaf in leaves:
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and leaf.is_deleted():
            what = f"argument {jax.tree_util.keystr(path[1:])}, {leaf.dtype}{list(leaf.shape)},"
            return (
                f"{name}: {what} was deleted, or donated to an earlier call, which wrote over it; pass"
                " what that call returned, or leave donate_argnums out"
            )
    return None
