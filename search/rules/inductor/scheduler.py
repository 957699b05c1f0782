"""Inductor's scheduler: which buffers share a kernel.

In rounds, all pairs of units that use a buffer in common and may fuse are scored and tried, the best first; what has
fused meanwhile is looked at in its new form. Sources: torch/_inductor/scheduler.py and choices.py, torch 2.13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.inductor.code_generators import CodeGenerator
from autofuse.search.rules.inductor.scheduler_nodes import Buffer, Unit

ROUNDS = 10
"""Rounds, before a last one that comes in any case (scheduler.py, fuse_nodes)."""
MOST_TRIES_PER_BUFFER = 64
"""A user of a buffer is paired with so many of the next ones (config.py, max_fusion_buffer_group_pairwise_attempts)."""
MOST_MEMBERS = 64
"""Most buffers in a kernel (config.py, max_fusion_size)."""
LEAST_SHARED_BYTES = 10
"""Less in common is not worth a kernel of units that do not wait for one another (score_fusion_memory_threshold)."""
FARTHEST = 64
"""Such units are at most so many places apart (scheduler.py, are_long_distant_nodes)."""
MEMORY_FACTOR = 32
"""Elements kept alive for longer that a shared byte pays for (scheduler.py, can_fusion_increase_peak_memory)."""
MEMORY_DECIDES = 16
"""Where scores differ by more than this factor in bytes, bytes alone decide (choices.py, FusionScore)."""


@dataclass(frozen=True, slots=True)
class Score:
    """How good a fusion is. The order is not transitive, as in the original: sort with Python's own sort only."""

    shared_bytes: int
    same_type: bool
    """Reduction with reduction, pointwise with pointwise."""
    nearness: int

    def __lt__(self, other: Score) -> bool:
        mine, others = self.shared_bytes, other.shared_bytes
        if (mine > 0) != (others > 0) or max(mine, others) > min(mine, others) * MEMORY_DECIDES:
            return mine < others
        return (self.same_type, mine, self.nearness) < (other.same_type, others, other.nearness)


def score(first: Unit, second: Unit) -> Score:
    """choices.py, score_fusion."""
    shared = first.shared_bytes(second)
    same_type = first.is_reduction == second.is_reduction and shared > 0
    return Score(shared, same_type, -_distance(first, second))


def _distance(first: Unit, second: Unit) -> int:
    return max(abs(first.first - second.last), abs(second.first - first.last))


