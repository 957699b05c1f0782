"""Kernels compiled alone, to be checked and timed on arrays that are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from numpy.typing import NDArray

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.errors import AutofuseError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import LoweredProgram, Space
from autofuse.runtime.planlowering import is_generated
from autofuse.targets.cpu.compiledfacts import facts_of
from autofuse.targets.cpu.kernelcode import KernelCodes, Start
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.native.driver import kernel_unit
from autofuse.targets.cpu.native.engine import Engine, default_engine
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall, KernelCode, OutputAlias
from autofuse.targets.cpu.native.opaque import OpaqueCall, raise_pending

T = TypeVar("T")
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class CpuRunner:
    """One kernel, compiled for this process. It reads a kernel's inputs, in order, and writes its outputs."""

    native: NativeProgram
    opaque: tuple[OpaqueCall, ...]
    code: KernelCode | None
    """None for what is not generated."""
    data: bytes
    """The object of the code."""
    engine: Engine

    def run_into(self, inputs: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]) -> bool:
        """Run once; False, with nothing done, if an array does not fit."""
        result = self.native.call_into(*inputs, *outs)
        raise_pending(self.opaque)
        return result is not NotImplemented

    def bound(self, inputs: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]) -> Callable[[], object]:
        """What runs it on these arrays as cheaply as can be. It lives without the runner."""
        if self.opaque:  # the code has no more than the addresses of its callbacks
            return partial(self.run_into, inputs, outs)
        return partial(self.native.call_into, *inputs, *outs)

    def compiled(self) -> CompiledFacts | None:
        """What LLVM said of its code; None where that is not generated, or not for x86-64."""
        functions = None if self.code is None else self.engine.functions(kernel_unit(self.code))
        return None if self.code is None or functions is None else facts_of(self.code, self.data, functions)


@dataclass(frozen=True, slots=True)
class InPlaceRunner(CpuRunner):
    """A kernel with outputs that hold an input: plans have them in the memory of that, so it is timed there."""

    in_place: NativeProgram
    """The same code, outputs in the memory of the inputs that they hold."""

    def bound(self, inputs: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]) -> Callable[[], object]:
        """On copies of what is replaced: each run goes on from what the one before left."""
        aliases = self.in_place.program.output_aliases
        replaced, written = {alias.input for alias in aliases}, {alias.output for alias in aliases}
        given = [array.copy() if number in replaced else array for number, array in enumerate(inputs)]
        return partial(self.in_place.call_into, *given, *(a for number, a in enumerate(outs) if number not in written))


def cpu_runners(
    kernel: KernelCandidate, schedules: Sequence[Schedule], limits: Limits, threads: int, *, tells: bool = False
) -> list[CpuRunner | AutofuseError]:
    """A kernel under each schedule, or why that cannot be. They compile beside each other.

    When this returns, nothing is compiling any more. `threads`: most that a launch uses. `tells`: make
    ready what `CpuRunner.compiled` says.
    """
    engine = default_engine()
    with engine.compiling(tells=tells) as start:
        begun = [_attempt(partial(_begin, kernel, schedule, limits, threads, engine, start)) for schedule in schedules]
        return [one if isinstance(one, AutofuseError) else _attempt(one) for one in begun]


def _held(program: LoweredProgram) -> tuple[OutputAlias, ...]:
    """The outputs that hold an input, and that input."""
    inputs, outputs = (
        [buffer.name for buffer in program.buffers if buffer.space is space] for space in (Space.INPUT, Space.OUTPUT)
    )
    return tuple(OutputAlias(outputs.index(b.name), inputs.index(b.holds)) for b in program.buffers if b.holds)


def _attempt(step: Callable[[], T]) -> T | AutofuseError:
    try:
        return step()
    except AutofuseError as refused:
        return refused


def _begin(
    kernel: KernelCandidate, schedule: Schedule, limits: Limits, threads: int, engine: Engine, start: Start
) -> Callable[[], CpuRunner]:
    """Begin to compile. What is returned waits for that, and links."""
    scalars = max(limits.scalars, plain_scalars(kernel))
    program = limits.workspaces(lower(kernel, schedule, "kernel", replace(limits, scalars=scalars)))
    codes = KernelCodes([program], host_machine(), start)
    refs: list[BufferRef] = []
    arena_bytes = 0
    counts = {Space.INPUT: 0, Space.OUTPUT: 0}
    for buffer in program.buffers:
        if buffer.space is Space.WORKSPACE:
            refs.append(BufferRef("arena", arena_bytes))
            arena_bytes += -(-buffer.type.nbytes // _ALIGNMENT) * _ALIGNMENT
        elif buffer.space is not Space.SCRATCH:
            refs.append(BufferRef("input" if buffer.space is Space.INPUT else "output", counts[buffer.space]))
            counts[buffer.space] += 1
    code = codes.of(program, refs)
    whole = CpuProgram(
        name="kernel",
        kernels=codes.all,
        calls=(KernelCall(code.name, tuple(refs)),),
        inputs=tuple(value.type for value in kernel.inputs),
        outputs=tuple(value.type for value in kernel.outputs),
        constants=tuple(codes.constants),
        arena_bytes=arena_bytes,
        threads=threads,
    )

    def finish() -> CpuRunner:
        objects = codes.objects(whole.kernels, engine)
        native = NativeProgram(whole, engine, objects=objects)
        data = objects[whole.kernels.index(code)]
        aliases, own = _held(program), code if is_generated(program) else None
        if not aliases:
            return CpuRunner(native, tuple(codes.opaque), own, data, engine)
        in_place = NativeProgram(replace(whole, output_aliases=aliases), engine, objects=objects)
        return InPlaceRunner(native, tuple(codes.opaque), own, data, engine, in_place)

    return finish
