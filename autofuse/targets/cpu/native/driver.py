"""Lays a program out as the data that the native driver runs (`driver.ll`), and writes the compile units of kernels.

No code is generated per program: a plan whose kernels are in the object cache is ready as soon as they are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.ir.tree import count_leaves
from autofuse.targets.cpu.native import blas
from autofuse.targets.cpu.native.nativeprogram import (
    BufferRef,
    Call,
    CpuProgram,
    KernelCall,
    KernelCode,
    PhaseCode,
    RegionCall,
)

_ALIGNMENT = 64
_DECLARED = re.compile(r"declare\b[^@]*@([-\w.$]+)\(")
_WEIGHT_SCALE = 64
_ARGUMENT, _ARENA, _ADDRESS = 0, 1, 2
"""Kinds of buffers in driver.ll."""
_REGION = -1
"""Stands for the members of a group that is a loop or a branch."""
_KINDS = {"counted": 0, "while": 1, "branch": 2}
"""As in regions.ll."""
Group = tuple[Call, ...]


def kernel_unit(kernel: KernelCode) -> str:
    """The module text of one kernel: its declarations, the BLAS wrappers it names, its definitions."""
    declared = {_declared_symbol(line, kernel): line for line in kernel.declares}
    wrappers = blas.wrapper_text(declared)
    lines = [line for symbol, line in declared.items() if not blas.is_wrapper(symbol) and f"@{symbol}(" not in wrappers]
    return "\n".join([*lines, wrappers, kernel.ir, ""])


def uses_blas(kernels: Iterable[KernelCode]) -> bool:
    """Whether any of the kernels calls BLAS."""
    wanted = {*blas.DECLARATIONS, *blas.external_symbols()}
    return any(_declared_symbol(line, kernel) in wanted for kernel in kernels for line in kernel.declares)


def phase_symbols(program: CpuProgram) -> tuple[str, ...]:
    """The functions whose addresses `DriverData` needs, each once."""
    return tuple(dict.fromkeys(phase.symbol for phase in _phases(program)))


def arena_size(program: CpuProgram) -> int:
    """Bytes of the arena with which the driver must be called: the program's, and scratch of the calling thread."""
    scratch = max((phase.scratch_bytes for phase in _phases(program)), default=0)
    return _aligned(program.arena_bytes) + _aligned(scratch)


def groups(calls: Sequence[Call]) -> list[Group]:
    """Runs of calls with strictly increasing places: what runs together. A loop or branch is alone."""
    found: list[Group] = []
    place: int | None = None
    """Of the last call, where another one may join it."""
    for call in calls:
        own = call.group_place if isinstance(call, KernelCall) else None
        if place is not None and own is not None and own > place:
            found[-1] = (*found[-1], call)
        else:
            found.append((call,))
        place = own
    return found


def kernel_calls(calls: Iterable[Call]) -> Iterator[KernelCall]:
    """All calls of kernels, those inside of loops and branches too."""
    for call in calls:
        if isinstance(call, KernelCall):
            yield call
        else:
            for program in call.programs:
                yield from kernel_calls(program)


def check(program: CpuProgram) -> None:
    """Raise BackendError unless names are unique and every reference is in range."""
    names = [kernel.name for kernel in program.kernels]
    if len(set(names)) != len(names):
        raise BackendError(f"program {program.name}: kernel names must be unique, got {names}")
    for phase in _phases(program):
        if phase.blocks < 0 or phase.task_blocks < 1 or phase.scratch_bytes < 0:
            raise BackendError(f"{phase.symbol}: blocks and scratch must be >= 0 and task_blocks >= 1, got {phase}")
    _check_calls(program, program.calls, 0)
    _check_trees(program)
    for alias in program.output_aliases:
        if program.outputs[alias.output] != program.inputs[alias.input]:
            raise BackendError(
                f"program {program.name}: output {alias.output} ({program.outputs[alias.output]}) is written into "
                f"input {alias.input}, which has another type, {program.inputs[alias.input]}"
            )


def _check_calls(program: CpuProgram, calls: Iterable[Call], frame: int) -> None:
    """`frame`: pointers of the loop or branch that the calls are inside of."""
    names = {kernel.name for kernel in program.kernels}
    for call in calls:
        if isinstance(call, RegionCall):
            for pointer in call.pointers:
                _check_buffer(program, call.kind, pointer.buffer, frame)
            for part in call.programs:
                _check_calls(program, part, len(call.pointers))
            continue
        if call.kernel not in names:
            raise BackendError(
                f"program {program.name}: call of unknown kernel {call.kernel!r}; known: {sorted(names)}"
            )
        for buffer in call.buffers:
            _check_buffer(program, call.kernel, buffer, frame)