@dataclass(slots=True)
class Scheduler:
    """The units of one program, while they fuse."""

    grouping: Grouping
    code: CodeGenerator
    units: list[Unit]
    """In order; replaced as they fuse."""
    _unit_of: dict[Buffer, Unit] = field(init=False)
    _maker: dict[Value, Buffer] = field(init=False)
    _readers: Counter[Value] = field(init=False)
    """How many buffers read a value; that the program returns it counts as one."""
    _refused: set[tuple[Unit, Unit]] = field(default_factory=set[tuple[Unit, Unit]])
    """Pairs that the rule would fuse and `grouping` has no kernel for: from then on as if the backend had said no."""

    def __post_init__(self) -> None:
        buffers = [member for unit in self.units for member in unit.members]
        self._unit_of = {member: unit for unit in self.units for member in unit.members}
        self._maker = {value: buffer for buffer in buffers for value in buffer.values}
        self._readers = Counter(value for buffer in buffers for value in buffer.sources)
        self._readers.update(set(self.grouping.atoms.graph.outputs))

    def run(self) -> None:
        """Fuse until a round changes nothing, then once more."""
        rounds = 0
        while rounds < ROUNDS:
            before, refused = len(self.units), len(self._refused)
            self._round()
            if len(self.units) == before and len(self._refused) > refused:
                continue
            rounds += 1
            if len(self.units) in (before, 1):
                break
        self._round()

    def _round(self) -> None:
        for pair in self._candidates():
            first, second = (self._unit_of[unit.members[0]] for unit in pair)
            if self._can_fuse(first, second):
                self._fuse(first, second)
        found = dict.fromkeys(self._unit_of.values())
        self.units = self._in_order(sorted(found, key=lambda unit: unit.first))

    # ---- candidates ----------------------------------------------------------------------------------------------

    def _candidates(self) -> list[tuple[Unit, Unit]]:
        """Pairs of the best class that there is, the best pair first."""
        pairs = [pair for pair in self._pairs() if self._can_fuse(*pair)]
        classes = [self.code.priority(*pair) for pair in pairs]
        least = min(classes, default=0)
        best = [pair for pair, number in zip(pairs, classes, strict=True) if number == least]
        return sorted(best, key=lambda pair: score(*pair), reverse=True)

    def _pairs(self) -> Iterator[tuple[Unit, Unit]]:
        """Pairs that use a value in common, each once."""
        using: dict[Value, list[Unit]] = {}
        for unit in self.units:
            if unit.can_fuse:
                for value in unit.used:
                    using.setdefault(value, []).append(unit)
        seen: set[tuple[Unit, Unit]] = set()
        for units in using.values():
            for number, first in enumerate(units):
                for second in units[number + 1 : number + 1 + MOST_TRIES_PER_BUFFER]:
                    if (first, second) not in seen:
                        seen.add((first, second))
                        yield first, second

    # ---- vetoes --------------------------------------------------------------------------------------------------

    def _can_fuse(self, first: Unit, second: Unit) -> bool:
        """scheduler.py and choices.py, can_fuse, in their order."""
        if first is second or second.names & first.ancestors or (first, second) in self._refused:
            return False
        shared = first.shared_bytes(second)
        if shared == 0 or len(first.members) + len(second.members) > MOST_MEMBERS:
            return False
        if self._kept_alive(first, second) > MEMORY_FACTOR * shared:
            return False
        if first.names & second.ancestors:
            return self._finds_what_it_reads(first, second) and self.code.can_fuse_vertical(first, second)
        if shared < LEAST_SHARED_BYTES or _distance(first, second) > FARTHEST:
            return False
        return self.code.can_fuse_horizontal(first, second)

    def _kept_alive(self, first: Unit, second: Unit) -> int:
        """Elements of buffers that each could have reused for its result, had they run one after the other."""
        return sum(size for _, size in self._reusable(first) & self._reusable(second))

    def _reusable(self, unit: Unit) -> set[tuple[str, int]]:
        """The kinds of buffers that a unit alone reads: dtype and size."""
        values = {read.value for read in unit.reads}
        single = [value for value in values if value in self._maker and self._readers[value] == 1]
        return {(value.type.dtype.name, value.type.size) for value in single}

    def _finds_what_it_reads(self, maker: Unit, user: Unit) -> bool:
        """scheduler.py, can_fuse_vertical: what the user reads is just being written, or was there before."""
        for read in user.reads:
            buffer = self._maker.get(read.value)
            if buffer is None or any(read.matches(write) for write in maker.writes):
                continue
            other = self._unit_of[buffer]
            if other is user:
                continue
            if other is maker or maker.names & other.ancestors:
                return False
        return True

    # ---- fusing --------------------------------------------------------------------------------------------------

    def _fuse(self, first: Unit, second: Unit) -> None:
        """Unless a circle would come of it (scheduler.py, will_fusion_create_cycle)."""
        refused = len(self.grouping.refused)
        kernel = self.grouping.join(first.kernel, second.kernel)
        if kernel is None:
            if len(self.grouping.refused) > refused:
                self._refused.add((first, second))
            return
        made = self.code.fuse(first, second, kernel)
        for member in made.members:
            self._unit_of[member] = made

    def _in_order(self, units: Sequence[Unit]) -> list[Unit]:
        """So that each comes after what it reads; otherwise as given (scheduler.py, topological_sort_schedule)."""
        done: dict[Unit, None] = {}
        stack = [(unit, False) for unit in reversed(units)]
        while stack:
            unit, is_ready = stack.pop()
            if unit in done:
                continue
            if is_ready:
                done[unit] = None
                continue
            stack.append((unit, True))
            makers = sorted({self._maker[v] for v in unit.sources if v in self._maker}, key=lambda buffer: buffer.name)
            stack += [(self._unit_of[buffer], False) for buffer in reversed(makers)]
        return list(done)
