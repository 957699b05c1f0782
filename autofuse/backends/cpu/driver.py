"""Generates the driver of a program, LLVM IR that runs its kernel calls in order, and the compile units of kernels.

The driver is `void @af_run(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena)`, each argument but the last a table
of data pointers. A launch that can only have one part calls its phases directly; any other goes to the thread pool as
constant data (laid out as pool.ll describes). `af_run_profile` does the same with one more argument, a table of 64-bit
words that receives the nanoseconds of each call; it runs every call alone, whatever the lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autofuse.backends.cpu import blas
from autofuse.backends.cpu.program import BufferRef, CpuProgram, KernelCall, KernelCode, PhaseCode
from autofuse.errors import BackendError

_ALIGNMENT = 64
_DECLARED = re.compile(r"declare\b[^@]*@([-\w.$]+)\(")
_UNIT_SCALE = 64

RUN = "af_run"
PROFILE = "af_run_profile"


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


def arena_size(program: CpuProgram) -> int:
    """Bytes of the arena with which the driver must be called: the program's, and scratch of the calling thread."""
    scratch = max((p.scratch_bytes for k in program.kernels for launch in k.launches for p in launch), default=0)
    return _aligned(program.arena_bytes) + _aligned(scratch)


def driver_text(program: CpuProgram) -> str:
    """The driver's module text. Raises BackendError when the program contradicts itself."""
    check(program)
    launches: dict[str, str] = {}
    run = _Function(program, launches, "").text(_groups(program.calls))
    profile = _Function(program, launches, "ptr %times").text([(call,) for call in program.calls])
    symbols = sorted({phase.symbol for k in program.kernels for launch in k.launches for phase in launch})
    return "\n".join(
        [
            "declare void @af_parallel(ptr, ptr, ptr)",
            "declare void @af_blas_enter()",
            "declare void @af_blas_exit()",
            "declare i32 @clock_gettime(i32, ptr)",
            *(f"declare void @{symbol}(ptr, i64, i64, ptr)" for symbol in symbols),
            *(f"@{name} = internal constant {data}, align 64" for data, name in launches.items()),
            run,
            profile,
            _NOW,
            "",
        ]
    )


