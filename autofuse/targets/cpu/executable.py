"""A plan made executable on the CPU: kernels lowered and compiled, memory planned, one native call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.ir.graph import Value
from autofuse.ir.tree import Branch
from autofuse.lazydataclass import dataclass
from autofuse.lower.lowering import Limits
from autofuse.lower.tile import Space
from autofuse.plan.document import PlanDocument
from autofuse.runtime.memory import Arrange, MemoryPlan, plan_arena, plan_memory
from autofuse.runtime.needs import require_memory
from autofuse.runtime.planlowering import LoweredKernel, groups_of, lower_plan
from autofuse.targets.cpu.identity import CpuIdentity
from autofuse.targets.cpu.kernelcode import KernelCodes
from autofuse.targets.cpu.machine import Machine, host_machine
from autofuse.targets.cpu.native import prepared
from autofuse.targets.cpu.native.copies import first_outputs, output_copies
from autofuse.targets.cpu.native.engine import Engine, default_engine
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall, OutputAlias
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
        codes = KernelCodes([kernel.program for kernel in lowered], machine or host_machine(), start)
        return _Builder(document, lowered, codes, arrange).build(engine)


class _Builder:
    def __init__(
        self, document: PlanDocument, kernels: tuple[LoweredKernel, ...], codes: KernelCodes, arrange: Arrange
    ) -> None:
        self.document, self.kernels, self.codes, self.arrange = document, kernels, codes, arrange
        self.groups = groups_of(kernels)
        graph = document.graph
        self.inputs = {value: number for number, value in enumerate(graph.inputs)}
        self.outputs = first_outputs(document)
        self._constant_of: dict[Value, BufferRef] = {}

    def build(self, engine: Engine) -> CpuExecutable:
        memory = plan_memory(self.document.graph, self.document.writebacks, self.kernels, self.arrange)
        require_memory(self.document.name, memory, self.kernels)
        calls = [self._call(number, kernel, memory) for number, kernel in enumerate(self.kernels)]
        copies, before, after = output_copies(self.document, lambda value: self._place(value, memory.offsets))
        aliases = tuple(OutputAlias(output, source) for output, source in memory.aliases)
        identity, in_tree = self.document.identity, self.document.in_tree
        program = CpuProgram(
            name=self.document.name,
            kernels=(*self.codes.all, *copies),
            calls=(*before, *calls, *after),
            inputs=tuple(value.type for value in self.document.graph.inputs),
            outputs=tuple(value.type for value in self.document.graph.outputs),
            output_aliases=aliases,
            constants=tuple(self.codes.constants),
            arena_bytes=memory.arena_bytes,
            in_trees=in_tree.children if isinstance(in_tree, Branch) else None,
            out_tree=self.document.out_tree,
            threads=identity.threads if isinstance(identity, CpuIdentity) else None,
        )
        native = NativeProgram(program, engine, objects=self.codes.objects(program.kernels, engine))
        aliased = frozenset(alias.output for alias in aliases)
        return CpuExecutable(
            self.document, self.kernels, native, tuple(self.codes.opaque), aliased, memory, len(before)
        )

    def _call(self, step: int, kernel: LoweredKernel, memory: MemoryPlan) -> KernelCall:
        values = iter((*kernel.reads, *kernel.writes))
        refs: list[BufferRef] = []
        for buffer in kernel.program.buffers:
            if buffer.space is Space.SCRATCH:
                continue
            if buffer.space is Space.WORKSPACE:
                refs.append(BufferRef("arena", memory.workspaces[step, buffer.name]))
            else:
                refs.append(self._place(next(values), memory.offsets))
        code = self.codes.of(kernel.program, refs)
        return KernelCall(code.name, tuple(refs), step - self.groups.index(self.groups[step]))

    def _place(self, value: Value, arena: Mapping[Value, int]) -> BufferRef:
        if value in self.inputs:
            return BufferRef("input", self.inputs[value])
        if value in self.outputs:
            return BufferRef("output", self.outputs[value])
        if value in arena:
            return BufferRef("arena", arena[value])
        if value not in self._constant_of:
            self._constant_of[value] = self.codes.constant(self.document.graph.producers[value].attrs["value"])
        return self._constant_of[value]
