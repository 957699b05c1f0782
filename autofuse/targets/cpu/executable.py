"""A plan made executable on the CPU: kernels lowered and compiled, memory planned, one native call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from numpy.typing import NDArray

from autofuse.errors import AutofuseError
from autofuse.ir.digest import digest
from autofuse.ir.graph import Value
from autofuse.ir.tree import Branch
from autofuse.lower.lowering import Limits
from autofuse.lower.tile import Dot, OpaqueProgram, Space, TileProgram
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import CpuIdentity
from autofuse.runtime.kernels import LoweredKernel, canonical, groups_of, is_generated, lower_plan
from autofuse.runtime.memory import Arrange, MemoryPlan, plan_arena, plan_memory
from autofuse.runtime.needs import require_memory
from autofuse.targets.cpu.decisions import cpu_decisions
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cpu.machine import Machine, host_machine
from autofuse.targets.cpu.native.copies import first_outputs, output_copies
from autofuse.targets.cpu.native.driver import kernel_unit
from autofuse.targets.cpu.native.engine import Engine, default_engine
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.opaque import OpaqueCall, opaque_code
from autofuse.targets.cpu.native.program import BufferRef, CpuProgram, KernelCall, KernelCode, OutputAlias
from autofuse.targets.cpu.passes.prepare import CpuPasses

T = TypeVar("T")


def cpu_limits(description: CpuDescription) -> Limits:
    """What lowering must know of this CPU: half of the L2 for values kept on chip, and the number of workers."""
    return Limits(
        scratch_bytes=max(description.l2_bytes // 2, 128 << 10),
        workers=description.threads,
        tile_columns=True,
        decisions=cpu_decisions(description.vector_bits),
        passes=CpuPasses(description.vector_bits),
    )


@dataclass(frozen=True, slots=True)
class CpuExecutable:
    """A plan, compiled for this process."""

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

    def run(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...] | Any:
        """Run on exactly typed, C-contiguous arrays; NotImplemented if they are not. Write-backs are not copied."""
        result = self.native.call(*inputs)
        self.raise_pending()
        return result

    def run_into(self, inputs: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]) -> bool:
        """Run and write the outputs that are not aliased into `outs`; False, with nothing done, if one does not fit."""
        result = self.native.call_into(*inputs, *outs)
        self.raise_pending()
        return result is not NotImplemented

    def profile(self, inputs: Sequence[NDArray[Any]]) -> tuple[int, ...]:
        """Run once; nanoseconds per kernel, in running order. Raises ArgumentError for inputs that do not fit."""
        _, nanoseconds = self.native.profile(inputs)
        self.raise_pending()
        return nanoseconds[self.copied_first : self.copied_first + len(self.kernels)]

    def raise_pending(self) -> None:
        """Raise the first error of an opaque kernel; those after it, which read garbage, go too."""
        errors = [error for call in self.opaque if (error := call.take_error()) is not None]
        if errors:
            raise errors[0]


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
    return _Builder(document, lowered, machine or host_machine(), arrange).build()


def build_executables(
    documents: Sequence[PlanDocument], limits: Limits, machine: Machine | None = None
) -> list[CpuExecutable | None]:
    """`build_executable` for several plans, whose kernels compile beside each other; None for one that cannot be built.

    When it returns, nothing is compiling any more.
    """
    engine = default_engine()
    with engine.compiling() as start:
        begun = [_unless_refused(partial(_begin, document, limits, machine, engine, start)) for document in documents]
        return [None if finish is None else _unless_refused(finish) for finish in begun]


def _begin(
    document: PlanDocument,
    limits: Limits,
    machine: Machine | None,
    engine: Engine,
    start: Callable[[str], Callable[[], bytes]],
) -> Callable[[], CpuExecutable]:
    return _Builder(document, lower_plan(document, limits), machine or host_machine()).begin(engine, start)


def _unless_refused(step: Callable[[], T]) -> T | None:
    try:
        return step()
    except AutofuseError:
        return None


class _Builder:
    def __init__(
        self,
        document: PlanDocument,
        kernels: tuple[LoweredKernel, ...],
        machine: Machine,
        arrange: Arrange = plan_arena,
    ) -> None:
        self.document, self.kernels, self.machine, self.arrange = document, kernels, machine, arrange
        self.groups = groups_of(kernels)
        graph = document.graph
        self.inputs = {value: number for number, value in enumerate(graph.inputs)}
        self.outputs = first_outputs(document)
        self.constants: list[NDArray[Any]] = []
        self._constant_of: dict[Value, int] = {}
        self._codes: dict[TileProgram | str, KernelCode] = {}
        self._canonical: dict[int, TileProgram | str] = {}
        """By the identity of a program whose code is generated, what is equal for kernels that can share code."""
        self._opaque: list[OpaqueCall] = []
        self._opaque_codes: dict[int, KernelCode] = {}

    def build(self) -> CpuExecutable:
        engine = default_engine()
        with engine.compiling() as start:
            return self.begin(engine, start)()

    def begin(self, engine: Engine, start: Callable[[str], Callable[[], bytes]]) -> Callable[[], CpuExecutable]:
        """Begin to compile. What is returned waits for that, and links."""
        return partial(self._built, engine, self._generate(start))

    def _generate(self, start: Callable[[str], Callable[[], bytes]]) -> Mapping[str, Callable[[], bytes]]:
        """Generate the code of the distinct kernels, those with most to compile first; begin to compile each."""
        waiting: dict[str, Callable[[], bytes]] = {}
        programs = [kernel.program for kernel in self.kernels if is_generated(kernel.program)]
        for program in sorted(programs, key=_code_size, reverse=True):
            key = self._canonical[id(program)] = _shared(program)
            if key not in self._codes:
                code = self._codes[key] = self._generated(program)
                waiting[code.name] = start(kernel_unit(code))
        return waiting

    def _generated(self, program: TileProgram | OpaqueProgram) -> KernelCode:
        if isinstance(program, OpaqueProgram):
            from autofuse.targets.cpu.codegen.scatter import generate_scatter

            return generate_scatter(program, self.machine)
        from autofuse.targets.cpu.codegen.kernel import generate  # half of what there is to import

        return generate(program, self.machine)

    def _built(self, engine: Engine, waiting: Mapping[str, Callable[[], bytes]]) -> CpuExecutable:
        memory = plan_memory(self.document.graph, self.document.writebacks, self.kernels, self.arrange)
        require_memory(self.document.name, memory, self.kernels)
        calls = [self._call(number, kernel, memory) for number, kernel in enumerate(self.kernels)]
        copies, before, after = output_copies(self.document, lambda value: self._place(value, memory.offsets))
        aliases = tuple(OutputAlias(output, source) for output, source in memory.aliases)
        identity, in_tree = self.document.identity, self.document.in_tree
        program = CpuProgram(
            name=self.document.name,
            kernels=(*self._codes.values(), *self._opaque_codes.values(), *copies),
            calls=(*before, *calls, *after),
            inputs=tuple(value.type for value in self.document.graph.inputs),
            outputs=tuple(value.type for value in self.document.graph.outputs),
            output_aliases=aliases,
            constants=tuple(self.constants),
            arena_bytes=memory.arena_bytes,
            in_trees=in_tree.children if isinstance(in_tree, Branch) else None,
            out_tree=self.document.out_tree,
            threads=identity.threads if isinstance(identity, CpuIdentity) else None,
        )
        objects = [
            waiting[code.name]() if code.name in waiting else engine.compile(kernel_unit(code))
            for code in program.kernels
        ]
        native = NativeProgram(program, engine, objects=objects)
        aliased = frozenset(alias.output for alias in aliases)
        return CpuExecutable(self.document, self.kernels, native, tuple(self._opaque), aliased, memory, len(before))

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
        code = self._code(kernel, refs)
        return KernelCall(code.name, tuple(refs), step - self.groups.index(self.groups[step]))

    def _place(self, value: Value, arena: Mapping[Value, int]) -> BufferRef:
        if value in self.inputs:
            return BufferRef("input", self.inputs[value])
        if value in self.outputs:
            return BufferRef("output", self.outputs[value])
        if value in arena:
            return BufferRef("arena", arena[value])
        if value not in self._constant_of:
            self._constant_of[value] = len(self.constants)
            self.constants.append(self.document.graph.producers[value].attrs["value"])
        return BufferRef("constant", self._constant_of[value])

    def _code(self, kernel: LoweredKernel, refs: list[BufferRef]) -> KernelCode:
        """The kernel's code; equal kernels share it."""
        if not isinstance(kernel.program, OpaqueProgram) or is_generated(kernel.program):
            return self._codes[self._canonical[id(kernel.program)]]
        count = len(refs)
        call = OpaqueCall(kernel.program)
        self._opaque.append(call)
        refs.append(BufferRef("constant", len(self.constants)))
        self.constants.append(call.box)
        if count not in self._opaque_codes:
            self._opaque_codes[count] = opaque_code(f"af_opaque_{count}", count)
        return self._opaque_codes[count]


def _shared(program: TileProgram | OpaqueProgram) -> TileProgram | str:
    """What is equal for kernels that can share code."""
    return digest(program.graph) if isinstance(program, OpaqueProgram) else canonical(program)


def _code_size(program: TileProgram | OpaqueProgram) -> int:
    """How much code a kernel becomes, roughly: a product is like a hundred statements."""
    if isinstance(program, OpaqueProgram):
        return len(program.graph.nodes)
    steps = [step for phase in program.phases() for step in phase.steps]
    return sum(100 if isinstance(step, Dot) else sum(len(stage.body) for stage in step.stages) for step in steps)
