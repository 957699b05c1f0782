"""Screening: which partitions are worth tuning, as whole plans under default schedules; then their schedules."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.lazydataclass import dataclass
from autofuse.search.budget.budget import Clock
from autofuse.search.budget.ending import SCHEDULE_SHARE, Ending
from autofuse.search.policies.policy import Partition
from autofuse.search.tune.finalists import Races
from autofuse.search.tune.kerneltimes import KernelTimes
from autofuse.search.tune.plandrafts import Drafts, Named, distinct

_MOST = 2
"""Partitions of rules, the fastest end to end, whose schedules are tuned too; and as many of the others."""
_OUTRUN = 1.5
"""A plan that takes so many times as long as the fastest, all under default schedules, gets none of its own."""


@dataclass(frozen=True, slots=True)
class Screened:
    """What is left of the partitions besides the chosen one."""

    ruled: list[Named]
    """Of rules of other compilers."""
    others: list[Named]
    notes: list[str]
    """On those whose schedules were not tuned, or not to the end."""


@dataclass(frozen=True, slots=True)
class Screening:
    """Sees which partitions are the fastest, and tunes their schedules."""

    drafts: Drafts
    times: KernelTimes
    races: Races
    ending: Ending
    clock: Clock

    def screened(self, chosen: Named, ruled: Sequence[Named], others: Sequence[Named]) -> Screened:
        """The fastest partitions of rules, and of others, end to end under default schedules.

        They and the chosen one get their schedules tuned, the fastest first. Where there is no time to see which they
        are, the chosen one alone does.
        """
        own, *rest = distinct((chosen, *others))
        entries = [  # a comparison that has no time for all of them runs the last ones
            entry
            for entry in (*distinct(ruled), *rest, own)
            if self.drafts.fits(self.drafts.timed(entry[1])) and not self.drafts.has_failed(entry[1])
        ]
        order = self._order(entries)
        ranked = [(slow, entries[number]) for slow, number in order] or [(1.0, entry) for entry in entries]
        self.ending.reserve(self.races.each_s)
        rules = {name for name, _ in ruled}
        of_rules = [(slow, entry) for slow, entry in ranked if entry[0] in rules][:_MOST]
        nearest = [(slow, e) for slow, e in ranked if e[0] not in rules and e[0] != chosen[0]][:_MOST]
        first = [(slow, entry) for slow, entry in ranked if entry[0] == chosen[0]]
        in_turn = sorted([*first, *of_rules, *nearest], key=lambda pair: pair[0])
        tuned = in_turn if order else first
        self._tune_in_turn([entry[1] for entry in distinct(entry for slow, entry in tuned if slow < _OUTRUN)])
        notes: list[str] = []
        for slow, (name, partition) in in_turn:
            if slow >= _OUTRUN:
                notes.append(f"no schedules were tuned for {name}, which took {slow:.1f} times as long without")
            elif name != chosen[0] and not self._is_tuned(partition):
                notes.append(f"compared with {name} before all of its schedules were tuned: the budget was used")
        return Screened([entry for _, entry in of_rules], [entry for _, entry in nearest], notes)

    def _order(self, entries: Sequence[Named]) -> list[tuple[float, int]]:
        """How many times as long as the fastest each takes, and its number, the fastest first; [] without the time."""
        self.clock.be_ready()
        terms = self.ending.screening()
        if len(entries) < 2 or terms is None or not self.clock.share_left(SCHEDULE_SHARE):
            return []
        return self.races.in_order(
            [self.drafts.document(self.drafts.timed(partition)) for _, partition in entries], *terms
        )

    def _is_tuned(self, partition: Partition) -> bool:
        return self.drafts.schedules.is_done(partition.kernels) or self.drafts.has_failed(partition)

    def _tune_in_turn(self, partitions: Sequence[Partition]) -> None:
        """Tune the schedules of partitions, each with half of what is left for that, then all with the rest.

        The first one is kept. One alone has all of it at once: it may be too little for two batches.
        """
        halves = [(partition, 0.5) for partition in partitions] if len(partitions) > 1 else []
        for partition, part in (*halves, *((partition, 0.0) for partition in partitions)):
            share = SCHEDULE_SHARE - part * max(0.0, SCHEDULE_SHARE - self.clock.used())
            self.times.measure((kernel.candidate for kernel in partition.kernels), share)
            self.drafts.schedules.tune(partition.kernels, share)
            if partition is partitions[0]:
                self.drafts.keep(self.drafts.timed(partition, scheduled=True))
