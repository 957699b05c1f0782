"""A unit: an instruction or a fusion, and what rules ask about the inside of one.

Three of these questions follow values from the roots to the operands of a fusion. How often would emitted code compute
one (`index_counts`, `emissions`)? And how much of one is read (`utilization`)?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import ceil, prod
from typing import Literal

from autofuse.lazydataclass import dataclass
from autofuse.search.rules.xla.hlo import Instruction

Kind = Literal["loop", "input", "output"]
"""How a fusion is emitted: a loop over its root, by what feeds a reduction or transpose, a product with an add."""
NO_REUSE = frozenset(("bitcast", "concatenate", "reshape", "reverse", "slice", "transpose", "gather"))
"""HloInstruction::OperandElementUse: with elementwise instructions, those that need each operand element once."""


@dataclass(frozen=True, eq=False)
class Unit:
    """An instruction by itself, or a fusion. Compared by identity."""

    members: tuple[Instruction, ...]
    """In the program's order."""
    roots: tuple[Instruction, ...]
    """What it writes."""
    operands: tuple[Instruction, ...]
    """What it reads, each once, in the order in which it came to read it."""
    kind: Kind | None = None
    """None: not a fusion."""

    @property
    def is_fusion(self) -> bool:
        return self.kind is not None

    @property
    def is_multi_output(self) -> bool:
        return len(self.roots) > 1

    @property
    def root(self) -> Instruction:
        """What it writes, or the first of it."""
        return self.roots[0]

    @property
    def opcode(self) -> str:
        return "fusion" if self.is_fusion else self.root.opcode

    @property
    def size(self) -> int:
        """Elements of all results."""
        return sum(root.size for root in self.roots)

    @property
    def nbytes(self) -> int:
        """Bytes of all results."""
        return sum(root.nbytes for root in self.roots)

    @property
    def output_buffers(self) -> int:
        """Results, and the tuple of them if there are several."""
        count = sum(len(root.types) for root in self.roots)
        return count if count == 1 else count + 1

    @cached_property
    def inside(self) -> frozenset[Instruction]:
        """Its members."""
        return frozenset(self.members)

    @cached_property
    def readers(self) -> Mapping[Instruction, tuple[Instruction, ...]]:
        """By value, the members that read it."""
        found: dict[Instruction, list[Instruction]] = {}
        for member in self.members:
            for operand in dict.fromkeys(member.operands):
                found.setdefault(operand, []).append(member)
        return {value: tuple(members) for value, members in found.items()}

    @cached_property
    def reused(self) -> frozenset[Instruction]:
        """The values of which one element may be needed for several of its results.

        XLA, HloInstruction::ReusesOperandElements; in a fusion, if an instruction on the way does.
        """
        found: set[Instruction] = set()
        for member in reversed(self.members):
            found.update(v for n, v in enumerate(member.operands) if member in found or _reuses(member, n))
        return frozenset(found)

    @cached_property
    def index_counts(self) -> Mapping[Instruction, float]:
        """By member and operand, how many different indices its elements are computed at.

        XLA, service/fusion_node_indexing_evaluation.cc: a transpose, and what has the shape of its operand, passes its
        own index on; everything else makes an index of its own for each operand.
        """
        uses = _first_uses(self)
        for member in reversed(self.members):
            own = uses[member]
            count = sum(own.values())
            for operand in member.operands:
                found = uses.setdefault(operand, {})
                found.update(own if _keeps_index(member, operand) else {member: count})
        return _summed(uses)

    def below(self, value: Instruction) -> Iterator[Instruction]:
        """The members that are computed from a value, by way of other members or not."""
        found: set[Instruction] = {value}
        for member in self.members:
            if not found.isdisjoint(member.operands):
                found.add(member)
                yield member

    def __repr__(self) -> str:
        return f"{self.kind or 'unit'} ({', '.join(map(repr, self.members))})"


