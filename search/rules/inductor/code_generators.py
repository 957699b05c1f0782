"""What Inductor's code generators can put into one kernel: C++ compares loops, Triton numbers of points.

Sources: codegen/cpp.py (CppScheduling), codegen/simd.py (SIMDScheduling.can_fuse), torch 2.13. Of the Triton rule the
following is left out: tilings of more than two dimensions, reductions split in layers, reductions over different axes
in one kernel (mix-order), and the reordering of loops in the last round.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Protocol

from autofuse.lazydataclass import dataclass, replace
from autofuse.search.rules.grouping import Group
from autofuse.search.rules.inductor.loop_simplification import LoopRules, Nest, formulas_of
from autofuse.search.rules.inductor.scheduler_nodes import Unit, fused, nested

MOST_HORIZONTAL = 16
"""Most buffers in a kernel that grows sideways on CPU (config.py, cpp.max_horizontal_fusion_size)."""


_CPP_LOOPS = LoopRules(orders_by_loads=True, merges=True)
_TRITON_LOOPS = LoopRules(orders_by_loads=False, merges=False)


class CodeGenerator(Protocol):
    """The questions the scheduler asks."""

    @property
    def loop_rules(self) -> LoopRules:
        """How loop nests are made."""
        ...

    def can_fuse_vertical(self, maker: Unit, user: Unit) -> bool:
        """Whether a kernel may hold a unit and one that waits for it."""
        ...

    def can_fuse_horizontal(self, first: Unit, second: Unit) -> bool:
        """Whether a kernel may hold two units that do not wait for one another."""
        ...

    def priority(self, first: Unit, second: Unit) -> int:
        """Of the pairs of a round, only those of the least number are tried."""
        ...

    def fuse(self, first: Unit, second: Unit, kernel: Group) -> Unit:
        """The unit that two become."""
        ...


class _Why(Enum):
    """Why two units have the same loops (cpp.py, ReasonFusedNodes)."""

    SAME = "same"
    REDUCTION = "reduction"
    """The first walks what the second reduces."""
    RANGES = "ranges"
    """One loop over what the other has several for."""


@dataclass(frozen=True, slots=True)
class Cpp:
    """Loops must be equal, or the outer ones be shared."""

    loop_rules: LoopRules = _CPP_LOOPS

    def can_fuse_vertical(self, maker: Unit, user: Unit) -> bool:
        return self._is_inner(maker, user) or self._shares_outer_loops(maker, user)

    def can_fuse_horizontal(self, first: Unit, second: Unit) -> bool:
        if len(first.members) + len(second.members) > MOST_HORIZONTAL:
            return False
        return not (first.parts or second.parts) and self._why(first, second) is not None

    def priority(self, first: Unit, second: Unit) -> int:
        """Outer loops are shared only when nothing else is left to do."""
        return int(self._shares_outer_loops(first, second))

    def fuse(self, first: Unit, second: Unit, kernel: Group) -> Unit:
        if not (first.parts or second.parts) and self._why(first, second) is _Why.RANGES:
            aligned = self._aligned(first, second)
            assert aligned is not None
            return fused(*aligned, kernel)
        if self._shares_outer_loops(first, second):
            parts = (*(first.parts or (first,)), *(second.parts or (second,)))
            return nested(parts, kernel, self._outer_depth(first, second))
        return fused(first, second, kernel)

    def _is_inner(self, maker: Unit, user: Unit) -> bool:
        """Whether the user's body can follow the maker's in the same loop; never after a reduction."""
        if maker.parts or user.parts or maker.is_reduction:
            return False
        return self._why(maker, user) is not None

    def _shares_outer_loops(self, maker: Unit, user: Unit) -> bool:
        waits = bool(maker.names & user.ancestors)
        return waits and not self._is_inner(maker, user) and self._outer_depth(maker, user) >= 1

    def _why(self, first: Unit, second: Unit) -> _Why | None:
        one, other = first.loops, second.loops
        if (one.outer, one.reduced) == (other.outer, other.reduced):
            return _Why.SAME
        if not one.reduced and one.outer == (*other.outer, *other.reduced):
            return _Why.REDUCTION
        return _Why.RANGES if self._aligned(first, second) is not None else None

    def _aligned(self, first: Unit, second: Unit) -> tuple[Unit, Unit] | None:
        """Both with the same loops, where one has merged what the other could not; None if that does not help."""
        one, other = first.loops, second.loops
        if one.reduced or other.reduced or math.prod(one.outer) != math.prod(other.outer):
            return None
        if 1 not in (len(one.outer), len(other.outer)):
            return None
        merged, kept = (first, second) if len(one.outer) < len(other.outer) else (second, first)
        if len(merged.members) > 1 or len({_shape(*pair) for pair in _pairs(merged, kept)}) != 1:
            return None
        merged = self._beside(merged, kept)
        if merged.loops.outer != kept.loops.outer:
            kept = self._beside(kept, merged)
        if merged.loops.outer != kept.loops.outer:
            return None
        return (merged, kept) if len(one.outer) < len(other.outer) else (kept, merged)

    def _beside(self, unit: Unit, other: Unit) -> Unit:
        """A unit whose loops also suit the index expressions of another."""
        formulas = [f for member in other.members if member.body is not None for f in formulas_of(member.body)]
        bodies = [member.body for member in unit.members if member.body is not None]
        return replace(unit, nests=tuple(self.loop_rules.nest(body, formulas) for body in bodies))

    def _outer_depth(self, first: Unit, second: Unit) -> int:
        """How many loops two units share from the outside (cpp.py, _get_outer_loop_fusion_depth); 0: none."""
        one = (first.parts or (first,))[-1].loops
        other = (second.parts or (second,))[0].loops
        if not one.outer and not other.outer and one.reduced and other.reduced:
            return 0
        if first.parts and second.parts:
            return first.depth if first.depth == second.depth else 0
        depth = min(len(one.outer), len(other.outer))
        if depth < 1 or one.outer[:depth] != other.outer[:depth]:
            return 0
        return depth if all(unit.depth == depth for unit in (first, second) if unit.parts) else 0


def _pairs(*units: Unit) -> list[tuple[Unit, int]]:
    return [(unit, number) for unit in units for number in range(len(unit.members))]


def _shape(unit: Unit, number: int) -> tuple[int, ...]:
    """The extents of a member's loops before any change."""
    body = unit.members[number].body
    return () if body is None else tuple(symbol.extent for symbol in body.loops)


