"""A deadline for choosing fusions: the whole program, then its segments, greedy merging, a kernel per operation.

Each way has a share of the time, and what a share was too short for is left to the next way, which is quicker and sees
less. Of the partitions that were found the cheapest by the model is kept. A search that ends within its share gives
what it gives without a deadline, however fast the machine is; where the deadline decided, the plan says so. A deadline
may be one of work (`workclock.py`): then it decides the same on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from autofuse.errors import LegalityError, SearchError
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.plan.identity import Identity
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.greedy import Beam, Greedy, merged
from autofuse.search.policies.policy import Partition, SearchPolicy
from autofuse.search.policies.unfused import Unfused
from autofuse.search.policies.workclock import WorkClock
from autofuse.search.space.candidates import Space

DECIDED = "the deadline of"
"""How the note begins of a plan that the deadline decided."""

BUDGETED = "a budget of"
"""And of one that a deadline of work decided, on every machine alike."""
_WHOLE, _SEGMENTS = (0.5, 0.74, 0.82), (0.88, 0.92, 0.95)
"""Of the deadline: when kernels must be enumerated, priced, and chosen among; in the whole program, and in segments.

Pricing takes about half as long as enumerating: who enumerated in time is not cut off with the last prices. Segments
need less time: what was lowered and priced for the whole program is known by then."""
_GREEDY = 0.97
"""Of the deadline: when merging must be done. What is left is for a kernel per operation, and for writing the plan."""
_SEGMENT_ATOMS = 24
_LEAST_S = 0.05
"""For single atoms, and for a solve: what is over the deadline is as little as this."""
_SOLVE_S = 60.0
"""For a solve where work is counted: it takes a fraction of a second in the small programs where that is so."""
_LAST = "a kernel per operation"


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a choice must be made."""

    seconds: float
    """From the beginning, which is when this is made."""
    clock: Callable[[], float] = time.monotonic
    start: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", self.clock())

    def left(self, share: float = 1.0) -> float:
        """Seconds until that share of the time is over; 0 if it is."""
        return max(0.0, self.start + share * self.seconds - self.clock())

    @property
    def counts_work(self) -> bool:
        """Whether it decides the same on every machine."""
        return isinstance(self.clock, WorkClock)

    def solver(self, share: float) -> tuple[float, Callable[[], float]]:
        """Seconds for a solve until that share of the time is over, and the clock for them."""
        if self.counts_work:
            return _SOLVE_S, time.monotonic
        return max(self.left(share), _LEAST_S), self.clock

    def is_over(self, share: float = 1.0) -> bool:
        """Whether that share of the time is over."""
        return self.left(share) <= 0.0


def choose(policy: SearchPolicy, context: Context, deadline: Deadline, identity: Identity) -> tuple[Context, Partition]:
    """The policy's partition, or what simpler ways find where the deadline does not leave it the time.

    With the context of the kernels that were chosen among. Holds for the policies that choose among the candidate
    space: analytical, greedy and beam. Others decide as they do without. Raises SearchError where no way finds a plan
    (within the memory that there is).
    """
    if not isinstance(policy, Analytical | Greedy | Beam):
        return context, policy.partition(context)
    return _Hurried(policy, context, deadline, identity).partition()


