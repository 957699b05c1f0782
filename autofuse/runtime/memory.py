"""The static memory plan: where each temporary lives in the arena, given when it is alive, and what a call needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from autofuse.ir.graph import Graph, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.overwriting import may_write_in_place
from autofuse.lower.tile import Space
from autofuse.runtime.frames import Frame, frame_of
from autofuse.runtime.planlowering import LoweredKernel, groups_of, may_fail

ALIGNMENT = 64
"""Bytes: a cache line, and a vector of 512 bits."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One intermediate buffer."""

    nbytes: int
    first: int
    """The step that writes it."""
    last: int
    """The last step that reads it; at least `first`."""


Workspace = tuple[int, str]
"""Memory private to a kernel: its position in running order, and the name of the buffer."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What lives in the arena while one group of kernels runs."""

    values: Mapping[Value, int]
    """Bytes of the arena that each takes."""
    workspaces: Mapping[int, int]
    """The same for workspaces, by the kernel's position in running order."""

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        return sum(self.values.values()) + sum(self.workspaces.values())


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of one call, in bytes."""

    offsets: Mapping[Value, int]
    """Of temporaries in the arena."""
    workspaces: Mapping[Workspace, int]
    """Offsets of workspaces in the arena."""
    arena_bytes: int
    """Of temporaries and workspaces: the most that live at one time, and what lies between them."""
    aliases: tuple[tuple[int, int], ...]
    """(output, input): results that are written straight into an argument."""
    argument_bytes: int
    constant_bytes: int
    """Of constants that kernels read from memory."""
    result_bytes: int
    """Of results that are no arguments."""
    lives: Mapping[Value | Workspace, Lifetime]
    """Of temporaries and workspaces; steps are groups of kernels that run at the same time."""
    used: tuple[int, ...]
    """Bytes in use in the arena, by step."""
    homes: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    """Of temporaries that lie where another value is written in their place, at last: that value."""

    @property
    def peak_bytes(self) -> int:
        """All that exists while a call runs: arguments, constants, results, temporaries and workspaces."""
        return self.fixed_bytes + self.arena_bytes

    @property
    def fixed_bytes(self) -> int:
        """The same without the arena: what no choice of kernels changes much."""
        return self.argument_bytes + self.constant_bytes + self.result_bytes

    @property
    def launches(self) -> int:
        """Groups of kernels that run one after the other."""
        return len(self.used)

    def moment(self, step: int) -> Moment:
        """What is alive at a step."""
        alive = {key: _padded(life.nbytes) for key, life in self.lives.items() if life.first <= step <= life.last}
        spaces: dict[int, int] = {}
        for key, nbytes in alive.items():
            if isinstance(key, tuple):
                spaces[key[0]] = spaces.get(key[0], 0) + nbytes
        return Moment({key: nbytes for key, nbytes in alive.items() if isinstance(key, Value)}, spaces)


def plan_arena(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """Byte offsets, in the given order, and the size of the arena.

    Greedy by size: largest first, each at the lowest offset that is free during its life (Pisarchyk & Lee 2020,
    "Efficient memory management for deep neural net inference").
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for number in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].nbytes, n)):
        mine = lifetimes[number]
        busy = sorted(
            (offsets[other], offsets[other] + _padded(lifetimes[other].nbytes))
            for other in placed
            if lifetimes[other].first <= mine.last and mine.first <= lifetimes[other].last
        )
        offset = 0
        for low, high in busy:
            if offset + _padded(mine.nbytes) <= low:
                break
            offset = max(offset, high)
        offsets[number] = offset
        placed.append(number)
        total = max(total, offset + _padded(mine.nbytes))
    return tuple(offsets), total


def _padded(nbytes: int) -> int:
    return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT


Arrange = Callable[[Sequence[Lifetime]], tuple[tuple[int, ...], int]]
"""Places temporaries: their byte offsets, in the given order, and the size of the arena."""


@dataclass(frozen=True, slots=True)
class RegionsMemory:
    """The memory of a loop or branch that a driver runs, in bytes from the beginning of its part of the arena."""

    frame: Frame
    """Its own memory begins at 0."""
    programs: tuple[MemoryPlan, ...]
    """Of each program inside, in a part of the arena that begins behind the frame's: no two run at the same time."""

    @property
    def arena_bytes(self) -> int:
        """Of the frame and the programs."""
        return self.frame.own_bytes + max(plan.arena_bytes for plan in self.programs)


REGIONS = "regions"
"""The name of the memory of a loop or branch among workspaces."""


def plan_regions(kernel: LoweredKernel) -> RegionsMemory:
    """Plan the memory of a kernel that a driver runs."""
    programs = tuple(
        plan_memory(region.program.graph, region.program.writebacks, region.kernels) for region in kernel.regions
    )
    overwritten = frozenset(
        region.program.graph.outputs[output]
        for region, plan in zip(kernel.regions, programs, strict=True)
        for output, _ in plan.aliases
    )
    return RegionsMemory(frame_of(kernel, overwritten), programs)


def plan_memory(
    graph: Graph, writebacks: Sequence[int], kernels: Sequence[LoweredKernel], arrange: Arrange = plan_arena
) -> MemoryPlan:
    """Plan the memory of one call.

    `writebacks`: inputs that the last outputs are the new values of. `kernels`: in running order.
    """
    groups = groups_of(kernels)
    homes = _homes(graph, kernels, groups)
    lives = _lifetimes(graph, kernels, groups, homes)
    offsets, total = arrange(list(lives.values()))
    where = dict(zip(lives, offsets, strict=True))
    aliases = _aliases(graph, writebacks, kernels, groups, homes)
    written = {output for output, _ in aliases}
    return MemoryPlan(
        offsets={key: offset for key, offset in where.items() if isinstance(key, Value)},
        workspaces={key: offset for key, offset in where.items() if isinstance(key, tuple)},
        arena_bytes=total,
        aliases=aliases,
        argument_bytes=sum(value.type.nbytes for value in graph.inputs),
        constant_bytes=_constant_bytes(graph, kernels),
        result_bytes=sum(v.type.nbytes for number, v in enumerate(graph.outputs) if number not in written),
        lives=lives,
        used=_used(lives.values(), groups[-1] + 1 if groups else 0),
        homes=homes,
    )