@dataclass(frozen=True, slots=True)
class Triton:
    """Numbers of points must agree."""

    loop_rules: LoopRules = _TRITON_LOOPS

    def can_fuse_vertical(self, maker: Unit, user: Unit) -> bool:
        return self._fits(maker, user)

    def can_fuse_horizontal(self, first: Unit, second: Unit) -> bool:
        return self._fits(first, second)

    def priority(self, first: Unit, second: Unit) -> int:
        """All pairs are equal."""
        del first, second
        return 0

    def fuse(self, first: Unit, second: Unit, kernel: Group) -> Unit:
        return fused(first, second, kernel)

    def _fits(self, first: Unit, second: Unit) -> bool:
        if first.is_reduction and not second.is_reduction:
            first, second = second, first
        points, reduced = math.prod(first.loops.outer), math.prod(first.loops.reduced)
        others, other_reduced = math.prod(second.loops.outer), math.prod(second.loops.reduced)
        if first.is_reduction or not second.is_reduction:
            return (points, reduced) == (others, other_reduced)
        if points != others * other_reduced:
            return points == others
        return all(_splits(nest, others, other_reduced) for nest in first.nests)


def _splits(nest: Nest, outer: int, inner: int) -> bool:
    """Whether loops fall into two groups with these products, cutting a loop if need be (simd.py, is_compatible)."""
    left = outer
    for extent in nest.outer:
        if left == 1:
            return True
        if extent > left:
            return extent % left == 0 and (extent // left) > 0 and inner % (extent // left) == 0
        if not extent or left % extent:
            return False
        left //= extent
    return left == 1