class _Hurried:
    """One choice. `missed` collects, in words, what the deadline left no time for."""

    def __init__(
        self, policy: Analytical | Greedy | Beam, context: Context, deadline: Deadline, identity: Identity
    ) -> None:
        self.policy, self.context, self.deadline, self.identity = policy, context, deadline, identity
        self.missed: list[str] = []
        self.problem: SearchError | LegalityError | None = None

    def partition(self) -> tuple[Context, Partition]:
        """The cheapest of what the ways find; the first one alone if it misses nothing."""
        found: list[tuple[str, Context, Partition]] = []
        for label, way in self._ways():
            before = len(self.missed)
            partition = self._tried(way)
            if partition is not None:
                found.append((label, self.context, partition))
                if len(self.missed) == before:
                    break
        if not found:
            alone = self._tried(lambda: Unfused().partition(self.context))
            if alone is None:
                raise self._failure()
            found.append((_LAST, self.context, alone))
        label, context, best = min(found, key=lambda entry: entry[2].price_us)
        return context, replace(best, notes=(*best.notes, self._note(label))) if self.missed else best

    def _ways(self) -> Iterator[tuple[str, Callable[[], Partition | None]]]:
        """The ways to choose, one after the other, by what people call them."""
        yield "the whole program", self._whole
        if isinstance(self.policy, Analytical):
            yield "its segments", self._segments
            yield "merging greedily", lambda: self._merged(Greedy())

    def _tried(self, way: Callable[[], Partition | None]) -> Partition | None:
        """What a way finds, if the memory is enough for it."""
        try:
            partition = way()
            if partition is not None and self.context.memory is not None:
                document = document_of(self.context, partition, self.identity)
                self.context.memory.check(document, self.policy.name)
            return partition
        except (SearchError, LegalityError) as error:
            self.problem = self.problem or error
            return None

    def _whole(self) -> Partition | None:
        """As the policy does without a deadline; None where the time was not enough to enumerate the kernels."""
        space = self._enumerated(_WHOLE[0])
        if space.late:
            self.missed.append("there was no time to try all kernels of the whole program")
            return None
        self._price(_WHOLE[1])
        if space.unprobed:
            self.missed.append("the program is long, and large kernels were looked for in its beginning only")
        if isinstance(self.policy, Analytical):
            return self._chosen(_WHOLE[2])
        return self._merged(self.policy)

    def _segments(self) -> Partition:
        """The same within short segments, equal ones of which are enumerated and solved once."""
        if self._enumerated(_SEGMENTS[0], whole=_SEGMENT_ATOMS, segment=_SEGMENT_ATOMS).late:
            self.missed.append("there was no time to try all kernels of its segments")
        self._price(_SEGMENTS[1])
        return self._chosen(_SEGMENTS[2])

    def _enumerated(self, share: float, **bounds: int) -> Space:
        """The space of a context for the next way, as far as the time goes until a share of it is over."""
        seconds = max(self.deadline.left(share), _LEAST_S)
        wanted = replace(self.context.kernels.bounds, seconds=seconds, **bounds)
        self.context = self.context.within(wanted, self.deadline.clock)
        return self.context.space

    def _price(self, share: float) -> None:
        """Price the context's space, and leave out what there is no time for."""
        unpriced = self.context.kernels.keep_priced(lambda: self.deadline.is_over(share))
        if unpriced:
            self.missed.append(f"{unpriced} kernels were left out as there was no time to price them")

    def _chosen(self, share: float) -> Partition:
        """The solver's choice from the context's space before a share of the time is over."""
        seconds, clock = self.deadline.solver(share)
        partition = Analytical(clock=clock).partition(replace(self.context, deadline_s=seconds))
        if partition.solution is not None and not partition.solution.optimal:
            self.missed.append("it was not proved that no choice is cheaper")
        return partition

    def _merged(self, policy: Greedy | Beam) -> Partition:
        """Kernels of the context's space, merged while that is cheaper."""
        hurried = replace(self.context, deadline_s=self.deadline.left(_GREEDY))
        partition = merged(hurried, policy, self.deadline.clock)
        self.missed += partition.notes
        return replace(partition, notes=())

    def _note(self, label: str) -> str:
        limit = (
            f"{BUDGETED} {self.deadline.seconds:.2g} s of work decided"
            if self.deadline.counts_work
            else f"{DECIDED} {self.deadline.seconds:g} s decided, so another run may choose otherwise"
        )
        return f"{limit}: {'; '.join(self.missed)}; chosen: what {label} gave; deadline=None searches to the end"

    def _failure(self) -> Exception:
        if not self.missed:
            return self.problem or SearchError("no plan was found")
        return SearchError(f"{self.problem}; the deadline of {self.deadline.seconds:g} s was over: give more")
