"""Kernels as XLA:GPU has them: an instruction alone, or several fused.

A kernel's body holds copies of instructions: what is fused into two users that then meet in one kernel stands in it
twice, until the clean-up that follows a round. So its costs are those that XLA sees.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from autofuse.fusion.atoms import FusionAtom
from autofuse.lazydataclass import dataclass, replace
from autofuse.search.rules.priority.instructions import BITCAST, Instruction


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a body."""

    instruction: Instruction
    operands: tuple[int, ...]
    """For each operand the position of the step that computes it, or ~k for the k-th parameter."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """An instruction alone, or a fusion. Compared by identity."""

    number: int
    """Later kernels have larger ones; a fusion keeps its number when it grows."""
    steps: tuple[Step, ...]
    """Each after those it reads."""
    parameters: tuple[Instruction, ...]
    """What it reads from memory, each once."""
    roots: tuple[int, ...]
    """The steps whose results it writes."""
    is_fusion: bool

    def __repr__(self) -> str:
        return f"kernel {self.number} ({', '.join(step.instruction.opcode for step in self.steps)})"

    @property
    def written(self) -> tuple[Instruction, ...]:
        """The instructions whose results it writes."""
        return tuple(self.steps[root].instruction for root in self.roots)

    @property
    def first(self) -> Instruction:
        """The first of what it writes."""
        return self.steps[self.roots[0]].instruction

    @property
    def is_bitcast(self) -> bool:
        """Whether it is a bitcast alone, which takes no time."""
        return not self.is_fusion and self.first.opcode == BITCAST

    @property
    def is_fusible(self) -> bool:
        """Whether XLA fuses it with others at all."""
        return self.is_fusion or self.first.is_fusible

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(step.instruction for step in self.steps)

    @cached_property
    def atoms(self) -> frozenset[FusionAtom]:
        """What it computes, on this side."""
        return frozenset(i.atom for i in self.instructions if i.atom is not None)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the steps that read it."""
        found: list[list[int]] = [[] for _ in self.steps]
        for number, step in enumerate(self.steps):
            for operand in dict.fromkeys(step.operands):
                if operand >= 0:
                    found[operand].append(number)
        return tuple(map(tuple, found))

    def operand(self, step: Step, number: int) -> Instruction:
        """The instruction that an operand of a step is."""
        at = step.operands[number]
        return self.steps[at].instruction if at >= 0 else self.parameters[~at]


def alone(instruction: Instruction) -> Kernel:
    """An instruction that is not fused."""
    parameters = tuple(dict.fromkeys(instruction.operands))
    operands = tuple(~parameters.index(operand) for operand in instruction.operands)
    return Kernel(instruction.number, (Step(instruction, operands),), parameters, (0,), False)


def combined(first: Kernel, second: Kernel, number: int, kept: Collection[Instruction] = ()) -> Kernel:
    """A fusion of both, that computes `first` within `second`, which may read it.

    It writes what `second` did and, of what `first` did, the instructions in `kept`.
    """
    made = {first.steps[root].instruction: root for root in first.roots}
    outside = (*(p for p in second.parameters if p not in made), *first.parameters)
    parameters = {instruction: ~k for k, instruction in enumerate(dict.fromkeys(outside))}
    offset = len(first.steps)
    front = {~k: parameters[p] for k, p in enumerate(first.parameters)} | {k: k for k in range(offset)}
    back = {~k: made[p] if p in made else parameters[p] for k, p in enumerate(second.parameters)}
    back |= {k: k + offset for k in range(len(second.steps))}
    steps = (*(_moved(step, front) for step in first.steps), *(_moved(step, back) for step in second.steps))
    roots = (*(root + offset for root in second.roots), *(root for i, root in made.items() if i in kept))
    return Kernel(number, steps, tuple(parameters), roots, True)


def deduplicated(kernel: Kernel) -> Kernel:
    """The kernel with equal copies of an instruction made one; the same object if there are none."""
    places: dict[Step, int] = {}
    moved: dict[int, int] = {~k: ~k for k in range(len(kernel.parameters))}
    for number, step in enumerate(kernel.steps):
        moved[number] = places.setdefault(_moved(step, moved), len(places))
    if len(places) == len(kernel.steps):
        return kernel
    return replace(kernel, steps=tuple(places), roots=tuple(moved[root] for root in kernel.roots))


def _moved(step: Step, places: dict[int, int]) -> Step:
    return Step(step.instruction, tuple(places[operand] for operand in step.operands))
