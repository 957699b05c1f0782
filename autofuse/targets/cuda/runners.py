"""Kernels loaded alone, to be checked and timed on copies of arrays that lie on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.errors import AutofuseError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, Space
from autofuse.runtime.fitting import all_fit
from autofuse.targets.cuda.codes import code_of
from autofuse.targets.cuda.driver import CudaCode, Driver, Function
from autofuse.targets.cuda.grids import fitted
from autofuse.targets.cuda.librarysteps import library_step
from autofuse.targets.cuda.segments import Place

Array = NDArray[Any]


def cuda_runners(
    kernel: KernelCandidate, schedules: Sequence[Schedule], limits: Limits, driver: Driver
) -> list[CudaRunner | AutofuseError]:
    """A kernel under each schedule, or why that cannot be. They compile beside each other."""
    made = [_code(kernel, schedule, limits, driver.gpu.arch) for schedule in schedules]
    codes = iter(fitted([code for code in made if isinstance(code, CudaCode)], driver.gpu))
    made = [next(codes) if isinstance(code, CudaCode) else code for code in made]
    functions = iter(_loaded([code for code in made if isinstance(code, CudaCode)], driver))
    return [code if isinstance(code, AutofuseError) else _runner(kernel, code, functions, driver) for code in made]


def _loaded(codes: Sequence[CudaCode], driver: Driver) -> Sequence[Function | AutofuseError]:
    """All beside each other; where one of them is refused, each alone, so that it does not keep the others back."""
    try:
        return driver.load(codes)
    except AutofuseError as refused:
        if len(codes) == 1:
            return [refused]
    return [function for code in codes for function in _loaded([code], driver)]


def _runner(
    kernel: KernelCandidate,
    code: CudaCode | OpaqueProgram,
    functions: Iterator[Function | AutofuseError],
    driver: Driver,
) -> CudaRunner | AutofuseError:
    function = next(functions) if isinstance(code, CudaCode) else None
    return function if isinstance(function, AutofuseError) else CudaRunner(kernel, driver, code, function)


def _code(
    kernel: KernelCandidate, schedule: Schedule, limits: Limits, arch: str
) -> CudaCode | OpaqueProgram | AutofuseError:
    scalars = max(limits.scalars, plain_scalars(kernel))
    try:
        program = limits.workspaces(lower(kernel, schedule, "kernel", replace(limits, scalars=scalars)))
        code = code_of(program, arch)
        if code is not None:
            return code
        assert isinstance(program, OpaqueProgram)
        return program
    except AutofuseError as refused:
        return refused


@dataclass(frozen=True, slots=True)
class CudaRunner:
    """A kernel, loaded to be checked and timed alone. See `autofuse.targets.base.Runner`."""

    kernel: KernelCandidate
    driver: Driver
    code: CudaCode | OpaqueProgram
    function: Function | None

    def run_into(self, inputs: Sequence[Array], outs: Sequence[Array]) -> bool:
        types = [[value.type for value in values] for values in (self.kernel.inputs, self.kernel.outputs)]
        if not all(map(all_fit, (inputs, outs), types)):
            return False
        with self.driver.entered():
            call, made = self._bound(inputs, outs)
            call()
            for out, array in zip(outs, made, strict=True):
                self.driver.read(self.driver.pointer(array), out)
        return True

    def bound(self, inputs: Sequence[Array], outs: Sequence[Array]) -> Callable[[], object]:
        with self.driver.entered():
            return self._bound(inputs, outs)[0]

    def compiled(self) -> CompiledFacts | None:
        if isinstance(self.code, OpaqueProgram) or self.code.library is not None:
            return None
        return self.driver.compiled(self.code.kernel)

    def _bound(self, inputs: Sequence[Array], outs: Sequence[Array]) -> tuple[Callable[[], object], list[Any]]:
        """What starts it on copies of the inputs on the device, and the arrays there that it writes."""
        driver = self.driver
        there = [self._copy(value, array) for value, array in zip(self.kernel.inputs, inputs, strict=True)]
        made = [self._copy(value, out) for value, out in zip(self.kernel.outputs, outs, strict=True)]
        if isinstance(self.code, OpaqueProgram):
            arrays = dict(zip((*self.kernel.inputs, *self.kernel.outputs), (*there, *made), strict=True))
            step = library_step(driver, self.code, {value: Place(n) for n, value in enumerate(arrays)}.__getitem__)
            return _Bound(driver, step.start, tuple(map(driver.pointer, arrays.values())), tuple(arrays.values())), made
        assert self.function is not None
        values = iter((*there, *made))
        arrays = [
            driver.empty(buffer.type) if buffer.space is Space.WORKSPACE else next(values)
            for buffer in self.code.kernel.parameters
        ]
        return _Bound(driver, self.function, tuple(driver.pointer(array) for array in arrays), tuple(arrays)), made

    def _copy(self, value: Value, array: Array) -> Any:
        """Poison in outputs goes to the device too."""
        there = self.driver.empty(value.type)
        self.driver.write(self.driver.pointer(there), array)
        return there


@dataclass(frozen=True, slots=True)
class _Bound:
    """A kernel, and the memory that it works in."""

    driver: Driver
    start: Callable[[Sequence[int]], object]
    pointers: tuple[int, ...]
    held: tuple[Any, ...]
    """Arrays whose memory that is."""

    def __call__(self) -> None:
        try:
            self.start(self.pointers)
        except AutofuseError:
            raise
        except Exception:  # what CUDA says; a device that is lost says so whatever it is asked
            self.driver.wait()
            raise