def check(program: CpuProgram) -> None:
    """Raise BackendError unless names are unique and every reference is in range."""
    names = [kernel.name for kernel in program.kernels]
    if len(set(names)) != len(names):
        raise BackendError(f"program {program.name}: kernel names must be unique, got {names}")
    phases = [phase for kernel in program.kernels for launch in kernel.launches for phase in launch]
    for phase in phases:
        if phase.blocks < 0 or phase.grain < 1 or phase.scratch_bytes < 0:
            raise BackendError(f"phase {phase.symbol}: blocks and scratch must be >= 0 and grain >= 1, got {phase}")
    kernels = {kernel.name for kernel in program.kernels}
    for call in program.calls:
        if call.kernel not in kernels:
            raise BackendError(f"program {program.name}: call of unknown kernel {call.kernel!r}; known: {names}")
        for buffer in call.buffers:
            _check_buffer(program, call, buffer)
    for alias in program.output_aliases:
        if program.outputs[alias.output] != program.inputs[alias.input]:
            raise BackendError(
                f"program {program.name}: output {alias.output} ({program.outputs[alias.output]}) is written into "
                f"input {alias.input}, which has another type, {program.inputs[alias.input]}"
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


def _groups(calls: Sequence[KernelCall]) -> list[tuple[KernelCall, ...]]:
    """Runs of calls with strictly increasing lanes."""
    groups: list[tuple[KernelCall, ...]] = []
    for call in calls:
        if groups and call.lane > groups[-1][-1].lane:
            groups[-1] = (*groups[-1], call)
        else:
            groups.append((call,))
    return groups


@dataclass(frozen=True, slots=True)
class _Placed:
    """A phase and the number of its call within the group."""

    phase: PhaseCode
    table: int


def _launch_data(phases: Sequence[_Placed]) -> tuple[str, int]:
    """The constant that describes a launch to the pool, and the most parts it can have."""
    scale = 1 if len(phases) == 1 else _UNIT_SCALE * max(placed.phase.grain for placed in phases)
    parts = max(1, int(sum(placed.phase.blocks / placed.phase.grain for placed in phases)))
    rows: list[str] = []
    units = 0
    for placed in phases:
        phase = placed.phase
        weight = max(1, scale // phase.grain)
        rows.append(
            f"{{ ptr, i64, i64, i64, i64 }} "
            f"{{ ptr @{phase.symbol}, i64 {phase.blocks}, i64 {weight}, i64 {units}, i64 {placed.table} }}"
        )
        units += phase.blocks * weight
    scratch = max(placed.phase.scratch_bytes for placed in phases)
    kind = f"{{ i64, i64, i64, i64, [{len(rows)} x {{ ptr, i64, i64, i64, i64 }}] }}"
    head = f"i64 {len(rows)}, i64 {parts}, i64 {units}, i64 {_aligned(scratch)}"
    return f"{kind} {{ {head}, [{len(rows)} x {{ ptr, i64, i64, i64, i64 }}] [{', '.join(rows)}] }}", parts


class _Function:
    """Writes one driver function."""

    def __init__(self, program: CpuProgram, launches: dict[str, str], times: str) -> None:
        """`launches` maps launch constants to their names and is added to; `times` is a last parameter or ""."""
        self._program = program
        self._kernels = {kernel.name: kernel for kernel in program.kernels}
        self._launches = launches
        self._times = times
        self._lines: list[str] = []
        self._pointers: dict[BufferRef, str] = {}

    def text(self, groups: Sequence[tuple[KernelCall, ...]]) -> str:
        """The function that runs `groups` in order; with times, each is one call."""
        for number, group in enumerate(groups):
            if self._times:
                self._lines.append(f"  %before.{number} = call i64 @now()")
            self._run(group)
            if self._times:
                self._record(number)
        return "\n".join([*self._opening(groups), *self._lines, *self._closing(), "  ret void", "}"])

    def _opening(self, groups: Sequence[tuple[KernelCall, ...]]) -> list[str]:
        lanes = max((len(group) for group in groups), default=0)
        longest = max((len(call.buffers) for group in groups for call in group), default=0)
        name = PROFILE if self._times else RUN
        parameters = ["ptr %inputs", "ptr %outputs", "ptr %constants", "ptr %arena"]
        if self._times:
            parameters.append(self._times)
        lines = [f"define void @{name}({', '.join(parameters)}) nounwind {{", f"  %tables = alloca [{lanes} x ptr]"]
        for lane in range(lanes):
            lines += [
                f"  %table.{lane} = alloca [{longest} x ptr]",
                f"  %tables.{lane} = getelementptr ptr, ptr %tables, i64 {lane}",
                f"  store ptr %table.{lane}, ptr %tables.{lane}",
            ]
        scratch = _aligned(self._program.arena_bytes)
        lines.append(f"  %scratch = getelementptr i8, ptr %arena, i64 {scratch}")
        return [*lines, *(["  call void @af_blas_enter()"] if self._uses_blas() else [])]

    def _closing(self) -> list[str]:
        return ["  call void @af_blas_exit()"] if self._uses_blas() else []

    def _uses_blas(self) -> bool:
        return uses_blas(self._program.kernels)

    def _record(self, number: int) -> None:
        self._lines += [
            f"  %after.{number} = call i64 @now()",
            f"  %spent.{number} = sub i64 %after.{number}, %before.{number}",
            f"  %time.{number} = getelementptr i64, ptr %times, i64 {number}",
            f"  store i64 %spent.{number}, ptr %time.{number}",
        ]

    def _run(self, group: tuple[KernelCall, ...]) -> None:
        kernels = [self._kernels[call.kernel] for call in group]
        for lane, call in enumerate(group):
            for position, buffer in enumerate(call.buffers):
                self._store(lane, position, self._pointer(buffer))
        for step in range(max((len(kernel.launches) for kernel in kernels), default=0)):
            placed = [
                _Placed(phase, lane)
                for lane, kernel in enumerate(kernels)
                if step < len(kernel.launches)
                for phase in kernel.launches[step]
                if phase.blocks > 0
            ]
            if placed:
                self._launch(placed)

    def _launch(self, placed: Sequence[_Placed]) -> None:
        data, parts = _launch_data(placed)
        scratch = "%scratch" if any(p.phase.scratch_bytes for p in placed) else "null"
        if parts > 1:
            name = self._launches.setdefault(data, f"launch.{len(self._launches)}")
            self._lines.append(f"  call void @af_parallel(ptr @{name}, ptr %tables, ptr {scratch})")
            return
        for p in placed:
            private = "%scratch" if p.phase.scratch_bytes else "null"
            self._lines.append(
                f"  call void @{p.phase.symbol}(ptr %table.{p.table}, i64 0, i64 {p.phase.blocks}, ptr {private})"
            )

    def _store(self, lane: int, position: int, pointer: str) -> None:
        slot = f"%slot.{lane}.{position}.{len(self._lines)}"
        self._lines += [
            f"  {slot} = getelementptr ptr, ptr %table.{lane}, i64 {position}",
            f"  store ptr {pointer}, ptr {slot}",
        ]

    def _pointer(self, buffer: BufferRef) -> str:
        """The SSA value of a buffer's data pointer, read once."""
        if buffer not in self._pointers:
            name = f"%{buffer.space}.{buffer.index}"
            self._pointers[buffer] = name
            if buffer.space == "arena":
                self._lines.append(f"  {name} = getelementptr i8, ptr %arena, i64 {buffer.index}")
            else:
                table = f"%{buffer.space}s"
                self._lines.append(f"  {name}.at = getelementptr ptr, ptr {table}, i64 {buffer.index}")
                self._lines.append(f"  {name} = load ptr, ptr {name}.at")
        return self._pointers[buffer]


_NOW = """
define internal i64 @now() nounwind {
  %time = alloca [2 x i64]
  %code = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds.at = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %nanoseconds
  ret i64 %total
}"""
