"""What Inductor's scheduler handles: buffers, and the fused nodes that they grow into."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.grouping import Group
from autofuse.search.rules.inductor.loop_bodies import Body
from autofuse.search.rules.inductor.loop_simplification import Access, Nest


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """One thing to compute, in its place in the scheduler's first order."""

    number: int
    values: tuple[Value, ...]
    """What it leaves in memory."""
    body: Body | None
    """None for calls and for what has no kernel."""
    sources: tuple[Value, ...]
    """The values it reads, of other buffers, inputs and constants."""
    ancestors: int
    """The buffers that it waits for, directly or not, as a set of bits by number."""

    @property
    def name(self) -> str:
        """By which dependencies are sorted."""
        return f"buf{self.number}"


@dataclass(frozen=True, eq=False)
class Unit:
    """A node of the scheduler: one buffer or several that share a kernel."""

    members: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    """Of the members; none for a call or what has no kernel."""
    kernel: Group
    parts: tuple[Unit, ...] = ()
    """Of an outer-loop fusion: the units whose outermost loops are shared, in order."""
    depth: int = 0
    """Of an outer-loop fusion: how many loops are shared."""

    def __repr__(self) -> str:
        return f"unit ({', '.join(member.name for member in self.members)})"

    @property
    def can_fuse(self) -> bool:
        """Calls, and what has no kernel, fuse with nothing."""
        return bool(self.nests)

    @cached_property
    def names(self) -> int:
        """Its buffers as a set of bits."""
        return sum(1 << member.number for member in self.members)

    @cached_property
    def ancestors(self) -> int:
        """What its members wait for; members among them."""
        found = 0
        for member in self.members:
            found |= member.ancestors
        return found

    @cached_property
    def writes(self) -> dict[Access, None]:
        return {nest.write: None for nest in self.nests}

    @cached_property
    def reads(self) -> dict[Access, None]:
        """What the members read, except exactly what one of them writes."""
        return {read: None for nest in self.nests for read in nest.reads if read not in self.writes}

    @cached_property
    def values(self) -> dict[Value, None]:
        """What it leaves in memory, unless nobody else needs it."""
        return {value: None for member in self.members for value in member.values}

    @cached_property
    def used(self) -> dict[Value, None]:
        """All it reads or writes, in order."""
        found: dict[Value, None] = {}
        for nest in self.nests:
            found |= {access.value: None for access in (*nest.reads, nest.write)}
        return found

    @cached_property
    def sources(self) -> tuple[Value, ...]:
        """What it reads of others."""
        found = dict.fromkeys(value for member in self.members for value in member.sources)
        return tuple(value for value in found if value not in self.values)

    @cached_property
    def is_reduction(self) -> bool:
        return any(nest.is_reduction for nest in self.nests)

    @cached_property
    def loops(self) -> Nest:
        """The loops it is compared by: those of its first reduction, or of its first member."""
        return next((nest for nest in self.nests if nest.is_reduction), self.nests[0])

    @property
    def first(self) -> int:
        return min(member.number for member in self.members)

    @property
    def last(self) -> int:
        return max(member.number for member in self.members)

    def shared_bytes(self, other: Unit) -> int:
        """The bytes of accesses that both make in the same way (scheduler.py, score_fusion_memory)."""
        mine, others = self.reads | self.writes, other.reads | other.writes
        return sum(access.nbytes for access in mine if access in others)


def fused(first: Unit, second: Unit, kernel: Group) -> Unit:
    """One loop nest for both."""
    return Unit((*first.members, *second.members), (*first.nests, *second.nests), kernel)


def nested(parts: Iterable[Unit], kernel: Group, depth: int) -> Unit:
    """Several loop nests within shared outer loops."""
    parts = tuple(parts)
    members = tuple(member for part in parts for member in part.members)
    return Unit(members, tuple(nest for part in parts for nest in part.nests), kernel, parts, depth)
