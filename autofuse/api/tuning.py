"""`tune`: the best plan that measuring finds. What it needs is imported when it is called, on its clock."""

from __future__ import annotations

from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from autofuse.api.options import check_options
from autofuse.targets.registry import DEFAULT

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from autofuse.api.partitioning import Rules
    from autofuse.api.plan import Plan
    from autofuse.cost_models.base import CostModel
    from autofuse.frontend.tracecontext import OnUnsupported
    from autofuse.passes.choices import Choices
    from autofuse.passes.pipeline import Numerics
    from autofuse.search.plugins.foreign import LegalityTest
    from autofuse.search.policies.policy import SearchPolicy


def tune(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    backend: str = DEFAULT,
    budget: float | None = None,
    policy: str | SearchPolicy = "measured",
    seed: int = 0,
    progress: bool = True,
    max_trials: int | None = None,
    db: str | os.PathLike[str] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    device: str | None = None,
    rules: Rules = (),
    model: str | CostModel = "analytical",
    legality: str | LegalityTest | None = None,
    variants: str | Choices = "default",
    max_memory: int | None = None,
    numerics: Numerics = "strict",
    on_unsupported: OnUnsupported = "numpy",
    check_bounds: bool = False,
    roll: bool = True,
    cold: bool = False,
    cluster: object = None,
) -> Plan:
    """Search, measuring kernels in a worker process, and return the best plan found.

    `args`, `kwargs`: as for `compile`. `budget`: seconds from the call to the return, imports included; by default 60,
    or as many as `max_trials` takes. A quarter of them (of less than 20, up to 5) may go into finding the kernels that
    there could be. What there is no time for is a note of the plan, and the certificate says where the time went.
    Longer than the budget takes only what can neither be foreseen nor stopped: one call of `fn`, tracing it, and
    running it once, operation by operation, in the measuring process, with the plan that is checked against that.
    `max_trials`: most kernel measurements, the second times of kernels not counted; alone, it makes how far the search
    goes independent of the machine's speed. `db`: file that keeps every measurement; what it holds for this machine is
    not measured again, so an interrupted run resumes. `inputs`: an .npz file with the arguments' values (`arg0`,
    `arg1`, ... or the parameter names) where values matter; specs get seeded random data otherwise. `policy`:
    "measured" searches everything; any other policy's partition is kept and only its schedules are tuned. `rules`,
    `model`, `legality`, `max_memory`, `numerics`, `device`: as for `compile`; a device must be here to be measured.
    `variants`: as for `compile`, but under "measured" the model decides whether short loops are written out before
    anything is measured, and "auto", without rules and legality, tunes the graphs that the model finds cheapest too,
    with half of the budget, and times their plans against the usual graph's; pricing them takes up to a quarter of a
    budget in seconds, as finding the usual graph's kernels does. `on_unsupported`, `check_bounds`, `roll`: as for
    `compile`; what runs through NumPy as a whole is not tuned. `cold`: kernels find their operands in memory, in place
    of caches, and plans their arguments, as in a program that has used much else since it made them; measurements of
    the two ways are kept apart. `cluster`: where kernels are measured in place of this machine: a `distributed.Client`
    of Dask, a scheduler's address, or how many workers to start here, each with a device of its own. Each worker holds
    its device for this call alone; all must be of one kind, that of `device` or of this machine. Workers that are lost,
    or unfit, are named in a WorkerLeftOutWarning and left out; the same records give the same plan with and without. In
    the end the function itself runs too, and a plan that is slower is a SlowerThanNumpyWarning and has a note. Ctrl-C
    returns the best plan so far, with a note that says so. Raises as `compile` does, and MeasureError where kernels
    cannot be measured or their times not be kept (a full disk, say): the best plan so far, if there is one, is the
    attribute `best` of an error that ends the tuning, whichever it is.
    """
    start = monotonic()
    check_options(fn=fn, kwargs=kwargs, backend=backend, policy=policy, threads=threads, device=device, rules=rules)
    check_options(model=model, legality=legality, variants=variants, numerics=numerics, on_unsupported=on_unsupported)
    check_options(check_bounds=check_bounds, roll=roll, cold=cold, progress=progress, db=db, inputs=inputs)
    from autofuse.api.tunedplans import tuned_plan

    return tuned_plan(
        fn,
        args,
        kwargs,
        start,
        backend=backend,
        budget=budget,
        policy=policy,
        seed=seed,
        progress=progress,
        max_trials=max_trials,
        db=db,
        inputs=inputs,
        threads=threads,
        device=device,
        rules=rules,
        model=model,
        legality=legality,
        variants=variants,
        max_memory=max_memory,
        numerics=numerics,
        on_unsupported=on_unsupported,
        check_bounds=check_bounds,
        roll=roll,
        cold=cold,
        cluster=cluster,
    )
