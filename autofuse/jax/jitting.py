"""`jit` and `tune` for functions of JAX's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from autofuse.api.amounts import DEADLINE_S
from autofuse.api.jit import jit as numpy_jit
from autofuse.api.jitted import OnMiss
from autofuse.api.plan import Plan
from autofuse.errors import ArgumentError
from autofuse.jax.function import JaxFunction
from autofuse.jax.planner import OnUnsupported, Planner

if TYPE_CHECKING:
    from autofuse.api.partitioning import Rules
    from autofuse.cost_models.base import CostModel
    from autofuse.passes.choices import Choices
    from autofuse.passes.pipeline import Numerics
    from autofuse.search.plugins.foreign import LegalityTest
    from autofuse.search.policies.policy import SearchPolicy

Numbers = int | Sequence[int] | None
Names = str | Iterable[str] | None
_TUNING = frozenset(
    (
        *("budget", "policy", "seed", "progress", "max_trials", "db", "threads", "rules", "model", "legality"),
        *("variants", "max_memory", "numerics", "cold", "cluster"),
    )
)
"""Options of `autofuse.tune` that mean the same here."""


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    keep_unused: bool = False,
    inline: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    store: str | os.PathLike[str] | None = None,
    on_miss: OnMiss = "compile",
    budget: float | None = None,
    policy: str | SearchPolicy | None = None,
    threads: int | None = None,
    rules: Rules = (),
    model: str | CostModel | None = None,
    legality: str | LegalityTest | None = None,
    variants: str | Choices | None = None,
    max_memory: int | None = None,
    numerics: Numerics = "strict",
    deadline: float | None = DEADLINE_S,
    on_unsupported: OnUnsupported = "error",
) -> Any:
    """Compile a function of JAX's to a plan, per kind of call, at the first such call.

    Arguments and results are what `jax.jit` takes and returns: trees of `jax.Array`s and numbers, and static arguments.
    What tells calls apart is JAX's too: structures, types (weak ones too), static values, x64 mode, matmul precision.
    The function is traced by JAX; its plan is called by XLA's runtime on JAX's buffers, without a copy and without
    Python. Steps of a plan that the interpreter runs, which its kernels say, are the exception: they call Python.

    Works inside `jax.jit`, `scan` and other control flow, `vmap` (a plan of the batched function), `jvp` and `grad`
    (the derivative is a plan of its own, which is given results of products and reductions, and computes the rest of
    the forward part again; all of it under `max_memory`). `jit(jax.value_and_grad(loss))` is one plan, forward and
    backward fused. A function that is called by another one with a plan is a part of that plan.

    `static_argnums` to `compiler_options`: as for `jax.jit`. A donated array is reused for a result where the plan can
    write it there, and deleted. `store`, `on_miss`, `budget`, `policy`, `threads`, `rules`, `model`, `legality`,
    `variants`, `max_memory`, `numerics`, `deadline`: how plans are made, as for `autofuse.jit`; each derivative and
    each batch is a program of its own, in a store too. `on_unsupported`: what becomes of functions with operations that
    no plan has (callbacks, collectives, quantised numbers, foreign custom calls, arrays over several devices): they
    raise a TraceError that names operation, line and remedy ("error"), or JAX runs them as a whole with one
    RunByJaxWarning ("xla"). Transforms and linear algebra are NumPy's functions between kernels, with one
    LeftToNumpyWarning.

    Raises ArgumentError for options that cannot be; calls raise what `autofuse.compile` does.
    """
    if on_unsupported not in get_args(OnUnsupported):
        raise ArgumentError(f'on_unsupported={on_unsupported!r:.80}: give "error" or "xla"')
    for_jax = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused or None,
        "inline": inline or None,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "compiler_options": compiler_options,
    }
    options = {name: value for name, value in for_jax.items() if value is not None}
    planned = numpy_jit(
        store=store,
        on_miss=on_miss,
        budget=budget,
        policy=policy,
        threads=threads,
        rules=rules,
        model=model,
        legality=legality,
        variants=variants,
        max_memory=max_memory,
        numerics=numerics,
        deadline=deadline,
        on_unsupported="numpy",
    )

    def decorated(function: Callable[..., Any]) -> JaxFunction:
        planner = Planner(_name(function), planned, on_unsupported, hands_on=max_memory is None)
        return JaxFunction(function, planner, options)

    return decorated if fn is None else decorated(fn)


def tune(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    **options: Any,
) -> JaxFunction:
    """The function with a tuned plan for such arguments: search, measuring kernels on these values.

    `args`, `kwargs`: of a call, arrays with values. What is returned is called as `jit(fn)` is; calls of other kinds
    are compiled as there. `.plan(*args)` is the tuned plan, to be saved, explained and looked into. `options`:
    `budget`, `db`, `seed` and others, as for `autofuse.tune`. To keep tuned plans for other processes:
    `jit(fn, store="plans/", on_miss="tune", budget=60.0)`.

    Raises what `autofuse.tune` does, and ArgumentError for options that have no meaning here.
    """
    unknown = sorted({*options} - _TUNING)
    if unknown:
        raise ArgumentError(f"tune: no option {', '.join(unknown)}; there are {', '.join(sorted(_TUNING))}")
    statics = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    made = {
        name: options[name] for name in ("threads", "numerics", "max_memory", "rules", "legality") if name in options
    }
    function: JaxFunction = jit(fn, **statics, **made)
    callee, operands = function.callee(args, kwargs)
    values = [np.asarray(value) for value in operands()]

    def tuned(program: Callable[..., Any]) -> Plan:
        from autofuse.api.tuning import tune as numpy_tune

        return numpy_tune(program, *values, on_unsupported="numpy", **options)

    function.planner.tuned(callee, tuned)
    return function


def _name(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
