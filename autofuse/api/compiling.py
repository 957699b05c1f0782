"""`compile`: a plan that a model chooses, with nothing measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autofuse.api.amounts import DEADLINE_S, check_numerics, positive_seconds
from autofuse.api.keptdecisions import kept_decision
from autofuse.api.loops import warn_of_loops
from autofuse.api.numpyonly import NumpyPlan, traced_or_left
from autofuse.api.options import check_options
from autofuse.api.plan import Plan
from autofuse.api.recalled import recalled
from autofuse.errors import ArgumentError
from autofuse.host.collecting import collecting_less
from autofuse.lazydataclass import replace
from autofuse.targets.base import find_backend, find_target
from autofuse.targets.registry import DEFAULT

if TYPE_CHECKING:  # what was decided in an earlier process is found without the search
    from autofuse.api.partitioning import Rules
    from autofuse.cost_models.base import CostModel
    from autofuse.frontend.tracecontext import OnUnsupported
    from autofuse.passes.choices import Choices
    from autofuse.passes.pipeline import Numerics
    from autofuse.search.plugins.foreign import LegalityTest
    from autofuse.search.policies.policy import SearchPolicy


def compile(  # noqa: A001 - the verb users know from jax.jit(...).compile and torch.compile
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    backend: str = DEFAULT,
    policy: str | SearchPolicy = "analytical",
    partition: Sequence[Sequence[str]] | None = None,
    threads: int | None = None,
    device: str | None = None,
    rules: Rules = (),
    model: str | CostModel = "analytical",
    legality: str | LegalityTest | None = None,
    variants: str | Choices = "default",
    max_memory: int | None = None,
    numerics: Numerics = "strict",
    deadline: float | None = DEADLINE_S,
    on_unsupported: OnUnsupported = "numpy",
    check_bounds: bool = False,
    roll: bool = True,
) -> Plan:
    """Choose fusions with a model, measuring nothing: milliseconds to seconds.

    `args`, `kwargs`: arrays or specs, as for a call `fn(*args, **kwargs)`. `policy`: "analytical", "learned" (the same
    with `model="learned"`), "unfused", "greedy", "beam", the rules of another compiler ("rule:xla", "rule:xla-cpu",
    "rule:xla-priority", "rule:inductor", "rule:grappler"), "module:Class", the name of an installed entry point, or a
    SearchPolicy. `partition`: the kernels themselves, each as names of nodes, in place of a policy's. `threads`: how
    many the plan uses; by default one per core. `device`: the GPU that a plan of `backend="cuda"` is for, "h200" say;
    by default this machine's. It need not be here to make, explain and save a plan for it. `rules`: Force, Forbid and
    Pin, or the name of a TOML file of them, which every policy keeps. `model`: the cost model: "analytical", "learned"
    (the same, corrected by what was learned from records of such a machine), "module:Class", the name of an installed
    entry point, or a CostModel. `legality`: a function of a kernel's nodes that says why it may not be one, or
    "module:function" or an entry point; every policy keeps to it. `variants`: how the program is cleaned up before
    fusion: "default", under which "analytical" also writes out short loops if the model is sure that this is cheaper;
    choices such as "columns=joined,tables=large" (`autofuse.passes.choices`); or "auto": under "analytical", without
    rules and legality, the graph with the cheapest plan, if the model is sure of it; it takes as long again for each
    graph there is. `max_memory`: most bytes that arguments, constants, results and temporaries of a call may take
    together. `numerics`: "strict", or "fast", which also makes use of what holds for real numbers but not
    for every float: sums and products of numbers are reassociated, divisions become products with reciprocals, NaN,
    infinities and the sign of zero are not kept (`autofuse.passes.fast_math` lists the rules).
    `deadline`: seconds for choosing the fusions, tracing and code generation not counted; None: as long as it takes.
    With one, "analytical" prices the kernels that a cheapest plan may want by estimates of all, and leaves out the
    others, but not inside of loops; the plan's notes say how many. None prices all of them.
    Where they are not enough for the whole program, it is searched in segments, then by merging greedily, and failing
    all that each operation becomes a kernel; the plan's notes say so, and such a plan may differ from run to run. It
    binds "analytical", "greedy" and "beam". A Python loop that was unrolled into many steps is an UnrolledLoopWarning.
    `on_unsupported`: what becomes of calls that no kernel computes: "numpy" leaves those of NumPy and SciPy to them,
    with one LeftToNumpyWarning, as parts of the plan where their results' types follow from the arguments' types, else
    with the whole function; "eager" learns result types of any call by running it on `args`; "error" refuses.
    `check_bounds`: calls raise OutOfBoundsError, an IndexError, where an index that is known only then is out of
    bounds, and write nothing; without it such an index reads the nearest element, and what it writes is dropped or
    goes to the nearest. `roll`: whether Python loops of 16 iterations and more become loops of the program,
    and `if` and `while` on traced values its branches and loops, where the source allows it; the plan's notes say what
    became of each. Raises TraceError, SearchError (also where memory is not enough), ArgumentError,
    LegalityError for rules and kernels that cannot be, and PluginError for what plug-ins do wrong.
    """
    check_options(fn=fn, kwargs=kwargs, backend=backend, policy=policy, threads=threads, device=device, rules=rules)
    check_options(model=model, legality=legality, variants=variants, numerics=numerics)
    check_options(on_unsupported=on_unsupported, check_bounds=check_bounds, roll=roll)
    target = find_target(backend, threads, device)
    check_numerics(numerics)
    seconds = None if deadline is None else positive_seconds("deadline", deadline, "give deadline=None")
    if policy == "measured" and partition is None:
        raise ArgumentError('policy="measured" needs measurements: call autofuse.tune')
    find_backend(backend).prepare()  # while the function is traced
    wishes: dict[str, Any] = {"partition": partition, "rules": rules, "legality": legality, "max_memory": max_memory}
    about: dict[str, Any] = {
        "policy": policy,
        "target": target,
        "model": model,
        "variants": variants,
        "deadline": seconds,
        "numerics": numerics,
    }
    tracing: dict[str, Any] = {"on_unsupported": on_unsupported, "check_bounds": check_bounds, "roll": roll}
    with collecting_less():
        return _made(fn, args, kwargs, wishes, about, tracing)


def _made(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    wishes: dict[str, Any],
    about: dict[str, Any],
    tracing: dict[str, Any],
) -> Plan:
    """The plan: one that an earlier process decided, or a new one."""
    known = None if kwargs else recalled(fn, args, {**wishes, **about}, tracing)
    found = None if known is None else known.find()
    if found is not None:
        return found
    traced = traced_or_left(fn, args, kwargs, decided=wishes, **tracing)
    if isinstance(traced, NumpyPlan):
        return traced
    loops = warn_of_loops(traced.graph)
    kept = kept_decision(traced, {**wishes, **about})
    if known is not None and kept is not None and not loops and not traced.left_to_numpy:
        known.keep(kept)
    found = None if kept is None else kept.find(loops)
    if found is not None:
        return found
    from autofuse.api.partitioning import chosen_document

    document = chosen_document(traced, **wishes, **about)
    plan = Plan(replace(document, notes=(*document.notes, *loops)))
    if kept is None:
        return plan
    kept.keep(document)
    return kept.kept(plan)
