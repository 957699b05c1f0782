"""A plan made executable on the CPU: kernels lowered and compiled, memory planned, one native call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.ir.graph import Graph, Value
from autofuse.ir.tree import Branch
from autofuse.lazydataclass import dataclass
from autofuse.lower.limits import Limits
from autofuse.lower.tile import Space
from autofuse.plan.document import PlanDocument
from autofuse.runtime.frames import Home
from autofuse.runtime.memory import REGIONS, Arrange, MemoryPlan, RegionsMemory, plan_arena, plan_memory, plan_regions
from autofuse.runtime.needs import require_memory
from autofuse.runtime.planlowering import LoweredKernel, groups_of, lower_plan, programs_of
from autofuse.targets.cpu.identity import CpuIdentity
from autofuse.targets.cpu.kernelcode import KernelCodes
from autofuse.targets.cpu.machine import Machine, host_machine
from autofuse.targets.cpu.native import prepared
from autofuse.targets.cpu.native.copies import Copies, first_outputs, output_copies
from autofuse.targets.cpu.native.engine import Engine, default_engine
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import (
    BufferRef,
    Call,
    CpuProgram,
    FramePointer,
    KernelCall,
    OutputAlias,
    RegionCall,
)
from autofuse.targets.cpu.native.opaque import OpaqueCall, raise_pending


@dataclass(frozen=True, slots=True)
class CpuExecutable:
    """A plan, compiled for this process. See `autofuse.targets.base.Executable`."""

    document: PlanDocument
    kernels: tuple[LoweredKernel, ...]
    """In running order."""
    native: NativeProgram
    opaque: tuple[OpaqueCall, ...]
    aliased: frozenset[int]
    """Outputs written straight into the argument they are written back to."""
    memory: MemoryPlan
    copied_first: int = 0
    """Calls of the native program before the first kernel: copies of arguments and constants that are returned."""

    @property
    def program(self) -> NativeProgram:
        return self.native

    @property
    def calls_python(self) -> bool:
        return bool(self.opaque)

    def source(self) -> Mapping[str, str]:
        return self.native.source()

    def listings(self) -> Mapping[str, str]:
        found = {f"{name}.ll": text for name, text in self.native.source().items()}
        return found | {f"{name}.s": text for name, text in self.native.assembly().items()}

    def keep(self, name: bytes) -> None:
        prepared.keep(name, self.native)

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...] | Any:
        """Run on exactly typed, C-contiguous arrays; NotImplemented if they are not. Write-backs are not copied."""
        result = self.native.call(*inputs)
        raise_pending(self.opaque)
        return result

    def run_into(self, inputs: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]) -> bool:
        """Run and write the outputs that are not aliased into `outs`; False, with nothing done, if one does not fit."""
        result = self.native.call_into(*inputs, *outs)
        raise_pending(self.opaque)
        return result is not NotImplemented

    def profile(self, inputs: Sequence[NDArray[Any]]) -> tuple[int, ...]:
        """Run once; nanoseconds per kernel, in running order. Raises ArgumentError for inputs that do not fit."""
        _, nanoseconds = self.native.profile(inputs)
        raise_pending(self.opaque)
        return nanoseconds[self.copied_first : self.copied_first + len(self.kernels)]


def build_executable(
    document: PlanDocument,
    limits: Limits,
    machine: Machine | None = None,
    kernels: tuple[LoweredKernel, ...] | None = None,
    arrange: Arrange = plan_arena,
) -> CpuExecutable:
    """Lower (unless `kernels` are at hand), plan memory, generate code, compile and link.

    `arrange` places temporaries. Raises PlanError or BackendError.
    """
    lowered = lower_plan(document, limits) if kernels is None else kernels
    engine = default_engine()
    with engine.compiling() as start:
        codes = KernelCodes(programs_of(lowered), machine or host_machine(), start)
        return _Builder(document, lowered, codes, arrange).build(engine)


_Place = Callable[[Value], BufferRef]
"""Where a value of one program lies."""


class _Builder:
    def __init__(
        self, document: PlanDocument, kernels: tuple[LoweredKernel, ...], codes: KernelCodes, arrange: Arrange
    ) -> None:
        self.document, self.kernels, self.codes, self.arrange = document, kernels, codes, arrange
        self.inputs = {value: number for number, value in enumerate(document.graph.inputs)}
        self.outputs = first_outputs(document)
        self.copies = Copies()
        self._constant_of: dict[Value, BufferRef] = {}

    def build(self, engine: Engine) -> CpuExecutable:
        memory = plan_memory(self.document.graph, self.document.writebacks, self.kernels, self.arrange)
        require_memory(self.document.name, memory, self.kernels)

        def place(value: Value) -> BufferRef:
            value = memory.homes.get(value, value)
            if value in self.inputs:
                return BufferRef("input", self.inputs[value])
            if value in self.outputs:
                return BufferRef("output", self.outputs[value])
            return self._inside(value, self.document.graph, memory, 0)

        calls = self._calls(self.kernels, memory, 0, place)
        before, after = output_copies(self.document, place, self.copies)
        aliases = tuple(OutputAlias(output, source) for output, source in memory.aliases)
        identity, in_tree = self.document.identity, self.document.in_tree
        program = CpuProgram(
            name=self.document.name,
            kernels=(*self.codes.all, *self.copies.codes),
            calls=(*before, *calls, *after),
            inputs=self.document.input_types,
            outputs=self.document.output_types,
            output_aliases=aliases,
            constants=tuple(self.codes.constants),
            arena_bytes=memory.arena_bytes,
            in_trees=in_tree.children if isinstance(in_tree, Branch) else None,
            out_tree=self.document.out_tree,
            threads=identity.threads if isinstance(identity, CpuIdentity) else None,
        )
        opaque = tuple(self.codes.opaque)
        objects = self.codes.objects(program.kernels, engine)
        native = NativeProgram(program, engine, objects=objects, calls=opaque)
        aliased = frozenset(alias.output for alias in aliases)
        return CpuExecutable(self.document, self.kernels, native, opaque, aliased, memory, len(before))

    def _calls(self, kernels: Sequence[LoweredKernel], memory: MemoryPlan, begin: int, place: _Place) -> list[Call]:
        """The calls of a program whose part of the arena begins at a byte."""
        groups = groups_of(kernels)
        calls: list[Call] = []
        for step, kernel in enumerate(kernels):
            if kernel.regions:
                calls.append(self._region(kernel, begin + memory.workspaces[step, REGIONS], place))
                continue
            values = iter((*kernel.reads, *kernel.writes))
            refs = [
                BufferRef("arena", begin + memory.workspaces[step, buffer.name])
                if buffer.space is Space.WORKSPACE
                else place(next(values))
                for buffer in kernel.program.buffers
                if buffer.space is not Space.SCRATCH
            ]
            code = self.codes.of(kernel.program, refs)
            calls.append(KernelCall(code.name, tuple(refs), step - groups.index(groups[step])))
        return calls

    def _region(self, kernel: LoweredKernel, begin: int, place: _Place) -> RegionCall:
        """A loop or a branch, whose part of the arena begins at a byte."""
        memory = plan_regions(kernel)
        frame = memory.frame

        def target(home: Home) -> BufferRef:
            if isinstance(home, Value):
                return place(home)
            return BufferRef("arena", begin + home) if isinstance(home, int) else self.codes.constant(home)

        return RegionCall(
            kind=frame.kind,
            pointers=tuple(FramePointer(target(p.home), p.offset, p.step) for p in frame.pointers),
            programs=tuple(self._part(kernel, number, memory, begin) for number in range(len(kernel.regions))),
            moves=frame.moves,
            results=tuple((copy.target, copy.source, copy.nbytes) for copy in frame.results),
            trips=frame.trips or 0,
            flag=frame.flag or 0,
        )

    def _part(self, kernel: LoweredKernel, number: int, memory: RegionsMemory, begin: int) -> tuple[Call, ...]:
        """The calls of one of the programs inside a loop or branch."""
        region, inner, places = kernel.regions[number], memory.programs[number], memory.frame.places[number]
        inside = begin + memory.frame.own_bytes

        def place(value: Value) -> BufferRef:
            value = inner.homes.get(value, value)
            if value in places:
                return BufferRef("frame", places[value])
            return self._inside(value, region.program.graph, inner, inside)

        def copied(first: bool) -> list[KernelCall]:
            return [
                self.copies.call(BufferRef("frame", copy.source), BufferRef("frame", copy.target), copy.nbytes)
                for copy in memory.frame.copies[number]
                if copy.first == first
            ]

        return (*copied(first=True), *self._calls(region.kernels, inner, inside, place), *copied(first=False))

    def _inside(self, value: Value, graph: Graph, memory: MemoryPlan, begin: int) -> BufferRef:
        """Where a temporary or a constant of a program lies whose part of the arena begins at a byte."""
        if value in memory.offsets:
            return BufferRef("arena", begin + memory.offsets[value])
        if value not in self._constant_of:
            self._constant_of[value] = self.codes.constant(graph.producers[value].attrs["value"])
        return self._constant_of[value]
