"""`jit`: a decorator that compiles a NumPy function, or a method, per argument types at its first call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autofuse.api.amounts import DEADLINE_S, check_numerics, positive_seconds
from autofuse.api.jitted import Jitted, OnMiss
from autofuse.api.options import check_options
from autofuse.errors import ArgumentError
from autofuse.targets.registry import DEFAULT

if TYPE_CHECKING:  # a plan that is found in a store needs none of these
    from autofuse.api.partitioning import Rules
    from autofuse.cost_models.base import CostModel
    from autofuse.frontend.tracecontext import OnUnsupported
    from autofuse.passes.choices import Choices
    from autofuse.passes.pipeline import Numerics
    from autofuse.search.plugins.foreign import LegalityTest
    from autofuse.search.policies.policy import SearchPolicy


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    on_miss: OnMiss = "compile",
    budget: float | None = None,
    policy: str | SearchPolicy | None = None,
    backend: str = DEFAULT,
    threads: int | None = None,
    device: str | None = None,
    rules: Rules = (),
    model: str | CostModel | None = None,
    legality: str | LegalityTest | None = None,
    variants: str | Choices | None = None,
    max_memory: int | None = None,
    numerics: Numerics = "strict",
    deadline: float | None = DEADLINE_S,
    on_unsupported: OnUnsupported = "numpy",
    check_bounds: bool = False,
    roll: bool = True,
    verify: bool = False,
) -> Any:
    """Compile a NumPy function, or a method, per shape and dtype at its first call.

    A call gives arguments as the function takes them, by position or by name. A method's plans depend on what it reads
    of its object: arrays are arguments, so they may be replaced and written into; numbers, texts, functions, lengths of
    containers and classes of objects are looked at at each call, and another one is compiled anew. Assigning attributes
    is a TraceError, as is reading what is none of these. Below `@staticmethod`, above nothing else that makes a
    descriptor. What a function reads from outside (globals, variables of functions around it) is a constant of its
    plans, as it was when each was made: arrays and numbers that change are to be arguments.

    With `store` (a folder of tuned plans), plans are looked up there first; a miss is compiled with one warning per
    missed key, tuned for `budget` seconds and stored (`on_miss="tune"`), or a PlanError (`"error"`). `backend`,
    `device`, `policy`, `threads`, `rules`, `model`, `legality`, `variants`, `max_memory`, `numerics`,
    `on_unsupported`, `check_bounds` and `roll`: how plans are made, as for `autofuse.compile` and `autofuse.tune`. A
    stored plan that does not keep the rules, the legality or the limit on memory is a miss; how else it was made is not
    asked. `deadline`: as for `autofuse.compile`; a tuned plan has none. Python numbers are constants of a plan: where
    three plans differ in one only, a NumberWarning says how to pass it.

    `verify`: before a plan runs for the first time, it and the function run on copies of the arguments, arrays of
    NumPy. Where one of them does not give what the interpreter gives, within bounds of rounding, the call is an
    AutofuseError that names the element, and so is the next one. Methods are refused.
    """
    if isinstance(fn, staticmethod | classmethod | property):
        raise ArgumentError(f"a {type(fn).__name__} is no function: write @af.jit below @{type(fn).__name__}")
    if fn is not None:
        check_options(fn=fn)
    check_options(store=store, on_miss=on_miss, policy=policy, backend=backend, threads=threads, device=device)
    check_options(rules=rules, model=model, legality=legality, numerics=numerics, on_unsupported=on_unsupported)
    check_options(
        check_bounds=check_bounds, roll=roll, verify=verify, **({} if variants is None else {"variants": variants})
    )
    if on_miss not in ("compile", "error", "tune"):
        raise ArgumentError(f'on_miss={on_miss!r:.80}: give "compile", "error" or "tune"')
    if on_miss != "compile" and store is None:
        raise ArgumentError(f"on_miss={on_miss!r:.80} needs store=, a folder in which to look plans up")
    if budget is not None and on_miss != "tune":
        raise ArgumentError('budget= is for tuning: give on_miss="tune" too')
    if policy == "measured" and on_miss != "tune":
        raise ArgumentError('policy="measured" needs measurements: give on_miss="tune" too')
    given = {
        "policy": policy,
        "backend": None if backend == DEFAULT else backend,
        "threads": threads,
        "device": device,
        "rules": rules or None,
        "model": model,
        "legality": legality,
        "variants": variants,
        "max_memory": max_memory,
        "numerics": None if check_numerics(numerics) == "strict" else numerics,
        "on_unsupported": None if on_unsupported == "numpy" else on_unsupported,
        "check_bounds": check_bounds or None,
        "roll": None if roll else False,
    }
    options = {name: value for name, value in given.items() if value is not None}
    tuning = {} if budget is None else {"budget": budget}
    if deadline is not None:
        deadline = positive_seconds("deadline", deadline, "give deadline=None")
    limits = {} if deadline == DEADLINE_S else {"deadline": deadline}
    if fn is None:
        return lambda function: Jitted(function, store, on_miss, options, tuning, limits, verify)
    return Jitted(fn, store, on_miss, options, tuning, limits, verify)
