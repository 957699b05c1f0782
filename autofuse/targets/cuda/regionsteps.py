"""Loops and branches that are no kernel: the host starts the kernels of each iteration, and pointers move between them.

What moves is said by a frame (`autofuse.runtime.frames`). State never leaves the device; the condition of a `while`
and the flag of a branch are read back, a byte each. The arrays of a program inside are the part of the arena that
belongs to the loop, the frame's pointers, and constants:

    0                  the arena's part: the frame's own memory, then what programs inside keep for themselves
    1 ..               pointers of the frame, as they are in this iteration
    behind them        constants of the program

Kernels take arrays that begin at a multiple of 16 bytes. Rows of other lengths are copied to such a place, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.tile import OpaqueProgram, Space
from autofuse.runtime.frames import Copy, Frame
from autofuse.runtime.memory import ALIGNMENT as ARENA_ALIGNMENT
from autofuse.runtime.memory import REGIONS, MemoryPlan, RegionsMemory, plan_regions
from autofuse.runtime.planlowering import LoweredKernel
from autofuse.targets.cuda.codegen.cudakernel import ALIGNMENT
from autofuse.targets.cuda.driver import CudaCode, Driver, Function
from autofuse.targets.cuda.horizontal import StartedProgram
from autofuse.targets.cuda.librarysteps import LibraryStep, library_step
from autofuse.targets.cuda.segments import Launch, Place, Segment
from autofuse.targets.cuda.streams import in_one_stream

WhereIs = Callable[[Value], Place]
"""Where a value of a program lies."""


class Loaded:
    """What all programs of a plan share on a device: loaded kernels, and constants."""

    def __init__(
        self, driver: Driver, codes: Sequence[CudaCode], functions: Sequence[Function], replayed: bool
    ) -> None:
        """`functions`: the codes, loaded. `replayed`: see `PlanDocument`."""
        self.driver, self.replayed = driver, replayed
        self._functions = {id(code): function for code, function in zip(codes, functions, strict=True)}
        self._constants: dict[int, tuple[NDArray[Any], Any]] = {}
        """By identity of the host's array, which is kept so that it stays one."""

    def function(self, code: CudaCode) -> Function:
        """A kernel's."""
        return self._functions[id(code)]

    def constant(self, array: NDArray[Any], kind: TensorType) -> int:
        """The address of a constant, which is copied to the device when it is first asked for."""
        if id(array) not in self._constants:
            there = self.driver.empty(kind)
            self.driver.write(self.driver.pointer(there), array)
            self._constants[id(array)] = array, there
        return self.driver.pointer(self._constants[id(array)][1])


def parameter_places(
    kernel: LoweredKernel, number: int, memory: MemoryPlan, where: WhereIs, arena: Callable[[int], Place]
) -> list[Place]:
    """Where the parameters of a kernel lie, given its number in running order. `arena`: a byte of it."""
    values = iter((*kernel.reads, *kernel.writes))
    return [
        arena(memory.workspaces[number, buffer.name]) if buffer.space is Space.WORKSPACE else where(next(values))
        for buffer in kernel.program.buffers
        if buffer.space is not Space.SCRATCH
    ]


Steps = Sequence["Segment | LibraryStep | RegionStep"]


@dataclass(frozen=True, slots=True)
class _Used:
    """A pointer that a program inside reads or writes through."""

    pointer: int
    nbytes: int
    is_read: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class _Inside:
    """One of the programs inside, ready to be started."""

    steps: Steps
    copies: tuple[Copy, ...]
    used: tuple[_Used, ...]
    constants: tuple[int, ...]
    """Addresses."""


@dataclass(slots=True)
class _Moment:
    """One run of a loop or branch."""

    base: int
    """The address of its part of the arena."""
    pointers: list[int]
    staging: Any = field(default=None)
    """Memory for what is not aligned, once there is such."""