class DriverData:
    """A program in the layout of driver.ll, for groups of calls that run together. Lives as long as it may run."""

    def __init__(
        self,
        program: CpuProgram,
        grouped: Sequence[Group],
        functions: Mapping[str, int],
        constants: Sequence[NDArray[Any]],
    ) -> None:
        """`functions` are the addresses of `phase_symbols`; `constants` the program's, as kernels shall see them."""
        self._program = program
        self._functions = functions
        self._constants = constants
        self._launches: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self._frames: list[NDArray[np.int64]] = []
        self._kernels = {kernel.name: kernel for kernel in program.kernels}
        self._forks = 0
        self._members = 0
        steps = self._all_groups(grouped)
        inside = [call for group in grouped for call in kernel_calls(group)]
        self._words = np.array(
            [
                len(grouped),
                int(uses_blas(program.kernels)),
                self._members,
                max((len(call.buffers) for call in inside), default=0),
                _aligned(program.arena_bytes),
                int(self._forks > 1),
                *steps,
            ],
            np.int64,
        )

    @property
    def address(self) -> int:
        """Address of the first word."""
        return self._words.ctypes.data

    def _all_groups(self, grouped: Sequence[Group]) -> list[int]:
        words: list[int] = []
        for group in grouped:
            self._members = max(self._members, len(group))
            if isinstance(group[0], RegionCall):
                words += [_REGION, self._frame(group[0])]
            else:
                words += self._group([call for call in group if isinstance(call, KernelCall)])
        return words

    def _frame(self, call: RegionCall) -> int:
        """The address of a frame in the layout of regions.ll."""
        forks = self._forks
        programs = [self._part(part) for part in call.programs]
        if call.kind != "branch":  # what forks in a loop does so often
            self._forks += self._forks - forks
        steps = [(number, pointer.step) for number, pointer in enumerate(call.pointers) if pointer.step]
        words = [_KINDS[call.kind], call.trips, call.flag]
        words += [len(call.pointers), len(call.moves), len(steps), len(call.results)]
        words += [*programs, 0][:3]
        for pointer in call.pointers:
            words += [*self._buffer(pointer.buffer), pointer.offset]
        for pair in (*call.moves, *steps):
            words += pair
        for result in call.results:
            words += result
        return self._kept(words)

    def _part(self, calls: Sequence[Call]) -> int:
        grouped = groups(calls)
        return self._kept([len(grouped), *self._all_groups(grouped)])

    def _kept(self, words: Sequence[int]) -> int:
        self._frames.append(np.array(words, np.int64))
        return self._frames[-1].ctypes.data

    def _group(self, group: Sequence[KernelCall]) -> list[int]:
        kernels = [self._kernels[call.kernel] for call in group]
        steps: list[int] = []
        for step in range(max(len(kernel.launches) for kernel in kernels)):
            phases = [
                (phase, place)
                for place, kernel in enumerate(kernels)
                if step < len(kernel.launches)
                for phase in kernel.launches[step]
                if phase.blocks > 0
            ]
            if phases:
                launch = launch_words(phases, self._functions, self._program.threads)
                self._forks += launch[1] > 1
                steps.append(self._launch(launch))
        words = [len(group), len(steps)]
        for call in group:
            words.append(len(call.buffers))
            for buffer in call.buffers:
                words += self._buffer(buffer)
        return words + steps

    def _launch(self, words: tuple[int, ...]) -> int:
        """The address of a launch; equal ones are shared."""
        if words not in self._launches:
            self._launches[words] = np.array(words, np.int64)
        return self._launches[words].ctypes.data

    def _buffer(self, buffer: BufferRef) -> tuple[int, int]:
        match buffer.space:
            case "input" | "frame":
                return _ARGUMENT, buffer.index
            case "output":
                return _ARGUMENT, len(self._program.inputs) + buffer.index
            case "arena":
                return _ARENA, buffer.index
            case "constant":
                return _ADDRESS, self._constants[buffer.index].ctypes.data


def launch_words(
    phases: Sequence[tuple[PhaseCode, int]], functions: Mapping[str, int], threads: int | None = None
) -> tuple[int, ...]:
    """A launch of (phase, place) pairs, on at most so many threads, in the layout of pool.ll."""
    scale = 1 if len(phases) == 1 else _WEIGHT_SCALE * max(phase.task_blocks for phase, _ in phases)
    work = max(1, int(sum(phase.work for phase, _ in phases)))
    parts = work if threads is None else min(work, threads)
    rows: list[int] = []
    units = 0
    for phase, place in phases:
        weight = max(1, scale // phase.task_blocks)
        rows += [functions[phase.symbol], phase.blocks, weight, units, place]
        units += phase.blocks * weight
    scratch = max(phase.scratch_bytes for phase, _ in phases)
    return (len(phases), parts, units, _aligned(scratch), work, *rows)


def _phases(program: CpuProgram) -> list[PhaseCode]:
    return [phase for kernel in program.kernels for launch in kernel.launches for phase in launch]


def _check_trees(program: CpuProgram) -> None:
    taken = sum(count_leaves(tree) for tree in program.in_trees or ())
    given = 0 if program.out_tree is None else count_leaves(program.out_tree)
    if (program.in_trees is not None and taken != len(program.inputs)) or given > len(program.outputs):
        raise BackendError(
            f"program {program.name}: its trees have {taken} arguments and {given} results, it has "
            f"{len(program.inputs)} inputs and {len(program.outputs)} outputs"
        )


def _check_buffer(program: CpuProgram, what: str, buffer: BufferRef, frame: int) -> None:
    """`frame`: pointers of the loop or branch that the buffer is read in; 0 outside of any."""
    limits = {"input": len(program.inputs), "output": len(program.outputs), "constant": len(program.constants)}
    if buffer.space == "arena":
        good = buffer.index % _ALIGNMENT == 0 and 0 <= buffer.index <= program.arena_bytes
    elif buffer.space == "frame":
        good = 0 <= buffer.index < frame
    else:
        good = 0 <= buffer.index < limits[buffer.space] and (frame == 0 or buffer.space == "constant")
    if not good:
        raise BackendError(f"program {program.name}, kernel {what}: {buffer} is outside the program")


def _declared_symbol(line: str, kernel: KernelCode) -> str:
    match = _DECLARED.match(line)
    if match is None:
        raise BackendError(f"kernel {kernel.name}: not a function declaration: {line!r}")
    return match.group(1)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