def _homes(graph: Graph, kernels: Sequence[LoweredKernel], groups: Sequence[int]) -> dict[Value, Value]:
    """Temporaries that a kernel replaces by an output which holds them, and what lies there at last."""
    made = {value for kernel in kernels for value in kernel.writes}
    following = {
        source: target
        for kernel in kernels
        for target, source in _held(kernel).items()
        if source in made.difference(graph.outputs) and _safe_in_place(source, [target], kernels, groups)
    }
    return {source: _last(target, following) for source, target in following.items()}


def _last(value: Value, following: Mapping[Value, Value]) -> Value:
    while value in following:
        value = following[value]
    return value


def _held(kernel: LoweredKernel) -> dict[Value, Value]:
    """Outputs that hold an input, and that input."""
    values = dict(zip(_parameters(kernel), (*kernel.reads, *kernel.writes), strict=True))
    return {values[buffer.name]: values[buffer.holds] for buffer in kernel.program.buffers if buffer.holds}


def _lifetimes(
    graph: Graph, kernels: Sequence[LoweredKernel], groups: Sequence[int], homes: Mapping[Value, Value]
) -> dict[Value | Workspace, Lifetime]:
    """When temporaries and workspaces are alive; steps are groups. Values at one home are one temporary."""
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    returned = set(graph.outputs)
    for step, kernel in zip(groups, kernels, strict=True):
        for value in (homes.get(value, value) for value in kernel.writes):
            if value not in returned:
                first.setdefault(value, step)
                last[value] = max(last.get(value, step), step)
        for value in (homes.get(value, value) for value in kernel.reads):
            if value in first:
                last[value] = max(last[value], step)
    lives: dict[Value | Workspace, Lifetime] = {
        value: Lifetime(value.type.nbytes, first[value], last[value]) for value in first
    }
    for number, kernel in enumerate(kernels):
        for buffer in kernel.workspaces:
            lives[number, buffer.name] = Lifetime(buffer.type.nbytes, groups[number], groups[number])
        if kernel.regions:
            lives[number, REGIONS] = Lifetime(plan_regions(kernel).arena_bytes, groups[number], groups[number])
    return lives


def _used(lives: Iterable[Lifetime], steps: int) -> tuple[int, ...]:
    """Bytes in use at each step."""
    change = [0] * (steps + 1)
    for life in lives:
        change[life.first] += _padded(life.nbytes)
        change[life.last + 1] -= _padded(life.nbytes)
    return tuple(accumulate(change))[:steps]


def _constant_bytes(graph: Graph, kernels: Sequence[LoweredKernel]) -> int:
    """Of what kernels read, those inside of loops and branches too."""
    read = {value for kernel in kernels for value in kernel.reads}
    own = sum(value.type.nbytes for value in read.intersection(values_of(graph, Role.CONSTANT)))
    regions = [region for kernel in kernels for region in kernel.regions]
    return own + sum(_constant_bytes(region.program.graph, region.kernels) for region in regions)


def _aliases(
    graph: Graph,
    writebacks: Sequence[int],
    kernels: Sequence[LoweredKernel],
    groups: Sequence[int],
    homes: Mapping[Value, Value],
) -> tuple[tuple[int, int], ...]:
    """Write-backs that can go straight into the argument's memory; none if a call may fail and must leave it alone."""
    if any(may_fail(kernel.program) for kernel in kernels):
        return ()
    returned = len(graph.outputs) - len(writebacks)
    targets = graph.outputs
    return tuple(
        (returned + number, source)
        for number, source in enumerate(writebacks)
        if targets.index(targets[returned + number]) == returned + number
        and _safe_in_place(graph.inputs[source], _lying_in(targets[returned + number], homes), kernels, groups)
    )


def _lying_in(value: Value, homes: Mapping[Value, Value]) -> list[Value]:
    """A value, and the temporaries that lie in its memory before."""
    return [value, *(other for other, home in homes.items() if home is value)]


def _safe_in_place(
    source: Value, targets: Sequence[Value], kernels: Sequence[LoweredKernel], groups: Sequence[int]
) -> bool:
    """Whether nothing needs the old value of `source` once one of `targets`, which share memory, is being written."""
    writers = [number for number, kernel in enumerate(kernels) if any(t in kernel.writes for t in targets)]
    if len(writers) != len(targets) or any(source.type != target.type for target in targets):
        return False
    writer = min(writers, key=groups.__getitem__)
    others = [number for number, kernel in enumerate(kernels) if number != writer and source in kernel.reads]
    if any(groups[number] >= groups[writer] for number in others):
        return False
    kernel = kernels[writer]
    if source not in kernel.reads:
        return True
    (target,) = [target for target in targets if target in kernel.writes]
    names = dict(zip((*kernel.reads, *kernel.writes), _parameters(kernel), strict=True))
    return may_write_in_place(kernel.program, names[source], names[target])


def _parameters(kernel: LoweredKernel) -> list[str]:
    return [buffer.name for buffer in kernel.program.buffers if buffer.space in (Space.INPUT, Space.OUTPUT)]
