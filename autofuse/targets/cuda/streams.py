"""Which kernels of a plan run at the same time, in how many streams, and what each waits for.

A plan says which kernels may run beside each other: its concurrent groups, which tuning keeps only where they were
measured faster end to end. What of a group is not launched together (`horizontal`) is spread over streams where times
and shares of the device say that this is faster than one after another; a kernel that fills the device gains nothing.

Waiting follows from what kernels read and write, memory that they share included, so no order that it allows changes an
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from autofuse.ir.graph import Graph, Value
from autofuse.lazydataclass import dataclass
from autofuse.runtime.memory import MemoryPlan
from autofuse.runtime.planlowering import LoweredKernel, groups_of
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel
from autofuse.targets.cuda.cost.rates import LAUNCH_US
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.horizontal import Start

MOST_STREAMS = 8
"""More are seldom busy at the same time."""
JOIN_US = 2 * LAUNCH_US
"""A group's start and end, where streams wait for each other: a guess, as nothing was measured."""
BEGINNING = -1
"""In place of a step: what the caller had started in the current stream before."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a kernel is started."""

    stream: int
    """0 is the caller's current one."""
    waits: tuple[int, ...]
    """Steps of other streams that must be done before, or `BEGINNING`."""


@dataclass(frozen=True, slots=True)
class Order:
    """How the kernels of a plan are started, one after another."""

    steps: tuple[Step, ...]
    streams: int
    last: tuple[int, ...]
    """Steps of other streams that the current stream must wait for in the end."""
    awaited: frozenset[int]
    """Steps that another stream waits for."""


def share_of(kernel: CudaKernel, gpu: Gpu) -> float:
    """Of the device: how much of what it can hold at once the largest launch of a kernel takes, at most 1.

    By threads, blocks and shared memory; registers, which only the compiler knows, can make it more.
    """
    return max(_share(launch.grid[0], launch.block[0], launch.shared_bytes, gpu) for launch in kernel.launches)


