"""The researcher's level: the candidate space of a program, and single candidates measured.

These are the objects that the tuner itself uses: the same space, the same prices, the same bench.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from autofuse.api.amounts import whole_number
from autofuse.api.options import check_options
from autofuse.api.partitioning import Rules, make_context
from autofuse.api.programs import measuring_inputs, traced_program
from autofuse.cost_models.base import CostModel
from autofuse.errors import ArgumentError, LegalityError, PlanError
from autofuse.frontend.tracecontext import OnUnsupported
from autofuse.frontend.traced import trace as trace_function
from autofuse.fusion.kind import kind_of
from autofuse.lazydataclass import dataclass, field
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.measurement.kernelrecords import KernelTime
from autofuse.search.plugins.foreign import LegalityTest
from autofuse.search.plugins.registry import ANALYTICAL
from autofuse.search.policies.analytical import dominated_at
from autofuse.search.policies.context import Context
from autofuse.search.space.candidates import Candidate
from autofuse.targets.base import Target, find_target
from autofuse.targets.registry import DEFAULT


@dataclass(frozen=True, slots=True)
class KernelOption:
    """One kernel that the program could have. Times are in microseconds."""

    nodes: tuple[str, ...]
    """Names of what it computes, views left out: what `compile(partition=...)` takes."""
    outputs: tuple[str, ...]
    """Names of what it writes, where nothing else computes it too."""
    kind: str
    digest: str
    """Equal for kernels that differ only in names."""
    predicted_us: float
    bound: str
    """What limits it by the model."""
    floor_us: float
    """No kernel that does this is faster on the device."""
    space: CandidateSpace = field(repr=False, compare=False)
    candidate: Candidate = field(repr=False, compare=False)


@dataclass(slots=True)
class CandidateSpace:
    """All kernels that the search chooses among, and what it left out."""

    options: tuple[KernelOption, ...]
    refused: Mapping[tuple[str, ...], str]
    """Sets of nodes that were tried and are no kernel, with the reason."""
    cut_off: int
    """Sets from which enumeration did not go on because of a bound."""
    dominated: int
    """Candidates that two smaller ones replace for no more, at these prices; the solver leaves them out."""
    context: Context
    arrays: Sequence[NDArray[Any]]
    target: Target

    def __iter__(self) -> Iterator[KernelOption]:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)

    def find(self, *nodes: str) -> KernelOption:
        """The kernel of exactly these nodes. Raises LegalityError with the reason, ArgumentError for one not tried."""
        if not all(isinstance(name, str) for name in nodes):  # pyright: ignore[reportUnnecessaryIsInstance]  # users give anything
            raise ArgumentError(f"find: takes names of nodes, got {nodes!r:.80}")
        wanted = {name.removeprefix("%") for name in nodes}
        for option in self.options:
            if set(option.nodes) == wanted:
                return option
        reason = next((text for names, text in self.refused.items() if set(names) == wanted), None)
        if reason is not None:
            raise LegalityError(f"{', '.join(sorted(wanted))}: {reason}")
        raise ArgumentError(
            f"{', '.join(sorted(wanted))}: no candidate has exactly these nodes; iterate over the space"
        )


def candidates(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    backend: str = DEFAULT,
    threads: int | None = None,
    device: str | None = None,
    rules: Rules = (),
    model: str | CostModel = ANALYTICAL,
    legality: str | LegalityTest | None = None,
    seed: int = 0,
    on_unsupported: OnUnsupported = "numpy",
    roll: bool = True,
) -> CandidateSpace:
    """The candidate space of a function: kinds, digests and the model's prices, without measuring.

    `args`, `kwargs`: arrays or specs, as for `tune`; `measure` uses them, and seeded random data for specs. `rules`,
    `model`, `legality`, `backend`, `device`, `roll`: as for `compile`; what a legality refuses is in `refused` with its
    reason.
    """
    check_options(fn=fn, kwargs=kwargs, backend=backend, threads=threads, device=device, rules=rules)
    check_options(model=model, legality=legality, on_unsupported=on_unsupported, roll=roll)
    seed = whole_number("seed", seed, 0)
    target = find_target(backend, threads, device)
    traced = trace_function(fn, *args, kwargs=kwargs, on_unsupported=on_unsupported, roll=roll)
    context = make_context(traced_program(traced), target, rules, model=model, legality=legality)
    space = context.space
    prices = context.prices(space)
    dominated = dominated_at(context, space, {digest: price.predicted_us for digest, price in prices.items()})
    arrays = measuring_inputs(traced, None, seed, target)
    refused = {_names(atoms): reason for atoms, reason in space.refused.items()}
    found = CandidateSpace((), refused, space.cut_off, dominated, context, arrays, target)
    found.options = tuple(
        KernelOption(
            nodes=_names(candidate.atoms),
            outputs=tuple(value.name for value in candidate.outputs),
            kind=kind_of(candidate.kernel),
            digest=candidate.digest,
            predicted_us=prices[candidate.digest].predicted_us,
            bound=prices[candidate.digest].bound,
            floor_us=prices[candidate.digest].floor_us,
            space=found,
            candidate=candidate,
        )
        for candidate in space.candidates
    )
    return found


def measure(
    option: KernelOption,
    schedule: Mapping[str, Any] | None = None,
    db: str | os.PathLike[str] | None = None,
    *,
    cold: bool = False,
) -> KernelTime:
    """Time one candidate in a worker process, its answer checked against the interpreter first.

    `schedule`: decisions inside the kernel that differ from the defaults, e.g. `{"unroll": 2}`. `db`: file that keeps
    the measurement, and gives it back where it is known. `cold`: on operands that lie in memory, in place of caches;
    such times are kept apart. A kernel that fails has an infinite time and a message.
    Raises PlanError for a schedule that is unknown, or that decides what is not to decide in this kernel, BackendError
    for a kernel of a device that is not here.
    """
    if not isinstance(option, KernelOption):  # pyright: ignore[reportUnnecessaryIsInstance]  # users give anything
        raise ArgumentError(f"measure: needs a kernel of af.candidates(...), got {type(option).__name__}")
    check_options(db=db, cold=cold)
    space = option.space
    space.target.clock()  # a device that is not here has none
    decisions = space.context.limits.decisions
    chosen = decisions.read(schedule or {})
    reason = decisions.refusal(chosen, option.candidate.program)
    if reason is not None:
        raise PlanError(f"schedule.{reason}")
    program = space.context.program
    identity = space.target.identity
    with (
        tempfile.TemporaryDirectory(prefix="autofuse-") as folder,
        Database(db or Path(folder, "measure.db"), identity) as base,
        Bench(program.graph, space.arrays, base, identity, cold=cold, description=space.target.fingerprint()) as bench,
    ):
        return bench.kernel(option.digest, option.candidate.kernel, chosen)


def _names(atoms: Any) -> tuple[str, ...]:
    ordered = sorted(atoms, key=lambda atom: atom.number)
    return tuple(node.name for atom in ordered for node in atom.nodes)