class RegionStep:
    """A loop or a branch in a plan."""

    def __init__(
        self,
        kernel: LoweredKernel,
        programs: Sequence[StartedProgram],
        where: WhereIs,
        begin: Place,
        loaded: Loaded,
    ) -> None:
        """`programs`: those inside. `where`: of the enclosing program. `begin`: its part of the arena."""
        memory = plan_regions(kernel)
        self.frame: Frame = memory.frame
        self._driver, self._begin, self._loaded = loaded.driver, begin, loaded  # constants are kept with it
        self._homes = [_home_of(pointer.home, where, loaded) for pointer in self.frame.pointers]
        self._inside = [self._made(kernel, number, memory, program, loaded) for number, program in enumerate(programs)]
        self._steps = [(number, p.step) for number, p in enumerate(self.frame.pointers) if p.step]
        self._staged = sum(_padded(used.nbytes) for inside in self._inside for used in inside.used)

    def _made(
        self, kernel: LoweredKernel, number: int, memory: RegionsMemory, program: StartedProgram, loaded: Loaded
    ) -> _Inside:
        region, plan, places = kernel.regions[number], memory.programs[number], memory.frame.places[number]
        graph, first = region.program.graph, 1 + len(memory.frame.pointers)
        constants: dict[Value, int] = {}

        def where(value: Value) -> Place:
            if value in places:
                return Place(1 + places[value])
            if value in plan.offsets:
                return arena(plan.offsets[value])
            if value not in constants:
                constants[value] = loaded.constant(graph.producers[value].attrs["value"], value.type)
            return Place(first + list(constants).index(value))

        def arena(offset: int) -> Place:
            return Place(0, memory.frame.own_bytes + offset)

        steps = program_steps(program, region.kernels, plan, where, arena, loaded)
        made = (*graph.inputs, *graph.outputs)
        used = [_used(pointer, graph.inputs, graph.outputs, places) for pointer in _pointers(made, places)]
        return _Inside(steps, memory.frame.copies[number], tuple(used), tuple(constants.values()))

    # ---- running -------------------------------------------------------------------------------------------------

    def start(self, arrays: Sequence[int]) -> None:
        """Run it, given the addresses of the enclosing program's arrays. Raises what its steps raise."""
        frame, base = self.frame, arrays[self._begin.array] + self._begin.offset
        pointers = [home(arrays, base) + p.offset for home, p in zip(self._homes, frame.pointers, strict=True)]
        moment = _Moment(base, pointers)
        self._run(0, moment)
        match frame.kind:
            case "branch":
                self._run(1 if self._holds(moment) else 2, moment)
                return
            case "while":
                self._run(1, moment)
                while self._holds(moment):
                    self._run(2, moment)
                    self._move(moment)
                    self._run(1, moment)
            case "counted":
                for _ in range(frame.trips or 0):
                    self._run(1, moment)
                    self._move(moment)
        for copy in frame.results:
            self._copy(copy, moment)

    def _run(self, number: int, moment: _Moment) -> None:
        """Start what one of the programs starts."""
        inside = self._inside[number]
        for copy in (copy for copy in inside.copies if copy.first):
            self._copy(copy, moment)
        arrays = [moment.base, *moment.pointers, *inside.constants]
        odd = [used for used in inside.used if moment.pointers[used.pointer] % ALIGNMENT]
        places = self._places(odd, moment)
        for used, place in zip(odd, places, strict=True):
            arrays[1 + used.pointer] = place
            if used.is_read:
                self._driver.move(place, moment.pointers[used.pointer], used.nbytes)
        for step in inside.steps:
            step.start(arrays)
        for used, place in zip(odd, places, strict=True):
            if used.is_written:
                self._driver.move(moment.pointers[used.pointer], place, used.nbytes)
        for copy in (copy for copy in inside.copies if not copy.first):
            self._copy(copy, moment)

    def _places(self, odd: Sequence[_Used], moment: _Moment) -> list[int]:
        """Aligned memory for what is not."""
        if not odd:
            return []
        if moment.staging is None:
            moment.staging = self._driver.empty(TensorType((self._staged,), dtypes.U8))
        at = self._driver.pointer(moment.staging)
        found: list[int] = []
        for used in odd:
            found.append(at)
            at += _padded(used.nbytes)
        return found

    def _copy(self, copy: Copy, moment: _Moment) -> None:
        source, target = moment.pointers[copy.source], moment.pointers[copy.target]
        if source != target and copy.nbytes:
            self._driver.move(target, source, copy.nbytes)

    def _move(self, moment: _Moment) -> None:
        """Hand the state on: all pointers at once, then those step that walk through memory."""
        before = list(moment.pointers)
        for target, source in self.frame.moves:
            moment.pointers[target] = before[source]
        for number, step in self._steps:
            moment.pointers[number] += step

    def _holds(self, moment: _Moment) -> bool:
        """Whether the loop goes on, or the first side is taken."""
        assert self.frame.flag is not None
        flag = np.empty((), np.bool_)
        self._driver.read(moment.pointers[self.frame.flag], flag)
        return bool(flag)