def _share(blocks: int, threads: int, shared_bytes: int, gpu: Gpu) -> float:
    by_shared = gpu.shared_bytes // shared_bytes if shared_bytes else gpu.blocks
    held = max(1, min(gpu.blocks, gpu.threads // threads, by_shared))
    return min(1.0, blocks / (held * gpu.multiprocessors))


def streams_of(starts: Sequence[Start], kernels: Sequence[LoweredKernel], gpu: Gpu) -> tuple[int, ...]:
    """The stream of each start of a plan, in order."""
    groups = groups_of(kernels)
    maker = {v: number for number, start in enumerate(starts) for n in start.kernels for v in kernels[n].writes}
    found = [0] * len(starts)
    for _, members in groupby(range(len(starts)), key=lambda number: groups[starts[number].kernels[0]]):
        group = list(members)
        codes = [code for number in group if (code := starts[number].code) is not None]
        if len(group) < 2 or len(codes) < len(group):
            continue
        shares = [share_of(code.kernel, gpu) for code in codes]
        us = [_us(starts[number], kernels) for number in group]
        before = [{found[maker[v]] for k in starts[n].kernels for v in kernels[k].reads if v in maker} for n in group]
        for number, stream in zip(group, spread(us, shares, before), strict=True):
            found[number] = stream
    return tuple(found)


def _us(start: Start, kernels: Sequence[LoweredKernel]) -> float:
    """Of a start, as the plan says it, or the model for kernels that are launched together."""
    if start.code is not None and start.code.together_us is not None:
        return start.code.together_us
    planned = kernels[start.kernels[0]].planned
    return planned.measured_us or planned.predicted_us or 0.0


def spread(us: Sequence[float], shares: Sequence[float], before: Sequence[Iterable[int]]) -> list[int]:
    """The stream of each kernel of a group: all 0 where they are as fast one after another.

    `us`: their times alone. `shares`: of the device that each fills. `before`: streams of what each needs, which it
    likes best among those that are free first. Longest first, as Graham 1969 ("Bounds on multiprocessing timing
    anomalies") has it.
    """
    loads = [0.0] * min(MOST_STREAMS, len(us))
    found = [0] * len(us)
    for number in sorted(range(len(us)), key=lambda n: (-us[n], n)):
        least = min(loads)
        free = [stream for stream, load in enumerate(loads) if load == least]
        found[number] = next((stream for stream in before[number] if stream in free), free[0])
        loads[found[number]] += us[number]
    filled = sum(time * share for time, share in zip(us, shares, strict=True))
    together = max(filled, *loads) + JOIN_US
    return found if together < sum(us) else [0] * len(us)


def in_one_stream(steps: int) -> Order:
    """One after another."""
    return Order(tuple(Step(0, ()) for _ in range(steps)), 1, (), frozenset())


def order_of(
    graph: Graph,
    kernels: Sequence[LoweredKernel],
    steps: Sequence[Sequence[int]],
    streams: Sequence[int],
    memory: MemoryPlan,
) -> Order:
    """What each step waits for, given its stream. No wait is said that others imply.

    `steps`: kernels by their number in running order, those that are started at once; what is before the first step is
    done.
    """
    count = max(streams, default=0) + 1
    if count == 1:
        return in_one_stream(len(steps))
    seen: list[list[int]] = [[BEGINNING - 1] * count for _ in range(count)]
    """For each stream, the last step of every stream that is done before what it does next."""
    seen[0][0] = BEGINNING
    found: list[Step] = []
    after: list[list[int]] = []
    """`seen` behind each step."""
    start = list(seen[0])
    cells = _Cells(graph, kernels, memory, [number for step in steps for number in step])
    for number, (needs, stream) in enumerate(zip(_needs(cells, steps), streams, strict=True)):
        waits: list[int] = []
        for need in sorted({*needs, BEGINNING}, reverse=True):
            other = 0 if need == BEGINNING else streams[need]
            if seen[stream][other] < need:
                waits.append(need)
                known = start if need == BEGINNING else after[need]
                seen[stream] = [max(pair) for pair in zip(seen[stream], known, strict=True)]
        seen[stream][stream] = number
        after.append(list(seen[stream]))
        found.append(Step(stream, tuple(sorted(waits))))
    last = [max((n for n, s in enumerate(streams) if s == stream), default=BEGINNING) for stream in range(1, count)]
    joined = tuple(step for stream, step in enumerate(last, 1) if step > seen[0][stream])
    awaited = frozenset({wait for step in found for wait in step.waits}.union(joined))
    return Order(tuple(found), count, joined, awaited)


def _needs(cells: _Cells, steps: Sequence[Sequence[int]]) -> list[set[int]]:
    """Earlier steps that each must come after: it reads or writes what they write, or writes what they read."""
    writer: dict[object, int] = {}
    readers: dict[object, list[int]] = {}
    needs: list[set[int]] = []
    for number, kernels in enumerate(steps):
        mine: set[int] = set()
        for cell in (cell for kernel in kernels for cell in cells.read(kernel)):
            mine.update({writer[cell]} if cell in writer else ())
            readers.setdefault(cell, []).append(number)
        for cell in (cell for kernel in kernels for cell in cells.written(kernel)):
            mine.update({writer[cell]} if cell in writer else (), readers.pop(cell, ()))
            writer[cell] = number
        mine.discard(number)
        needs.append(mine)
    return needs


class _Cells:
    """The memory of a call, cut where anything begins or ends, so that regions overlap where they share a cell."""

    def __init__(
        self, graph: Graph, kernels: Sequence[LoweredKernel], memory: MemoryPlan, numbers: Sequence[int]
    ) -> None:
        self._kernels, self._memory = kernels, memory
        self._argument = {graph.outputs[output]: graph.inputs[source] for output, source in memory.aliases}
        places = [(offset, value.type.nbytes) for value, offset in memory.offsets.items()]
        for number in numbers:
            places += [(memory.workspaces[number, b.name], b.type.nbytes) for b in kernels[number].workspaces]
        cuts = sorted({cut for offset, nbytes in places for cut in (offset, offset + nbytes)})
        self._number = {cut: number for number, cut in enumerate(cuts)}

    def read(self, number: int) -> list[object]:
        """By a kernel."""
        return self._of(self._kernels[number].reads)

    def written(self, number: int) -> list[object]:
        """By a kernel, its workspaces included."""
        kernel = self._kernels[number]
        spaces = [(self._memory.workspaces[number, buffer.name], buffer.type.nbytes) for buffer in kernel.workspaces]
        return [*self._of(kernel.writes), *(cell for place in spaces for cell in self._range(*place))]

    def _of(self, values: Sequence[Value]) -> list[object]:
        """Of arguments and results a cell each; a result that is written into an argument has the argument's."""
        found: list[object] = []
        for value in values:
            offset = self._memory.offsets.get(value)
            found += [self._argument.get(value, value)] if offset is None else self._range(offset, value.type.nbytes)
        return found

    def _range(self, offset: int, nbytes: int) -> range:
        return range(self._number[offset], self._number[offset + nbytes])
