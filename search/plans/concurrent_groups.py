"""Running order and concurrent groups: small kernels that do not depend on one another share a launch.

A kernel of a few microseconds cannot keep all workers busy, and each launch costs a fork-join. So the plan is
list-scheduled: whenever several small kernels are ready they form a group, whose members run at the same time in places
0, 1, 2, ...; a large kernel fills the machine and runs alone. (Horizontal fusion in XLA's words, without new code: the
launches of a group are joined when the plan is linked.)
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from autofuse.lazydataclass import dataclass
from autofuse.lower.limits import Limits


@dataclass(frozen=True, slots=True)
class Work:
    """One kernel to be placed."""

    reads: Collection[Hashable]
    writes: Collection[Hashable]
    us: float
    """Expected time; infinite if unknown, so that it runs alone."""
    replaces: Collection[Hashable] = ()
    """Values whose memory it may write into: it runs after those that read them, where that is possible."""


def list_schedule(kernels: Sequence[Work], limits: Limits = Limits()) -> list[tuple[int, int]]:  # noqa: B008 - frozen
    """(kernel, place in its group) in running order. A place above 0 runs beside the entry before it.

    `kernels` must be in an order in which each can run; it is kept as far as grouping allows, for the sake of caches.
    `limits`: which kernels are small on the target, and how many of them run at the same time.
    """
    maker = {value: number for number, kernel in enumerate(kernels) for value in kernel.writes}
    waits = [{maker[v] for v in kernel.reads if v in maker and maker[v] != n} for n, kernel in enumerate(kernels)]
    _wait_for_readers(kernels, waits)
    followers: list[list[int]] = [[] for _ in kernels]
    for number, before in enumerate(waits):
        for other in before:
            followers[other].append(number)
    ready = sorted(number for number, before in enumerate(waits) if not before)
    order: list[tuple[int, int]] = []
    while ready:
        small = [number for number in ready if kernels[number].us < limits.small_us]
        group = small[: limits.most_together] if len(small) > 1 else ready[:1]
        order += [(number, place) for place, number in enumerate(group)]
        ready = [number for number in ready if number not in group]
        for number in group:
            for follower in followers[number]:
                waits[follower].discard(number)
                if not waits[follower]:
                    ready.append(follower)
        ready.sort()
    return order


def _wait_for_readers(kernels: Sequence[Work], waits: list[set[int]]) -> None:
    """Let kernels that replace values wait for the readers of these, unless a reader waits for such a kernel."""
    for number, kernel in enumerate(kernels):
        for value in kernel.replaces:
            for reader, other in enumerate(kernels):
                if reader != number and value in other.reads and not _waits(reader, number, waits):
                    waits[number].add(reader)


def _waits(kernel: int, other: int, waits: Sequence[set[int]]) -> bool:
    """Whether a kernel waits for another one, at last."""
    seen: set[int] = set()
    todo = [kernel]
    while todo:
        at = todo.pop()
        if at == other:
            return True
        if at not in seen:
            seen.add(at)
            todo += waits[at]
    return False