def program_steps(
    program: StartedProgram,
    kernels: Sequence[LoweredKernel],
    memory: MemoryPlan,
    where: WhereIs,
    arena: Callable[[int], Place],
    loaded: Loaded,
) -> Steps:
    """What a program inside a loop or branch starts, in order, in one stream."""
    steps = [step_of(program, number, kernels, memory, where, arena, loaded) for number in range(len(program.starts))]
    found: list[Segment | LibraryStep | RegionStep] = []
    for is_launch, run in groupby(steps, key=lambda step: isinstance(step, Launch)):
        if is_launch:
            launches = [step for step in run if isinstance(step, Launch)]
            found.append(Segment(launches, in_one_stream(len(launches)), loaded.driver, loaded.replayed))
        else:
            found += [step for step in run if not isinstance(step, Launch)]
    return found


def step_of(
    program: StartedProgram,
    number: int,
    kernels: Sequence[LoweredKernel],
    memory: MemoryPlan,
    where: WhereIs,
    arena: Callable[[int], Place],
    loaded: Loaded,
) -> Launch | LibraryStep | RegionStep:
    """How one of a program's starts is made."""
    start = program.starts[number]
    if start.code is not None:
        places = (parameter_places(kernels[n], n, memory, where, arena) for n in start.kernels)
        return Launch.of(loaded.function(start.code), tuple(place for each in places for place in each))
    (alone,) = start.kernels
    kernel = kernels[alone]
    if kernel.regions:
        return RegionStep(kernel, program.inside[alone], where, arena(memory.workspaces[alone, REGIONS]), loaded)
    assert isinstance(kernel.program, OpaqueProgram)
    return library_step(loaded.driver, kernel.program, where)


_Home = Callable[[Sequence[int], int], int]
"""(arrays of the enclosing program, address of the arena's part) -> an address."""


def _home_of(home: Value | int | NDArray[Any], where: WhereIs, loaded: Loaded) -> _Home:
    if isinstance(home, Value):
        place = where(home)
        return lambda arrays, _: arrays[place.array] + place.offset
    if isinstance(home, int):
        return lambda _, base: base + home
    at = loaded.constant(home, TensorType(home.shape, dtypes.from_numpy(home.dtype)))
    return lambda _arrays, _base: at


def _pointers(values: Sequence[Value], places: Mapping[Value, int]) -> list[int]:
    """Those of values that have one, each once."""
    return list(dict.fromkeys(places[value] for value in values if value in places))


def _used(pointer: int, reads: Sequence[Value], writes: Sequence[Value], places: Mapping[Value, int]) -> _Used:
    read, written = ([v for v in values if places.get(v) == pointer] for values in (reads, writes))
    nbytes = max(value.type.nbytes for value in (*read, *written))
    return _Used(pointer, nbytes, bool(read), bool(written))


def _padded(nbytes: int) -> int:
    return -(-nbytes // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
