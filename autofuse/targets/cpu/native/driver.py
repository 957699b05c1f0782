"""Lays a program out as the data that the native driver runs (`driver.ll`), and writes the compile units of kernels.

No code is generated per program: a plan whose kernels are in the object cache is ready as soon as they are loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.ir.tree import count_leaves
from autofuse.targets.cpu.native import blas
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall, KernelCode, PhaseCode

_ALIGNMENT = 64
_DECLARED = re.compile(r"declare\b[^@]*@([-\w.$]+)\(")
_WEIGHT_SCALE = 64
_ARGUMENT, _ARENA, _ADDRESS = 0, 1, 2
"""Kinds of buffers in driver.ll."""


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


def groups(calls: Sequence[KernelCall]) -> list[tuple[KernelCall, ...]]:
    """Runs of calls with strictly increasing places: what runs together."""
    found: list[tuple[KernelCall, ...]] = []
    for call in calls:
        if found and call.group_place > found[-1][-1].group_place:
            found[-1] = (*found[-1], call)
        else:
            found.append((call,))
    return found


def check(program: CpuProgram) -> None:
    """Raise BackendError unless names are unique and every reference is in range."""
    names = [kernel.name for kernel in program.kernels]
    if len(set(names)) != len(names):
        raise BackendError(f"program {program.name}: kernel names must be unique, got {names}")
    for phase in _phases(program):
        if phase.blocks < 0 or phase.task_blocks < 1 or phase.scratch_bytes < 0:
            raise BackendError(f"{phase.symbol}: blocks and scratch must be >= 0 and task_blocks >= 1, got {phase}")
    kernels = {kernel.name for kernel in program.kernels}
    for call in program.calls:
        if call.kernel not in kernels:
            raise BackendError(f"program {program.name}: call of unknown kernel {call.kernel!r}; known: {names}")
        for buffer in call.buffers:
            _check_buffer(program, call, buffer)
    _check_trees(program)
    for alias in program.output_aliases:
        if program.outputs[alias.output] != program.inputs[alias.input]:
            raise BackendError(
                f"program {program.name}: output {alias.output} ({program.outputs[alias.output]}) is written into "
                f"input {alias.input}, which has another type, {program.inputs[alias.input]}"
            )


class DriverData:
    """A program in the layout of driver.ll, for groups of calls that run together. Lives as long as it may run."""

    def __init__(
        self,
        program: CpuProgram,
        grouped: Sequence[tuple[KernelCall, ...]],
        functions: Mapping[str, int],
        constants: Sequence[NDArray[Any]],
    ) -> None:
        """`functions` are the addresses of `phase_symbols`; `constants` the program's, as kernels shall see them."""
        self._program = program
        self._functions = functions
        self._constants = constants
        self._launches: dict[tuple[int, ...], NDArray[np.int64]] = {}
        kernels = {kernel.name: kernel for kernel in program.kernels}
        words = [
            len(grouped),
            int(uses_blas(program.kernels)),
            max((len(group) for group in grouped), default=0),
            max((len(call.buffers) for group in grouped for call in group), default=0),
            _aligned(program.arena_bytes),
        ]
        self._forks = 0
        steps = [word for group in grouped for word in self._group(group, [kernels[c.kernel] for c in group])]
        words += [int(self._forks > 1), *steps]
        self._words = np.array(words, np.int64)

    @property
    def address(self) -> int:
        """Address of the first word."""
        return self._words.ctypes.data

    def _group(self, group: tuple[KernelCall, ...], kernels: Sequence[KernelCode]) -> list[int]:
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
            case "input":
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


def _check_buffer(program: CpuProgram, call: KernelCall, buffer: BufferRef) -> None:
    limits = {"input": program.inputs, "output": program.outputs, "constant": program.constants}
    if buffer.space == "arena":
        good = buffer.index % _ALIGNMENT == 0 and 0 <= buffer.index <= program.arena_bytes
    else:
        good = 0 <= buffer.index < len(limits[buffer.space])
    if not good:
        raise BackendError(f"program {program.name}, kernel {call.kernel}: {buffer} is outside the program")


def _declared_symbol(line: str, kernel: KernelCode) -> str:
    match = _DECLARED.match(line)
    if match is None:
        raise BackendError(f"kernel {kernel.name}: not a function declaration: {line!r}")
    return match.group(1)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
