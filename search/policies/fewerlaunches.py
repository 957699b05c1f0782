"""Kernels that compute small values for themselves, where the plan then waits less often.

Prices are of kernels alone, and the cheapest sum of them has each value made once where making it costs anything. But
targets start the kernels of a concurrent group together, and what a kernel reads of a group keeps it out of that group:

    group 1:  a = f(s)    m1, a' = g(x1, a)         group 1:  m1 = g(x1, f(s))    m2 = g(x2, f(s))    m3 = ...
    group 2:  m2 = g(x2, a)    m3 = g(x3, a)

So the groups of a partition are looked at one by one, the last first. The kernels of a group are made to compute what
they read of the group before, if that is elementwise work on what was there earlier. That is kept if the target says
that the groups then take less (`Target.joined_us`), with what a compiler says of the new kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from autofuse.fusion.atoms import FusionAtom
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass, replace
from autofuse.plan.document import Launch
from autofuse.search.plans.planning import Tuned, launches_of, planned_kernels
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, predicted
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.candidates import AtomSet
from autofuse.search.space.leaner import is_light

_LEAST_SAVED = 1e-3
"""Of a plan's time: less is not worth kernels that were not weighed against all others."""


def with_fewer_launches(context: Context, partition: Partition, is_late: Callable[[], bool]) -> Partition:
    """The partition, or one whose kernels compute more for themselves and are started in less time.

    It is by the prices that the partition knows, and the model's for new kernels. Partitions of other atoms than those
    of the context's space stay as they are. `is_late`: when to stop looking.
    """
    if len(partition.kernels) < 2 or context.problem.target.joined_us(()) is None:
        return partition
    if partition.atoms is not context.space.atom_graph:
        return partition
    return _Search(context, partition, is_late).run()


@dataclass(frozen=True, slots=True)
class _Draft:
    """A partition in concurrent groups."""

    kernels: tuple[Chosen, ...]
    written: tuple[KernelCandidate, ...]
    """Each, as it is with the outputs that are needed of it."""
    groups: tuple[tuple[int, ...], ...]
    """Numbers of kernels, in running order."""
    us: float
    """What the groups take."""

    def made_in(self, groups: Iterable[int]) -> frozenset[Value]:
        """What kernels of these groups write."""
        return frozenset(v for group in groups for number in self.groups[group] for v in self.written[number].outputs)