def merged(first: Unit, second: Unit, roots: tuple[Instruction, ...], kind: Kind) -> Unit:
    """The members of both; the operands of the first come first."""
    inside = first.inside | second.inside
    members = tuple(sorted(inside, key=lambda member: member.number))
    operands = dict.fromkeys((*first.operands, *second.operands))
    return Unit(members, roots, tuple(value for value in operands if value not in inside), kind)


def read_by(members: Iterable[Instruction]) -> tuple[Instruction, ...]:
    """What members read that is not among them, each once."""
    inside = dict.fromkeys(members)
    operands = dict.fromkeys(operand for member in inside for operand in member.operands)
    return tuple(operand for operand in operands if operand not in inside)


def emissions(unit: Unit) -> Mapping[Instruction, float]:
    """By member and operand, how often it is emitted: only elementwise instructions pass their index on.

    XLA, service/gpu/gpu_hlo_cost_analysis.cc, FusionCalculateUtilizations.
    """
    return _by_origin(unit, lambda _reader, _operand: 1.0)


def utilization(unit: Unit) -> Mapping[Instruction, float]:
    """By member and operand, how many times the whole of it is read; less than 1 where only a part is.

    XLA, service/gpu/gpu_hlo_cost_analysis.cc, FusionCalculateUtilizations and operand_utilization.
    """
    return _by_origin(unit, _share)


_COUNTED = 1e9
"""Uses from which on they are not rounded."""
_Uses = dict[Instruction, dict[Instruction | None, float]]
"""By value, how often it is used by way of each index that was made for it, or for what is computed from it."""


def _by_origin(unit: Unit, share: Callable[[Instruction, int], float]) -> Mapping[Instruction, float]:
    """Uses of values. All readers that are not elementwise use a value at one index made for them together."""
    uses = _first_uses(unit)
    for member in reversed(unit.members):
        own = uses[member]
        total = sum(own.values())
        for number, operand in enumerate(member.operands):
            found = uses.setdefault(operand, {})
            if member.is_elementwise:
                for origin, count in own.items():
                    found[origin] = max(found.get(origin, 0.0), count)
            else:
                found[operand] = found.get(operand, 0.0) + _rounded_up(total * share(member, number), operand)
    return _summed(uses)


def _first_uses(unit: Unit) -> _Uses:
    uses: _Uses = {member: {} for member in unit.members}
    for root in unit.roots:
        uses[root][None] = 1.0
    return uses


def _summed(uses: _Uses) -> Mapping[Instruction, float]:
    return {value: sum(found.values()) for value, found in uses.items()}


def _keeps_index(reader: Instruction, value: Instruction) -> bool:
    return reader.opcode == "transpose" or reader.type.shape == value.type.shape


def _rounded_up(used: float, value: Instruction) -> float:
    """Uses in whole elements of a value."""
    return ceil(used * value.size) / value.size if value.size and used < _COUNTED else used


def _reuses(member: Instruction, number: int) -> bool:
    """Whether one element of an operand is needed for several result elements."""
    if member.is_elementwise or member.opcode in NO_REUSE:
        return False
    match member.opcode:
        case "pad":
            return number != 0
        case "reduce":
            return number >= len(member.types)
        case "dynamic_update_slice":
            return number > 1
        case "dot":
            return len(member.type.shape) > 1 or len(member.operands[1 - number].type.shape) > 1
        case _:
            return True


def _share(reader: Instruction, operand: int) -> float:
    """How many times an instruction reads the whole of an operand."""
    read = max(reader.operands[operand].size, 1)
    if operand > 0:
        return 1.0
    match reader.opcode:
        case "broadcast" | "slice" | "dynamic_slice" | "gather":
            return reader.size / read
        case "reduce_window":
            return reader.size * prod(reader.window) / read
        case "dynamic_update_slice":
            return 1.0 - reader.operands[1].size / read
        case _:
            return 1.0
