"""A plan on a GPU: kernels generated and loaded, one arena per call, launches on the caller's current stream.

Arguments and arrays for results may be NumPy's, which are copied to the device and back, or lie on the device, where
kernels use them as they are. Results that the caller gave no array for are device arrays if any argument is. What no
kernel computes is evaluated on the host, between copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from autofuse.errors import ArgumentError, BackendError
from autofuse.lazydataclass import dataclass, field
from autofuse.plan.document import PlanDocument
from autofuse.runtime.memory import MemoryPlan, plan_memory
from autofuse.runtime.planlowering import LoweredKernel
from autofuse.targets.cuda.calls import SharedByCalls
from autofuse.targets.cuda.codes import CodeKey, codes_of
from autofuse.targets.cuda.driver import CudaCode, Driver
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.horizontal import Start, StartedProgram, most_parameter_bytes, started
from autofuse.targets.cuda.quickcalls import quick_call

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class CudaProgram:
    """See `autofuse.targets.base.Program`."""

    constant_bytes: int
    direct: Callable[..., Any] | None
    direct_into: None = None
    xla_entry: None = None


@dataclass(frozen=True)
class CudaExecutable:
    """A plan. See `autofuse.targets.base.Executable`."""

    document: PlanDocument
    kernels: tuple[LoweredKernel, ...]
    codes: Mapping[CodeKey, CudaCode]
    """Equal kernels share code."""
    memory: MemoryPlan
    gpu: Gpu
    driver: Driver | None
    """None: there is no such device here, and the plan can be looked at only."""
    starts: tuple[Start, ...]
    """What a call starts, in order."""
    inside: Mapping[int, tuple[StartedProgram, ...]] = field(default_factory=dict[int, tuple[StartedProgram, ...]])
    """What loops and branches start that are no kernel, by their number among the kernels."""
    _lock: Lock = field(default_factory=Lock)

    @property
    def aliased(self) -> frozenset[int]:
        return frozenset(output for output, _ in self.memory.aliases)

    @property
    def calls_python(self) -> bool:
        """Where there is no device, it says so. Kernels are loaded by the first call, and not to know this."""
        return self.driver is None

    @property
    def program(self) -> CudaProgram:
        return self._program

    @cached_property
    def _program(self) -> CudaProgram:
        """Its call is the common one. Raises BackendError where kernels cannot be loaded."""
        direct = None
        if self.driver is not None:
            with self.driver.entered():
                direct = quick_call(self.document, self._ready[1])
        return CudaProgram(self.memory.constant_bytes, direct)

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...] | Any:
        driver, shared = self._ready
        with driver.entered():
            call = shared.call(inputs)
            if call is None:
                return NotImplemented
            call.run()
            return call.finished()

    def run_into(self, inputs: Sequence[Any], outs: Sequence[Any]) -> bool:
        written = [value for number, value in enumerate(self.document.graph.outputs) if number not in self.aliased]
        driver, shared = self._ready
        with driver.entered():
            call = shared.call(inputs)
            if call is None or not call.take_outs(written, outs):
                return False
            call.run()
            call.finish_outs()
            call.finish_aliases()
            return True

    def profile(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        driver, shared = self._ready
        times: list[int] = []
        with driver.entered():
            call = shared.call(inputs)
            if call is None:
                raise ArgumentError(f"plan {self.document.name}: arguments must have the types of the graph's inputs")
            call.run_each(lambda: times.append(driver.clock()))
            call.finish_aliases()
        found = [0] * len(self.kernels)
        for start, (before, after) in zip(self.starts, pairwise(times), strict=True):
            for number, share in zip(start.kernels, start.shares, strict=True):
                found[number] = round(share * (after - before))
        return tuple(found)

    def source(self) -> Mapping[str, str]:
        """Of kernels that are launched together by the first one's name, of others by their own."""
        texts: dict[str, str] = {}
        _add_texts(texts, self.started, self.kernels)
        return texts

    @property
    def started(self) -> StartedProgram:
        """What a call starts, inside of loops and branches too."""
        return StartedProgram(self.starts, self.inside)

    def listings(self) -> Mapping[str, str]:
        return {f"{name}.cu": text for name, text in self.source().items()}

    def keep(self, name: bytes) -> None:
        """Machine code is kept by what compiles it, by content."""

    @cached_property
    def _ready(self) -> tuple[Driver, SharedByCalls]:
        """What calls share, made by the first. Raises BackendError without a device."""
        with self._lock:
            if self.driver is None:
                raise BackendError(
                    f"plan {self.document.name} is for {self.gpu.name}, and there is no such GPU here: it can be "
                    "explained, saved and read, and run where there is one"
                )
            if "_ready" in self.__dict__:  # another thread was first
                return self.__dict__["_ready"]
            with self.driver.entered():
                shared = SharedByCalls(self.document, self.kernels, self.started, self.memory, self.gpu, self.driver)
            return self.__dict__.setdefault("_ready", (self.driver, shared))


def build_executable(
    document: PlanDocument, kernels: tuple[LoweredKernel, ...], gpu: Gpu, driver: Driver | None
) -> CudaExecutable:
    """Plan memory and generate code. Raises PlanError, LegalityError or BackendError."""
    memory = plan_memory(document.graph, document.writebacks, kernels)
    codes = codes_of(kernels, gpu.arch)
    program = started(kernels, codes, gpu, most_parameter_bytes(driver))
    return CudaExecutable(document, kernels, codes, memory, gpu, driver, program.starts, program.inside)


def _add_texts(texts: dict[str, str], program: StartedProgram, kernels: Sequence[LoweredKernel]) -> None:
    """The CUDA C of a program by name, where it is not known yet."""
    for start in program.starts:
        if start.code is not None:
            planned = kernels[start.kernels[0]].planned
            name = planned.name if start.code.kernel.members else start.code.kernel.name
            texts.setdefault(name, start.code.kernel.source)
        elif (alone := start.kernels[0]) in program.inside:
            for inner, region in zip(program.inside[alone], kernels[alone].regions, strict=True):
                _add_texts(texts, inner, region.kernels)