class _Search:
    """Looks at the groups of one partition."""

    def __init__(self, context: Context, partition: Partition, is_late: Callable[[], bool]) -> None:
        self.context, self.partition, self.is_late = context, partition, is_late
        self.atoms = partition.atoms
        self.prices = context.kernels.prices
        self._group_us: dict[tuple[str, ...], float] = {}
        """By the classes of its kernels: what a group takes."""

    def run(self) -> Partition:
        """The best partition that was found."""
        best = first = self._draft(self.partition.kernels)
        group = len(best.groups) - 1
        while group > 0 and not self.is_late():
            found = self._better(best, group)
            if found is not None:
                first, best = self._draft(first.kernels), found
            group = len(best.groups) - 1 if found is not None else group - 1
        return self.partition if best.kernels == self.partition.kernels else self._partition(first, best)

    def _partition(self, first: _Draft, best: _Draft) -> Partition:
        own = {chosen.candidate for chosen in first.kernels}
        count = sum(chosen.candidate not in own for chosen in best.kernels)
        note = (
            f"kernels that compute for themselves what they would wait for: {count}; by the model the plan takes "
            f"{best.us:.4g} us so, as its kernels are started together, and {first.us:.4g} us otherwise"
        )
        prices = self.prices.of([chosen.candidate for chosen in best.kernels])
        return replace(
            self.partition,
            kernels=best.kernels,
            known={**predicted(best.kernels, prices), **self.partition.known},
            price_us=sum(prices[chosen.candidate.digest].predicted_us for chosen in best.kernels),
            notes=(*self.partition.notes, note),
        )

    # ---- groups --------------------------------------------------------------------------------------------------

    def _draft(self, kernels: Sequence[Chosen]) -> _Draft:
        written = tuple(self.atoms.candidate(chosen.candidate.atoms, chosen.outputs) for chosen in kernels)
        timed = [(kernel, self._kernel_us(chosen)) for kernel, chosen in zip(written, kernels, strict=True)]
        groups: list[list[int]] = []
        for launch in launches_of(timed, self.context.problem.grouping):
            if launch.group_place == 0:
                groups.append([])
            groups[-1].append(launch.kernel)
        us = sum(self._us_of([kernels[number] for number in group]) for group in groups)
        return _Draft(tuple(kernels), written, tuple(map(tuple, groups)), us)

    def _kernel_us(self, chosen: Chosen) -> float:
        """What a kernel is expected to take alone."""
        digest = chosen.candidate.digest
        known = self.partition.known.get(digest, Tuned())
        return known.measured_us or known.predicted_us or self.prices.of([chosen.candidate])[digest].predicted_us

    def _us_of(self, group: Sequence[Chosen]) -> float:
        """What a group takes."""
        key = tuple(chosen.candidate.digest for chosen in group)
        if key not in self._group_us:
            us = self.context.problem.target.joined_us([self.prices.facts(chosen.candidate) for chosen in group])
            assert us is not None, "the target said so of no kernels"
            self._group_us[key] = us
        return self._group_us[key]

    # ---- steps ---------------------------------------------------------------------------------------------------

    def _better(self, draft: _Draft, group: int) -> _Draft | None:
        """The draft with a group that does not wait for the one before, if that takes less."""
        kernels = self._lifted(draft, group) if self._may_join(draft, group) else None
        if kernels is None:
            return None
        found = self._draft(kernels)
        if not _saves(draft, found):
            return None
        if self.prices.compile(chosen.candidate for one in (draft, found) for chosen in one.kernels):
            self._group_us.clear()
            draft, found = self._draft(draft.kernels), self._draft(found.kernels)
        return found if _saves(draft, found) and self._fits(found) else None

    def _may_join(self, draft: _Draft, group: int) -> bool:
        """Whether all kernels of a group are short enough to run beside others, and some of the group before."""
        short = self.context.problem.grouping.small_us
        own, before = ([self._kernel_us(draft.kernels[n]) for n in draft.groups[g]] for g in (group, group - 1))
        return max(own) < short and min(before) < short

    def _lifted(self, draft: _Draft, group: int) -> list[Chosen] | None:
        """The kernels where those of a group compute what they read of the group before; None where they cannot."""
        made = draft.made_in([group - 1])
        there = draft.made_in(range(group - 1))
        kernels = list(draft.kernels)
        for number in draft.groups[group]:
            wanted = [value for value in draft.written[number].inputs if value in made]
            more = self._makers(wanted, there)
            if more is None or self.is_late():
                return None
            if more:
                chosen = kernels[number]
                candidate = self.context.kernels.try_add(chosen.candidate.atoms | more, chosen.outputs)
                if candidate is None:
                    return None
                kernels[number] = Chosen(candidate, chosen.outputs)
        return None if kernels == list(draft.kernels) else self._needed(kernels)

    def _makers(self, values: Sequence[Value], there: Collection[Value]) -> AtomSet | None:
        """The atoms that make values of what is there; None where some of that is not worth doing twice."""
        found: set[FusionAtom] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            maker = self.atoms.maker(value)
            if maker is None or maker in found or value in there:
                continue
            if not all(map(is_light, maker.nodes)):
                return None
            found.add(maker)
            todo += self.atoms.reads[maker]
        return frozenset(found)

    def _needed(self, kernels: Sequence[Chosen]) -> list[Chosen]:
        """The kernels, in the same order, without what nobody reads any more."""
        needed = set(self.atoms.returned)
        kept: list[Chosen] = []
        for chosen in reversed(kernels):
            outputs = tuple(value for value in chosen.outputs if value in needed)
            if not outputs:
                continue
            candidate = chosen.candidate
            atoms = self.atoms.needed(candidate.atoms, outputs)
            if atoms != candidate.atoms:
                candidate = self.context.kernels.try_add(atoms, outputs) or candidate
            kept.append(Chosen(candidate, outputs))
            needed.update(self.atoms.candidate(candidate.atoms, outputs).inputs)
        return kept[::-1]

    def _fits(self, draft: _Draft) -> bool:
        """Whether the memory is enough, if it is limited."""
        memory = self.context.memory
        if memory is None:
            return True
        planned = [kernel for _, kernel in planned_kernels(self.atoms, draft.kernels, ())]
        order = [Launch(number, place) for group in draft.groups for place, number in enumerate(group)]
        return memory.memory(planned, order).peak_bytes <= memory.nbytes


def _saves(before: _Draft, after: _Draft) -> bool:
    return after.us < (1 - _LEAST_SAVED) * before.us
