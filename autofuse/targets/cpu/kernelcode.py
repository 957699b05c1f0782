"""Machine code of the kernels of one program: equal ones share it, and it is generated beside the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.ir.digest import digest
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lower.librarykernels import coded_in
from autofuse.lower.tile import Dot, OpaqueProgram, TileProgram
from autofuse.runtime.planlowering import canonical, is_generated
from autofuse.targets.cpu.machine import Machine
from autofuse.targets.cpu.native.driver import kernel_unit
from autofuse.targets.cpu.native.engine import Engine
from autofuse.targets.cpu.native.nativeprogram import BufferRef, KernelCode
from autofuse.targets.cpu.native.opaque import CallForm, OpaqueCall, opaque_code

Start = Callable[[str], Callable[[], bytes]]
"""Begins to compile a text, and returns what waits for the object code: see `Engine.compiling`."""


class KernelCodes:
    """The code of kernels, the constants that it reads, and the calls of the interpreter in it."""

    def __init__(self, programs: Sequence[TileProgram | OpaqueProgram], machine: Machine, start: Start) -> None:
        """Generate the code of the distinct kernels, those with most to compile first; begin to compile each."""
        self.constants: list[NDArray[Any]] = []
        self.opaque: list[OpaqueCall] = []
        self._codes: dict[TileProgram | str, KernelCode] = {}
        self._canonical: dict[int, TileProgram | str] = {}
        """By the identity of a program whose code is generated, what is equal for kernels that can share code."""
        self._opaque_codes: dict[CallForm, KernelCode] = {}
        self._waiting: dict[str, Callable[[], bytes]] = {}
        for program in sorted(filter(is_generated, programs), key=_code_size, reverse=True):
            key = self._canonical[id(program)] = _shared(program)
            if key not in self._codes:
                code = self._codes[key] = _generated(program, machine)
                self._waiting[code.name] = start(kernel_unit(code))

    @property
    def all(self) -> tuple[KernelCode, ...]:
        """The distinct codes; those of calls as soon as `of` was asked for them."""
        return (*self._codes.values(), *self._opaque_codes.values())

    def of(self, program: TileProgram | OpaqueProgram, refs: list[BufferRef]) -> KernelCode:
        """A kernel's code. `refs`: its buffers; gets another one, a constant, for a call of the interpreter."""
        if not isinstance(program, OpaqueProgram) or is_generated(program):
            return self._codes[self._canonical[id(program)]]
        call = OpaqueCall(program)
        self.opaque.append(call)
        refs.append(self.constant(call.box))
        if call.form not in self._opaque_codes:
            self._opaque_codes[call.form] = opaque_code(call.form)
        return self._opaque_codes[call.form]

    def constant(self, array: NDArray[Any]) -> BufferRef:
        """A new constant."""
        self.constants.append(array)
        return BufferRef("constant", len(self.constants) - 1)

    def objects(self, codes: Sequence[KernelCode], engine: Engine) -> list[bytes]:
        """The object code of each: waits for it."""
        waiting = self._waiting
        return [waiting[c.name]() if c.name in waiting else engine.compile(kernel_unit(c)) for c in codes]


def _generated(program: TileProgram | OpaqueProgram, machine: Machine) -> KernelCode:
    if isinstance(program, OpaqueProgram):
        node = coded_in(program.graph)
        if node is not None and role_of(node) is Role.SORT:
            from autofuse.targets.cpu.codegen.sortkernel import generate_sort

            return generate_sort(program, machine)
        from autofuse.targets.cpu.codegen.scatterkernel import generate_scatter

        return generate_scatter(program, machine)
    from autofuse.targets.cpu.codegen.kernel import generate  # half of what there is to import

    return generate(program, machine)


def _shared(program: TileProgram | OpaqueProgram) -> TileProgram | str:
    """What is equal for kernels that can share code."""
    if isinstance(program, OpaqueProgram):
        return f"{digest(program.graph)} {program.workers}"
    return canonical(program)


def _code_size(program: TileProgram | OpaqueProgram) -> int:
    """How much code a kernel becomes, roughly: a product is like a hundred statements."""
    if isinstance(program, OpaqueProgram):
        return len(program.graph.nodes)
    steps = [step for phase in program.phases() for step in phase.steps]
    return sum(100 if isinstance(step, Dot) else sum(len(stage.body) for stage in step.stages) for step in steps)
