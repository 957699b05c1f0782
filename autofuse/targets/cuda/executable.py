"""A plan on a GPU: kernels generated and loaded, one arena per call, launches on the caller's current stream.

Arguments may be NumPy arrays, which are copied to the device and back, or arrays that are there. Results are device
arrays if any argument is. What no kernel computes is evaluated on the host, between copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError, BackendError
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.interpreter import interpret_into
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.tile import OpaqueProgram, Space, TileProgram
from autofuse.plan.document import PlanDocument
from autofuse.runtime.fitting import fit_to_write, fits
from autofuse.runtime.memory import MemoryPlan, plan_memory
from autofuse.runtime.planlowering import LoweredKernel, canonical
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.driver import CudaCode, Driver, Function
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.horizontal import Start, most_parameter_bytes, starts_of

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class CudaProgram:
    """No program that a call could enter without Python. See `autofuse.targets.base.Program`."""

    constant_bytes: int
    direct: None = None
    direct_into: None = None


@dataclass(frozen=True)
class CudaExecutable:
    """A plan. See `autofuse.targets.base.Executable`."""

    document: PlanDocument
    kernels: tuple[LoweredKernel, ...]
    codes: Mapping[TileProgram, CudaCode]
    """By the kernel in canonical form: equal kernels share code."""
    memory: MemoryPlan
    gpu: Gpu
    driver: Driver | None
    """None: there is no such device here, and the plan can be looked at only."""
    computed: frozenset[Value]
    """What kernels write."""
    starts: tuple[Start, ...]
    """What a call starts, in order."""
    _lock: Lock = field(default_factory=Lock)

    @property
    def aliased(self) -> frozenset[int]:
        return frozenset(output for output, _ in self.memory.aliases)

    @property
    def calls_python(self) -> bool:
        return True

    @property
    def program(self) -> CudaProgram:
        return CudaProgram(self.memory.constant_bytes)

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...] | Any:
        call = self._call(inputs)
        if call is None:
            return NotImplemented
        call.results()
        call.run()
        return call.finished()

    def run_into(self, inputs: Sequence[Any], outs: Sequence[Any]) -> bool:
        written = [value for number, value in enumerate(self.document.graph.outputs) if number not in self.aliased]
        call = self._call(inputs)
        if call is None or not fit_to_write(outs, [value.type for value in written], inputs):
            return False
        call.results()
        call.run()
        for value, out in zip(written, outs, strict=True):
            call.driver.read(call.at[value], out)
        call.finish_aliases()
        return True

    def profile(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        call = self._call(inputs)
        if call is None:
            raise ArgumentError(f"plan {self.document.name}: arguments must have the types of the graph's inputs")
        call.results()
        times: list[int] = []
        call.run(lambda: times.append(call.driver.clock()))
        call.finish_aliases()
        found = [0] * len(self.kernels)
        for start, (before, after) in zip(self.starts, pairwise(times), strict=True):
            for number, share in zip(start.kernels, start.shares, strict=True):
                found[number] = round(share * (after - before))
        return tuple(found)

    def source(self) -> Mapping[str, str]:
        """Of kernels that are launched together by the first one's name, of others by their own."""
        texts: dict[str, str] = {}
        for start in self.starts:
            if start.code is not None:
                planned = self.kernels[start.kernels[0]].planned
                name = planned.name if start.code.kernel.members else start.code.kernel.name
                texts.setdefault(name, start.code.kernel.source)
        return texts

    def listings(self) -> Mapping[str, str]:
        return {f"{name}.cu": text for name, text in self.source().items()}

    def keep(self, name: bytes) -> None:
        """Machine code is kept by what compiles it, by content."""

    # ---- what calls share ----------------------------------------------------------------------------------------

    @cached_property
    def _ready(self) -> tuple[tuple[Function | None, ...], Mapping[Value, Any]]:
        """What is started, None for what the host evaluates, and constants. Raises BackendError without a device."""
        with self._lock:
            if self.driver is None:
                raise BackendError(
                    f"plan {self.document.name} is for {self.gpu.name}, and there is no such GPU here: it can be "
                    "explained, saved and read, and run where there is one"
                )
            codes = {id(start.code): start.code for start in self.starts if start.code is not None}
            loaded = dict(zip(codes, self.driver.load(list(codes.values())), strict=True))
            functions = tuple(None if start.code is None else loaded[id(start.code)] for start in self.starts)
            read = {value for kernel in self.kernels for value in kernel.reads} | {*self.document.graph.outputs}
            constants = read.intersection(values_of(self.document.graph, Role.CONSTANT))
            return functions, {value: self._constant(self.driver, value) for value in constants}

    def _constant(self, driver: Driver, value: Value) -> Any:
        array = driver.empty(value.type)
        driver.write(driver.pointer(array), self.document.graph.producers[value].attrs["value"])
        return array

    def _call(self, inputs: Sequence[Any]) -> _Call | None:
        """A call with its arguments on the device; None if there is one of NumPy's that does not fit."""
        functions, constants = self._ready
        assert self.driver is not None
        wanted = self.document.graph.inputs
        if len(inputs) != len(wanted):
            return None
        call = _Call(self, self.driver, functions, dict(enumerate(inputs)))
        for number, (value, given) in enumerate(zip(wanted, inputs, strict=True)):
            if not call.take(number, value, given):
                return None
        if not call.keeps_arguments_apart():
            return None
        for value, array in constants.items():
            call.keep(value, array)
        return call


class _Call:
    """One call: where its values lie, and who holds their memory."""

    def __init__(
        self, plan: CudaExecutable, driver: Driver, functions: Sequence[Function | None], given: dict[int, Any]
    ) -> None:
        self.plan, self.driver, self.functions, self.given = plan, driver, functions, given
        self.at: dict[Value, int] = {}
        self.held: dict[Value, Any] = {}
        self.on_device = False
        """Whether an argument was."""

    def keep(self, value: Value, array: Any) -> None:
        """Have a value lie in an array of the device."""
        self.held[value] = array
        self.at[value] = self.driver.pointer(array)

    def take(self, number: int, value: Value, given: Any) -> bool:
        """Have an argument on the device. False for what of NumPy's does not fit; raises ArgumentError for others."""
        if isinstance(given, np.ndarray):
            if not fits(given, value.type) or (number in self._written and not given.flags.writeable):
                return False
            array = self.driver.empty(value.type)
            self.driver.write(self.driver.pointer(array), given)
        else:
            found = self.driver.adopt(given)
            if found is None:
                return False
            self._require(found, value)
            if not self.driver.is_plain(found):
                if number in self._written:
                    raise ArgumentError(
                        f"{value.name}: the function writes into it; it must be C-contiguous and begin at a multiple "
                        "of 16 bytes, got an array that is not; pass a copy"
                    )
                found = self.driver.copied(found)
            array, self.on_device = found, True
        self.keep(value, array)
        return True

    def keeps_arguments_apart(self) -> bool:
        """Whether none that is written into overlaps another. Raises ArgumentError for arrays of the device."""
        values = self.plan.document.graph.inputs
        for number in self._written:
            for other, array in self.given.items():
                mine = self.given[number]
                if other == number:
                    continue
                if isinstance(mine, np.ndarray) and isinstance(array, np.ndarray):
                    if np.may_share_memory(mine, array):
                        return False  # the caller looks closer, and says which
                elif not isinstance(mine, np.ndarray) and not isinstance(array, np.ndarray):
                    self._require_apart(values[number], values[other])
        return True

    def _require_apart(self, written: Value, other: Value) -> None:
        begin, at = self.at[written], self.at[other]
        if begin < at + other.type.nbytes and at < begin + written.type.nbytes:
            raise ArgumentError(
                f"{written.name} and {other.name} overlap, and the function writes into the first; pass copies"
            )

    @property
    def _written(self) -> frozenset[int]:
        return frozenset(self.plan.document.writebacks)

    def _require(self, array: Any, value: Value) -> None:
        kind = value.type
        if tuple(array.shape) != kind.shape or np.dtype(array.dtype) != kind.dtype.numpy:
            raise ArgumentError(
                f"{value.name}: needs {kind}, got {array.dtype}{list(array.shape)}; convert it on the device, or "
                "compile for that type"
            )

    def results(self) -> None:
        """Have memory for results; what goes straight into an argument has it there."""
        graph = self.plan.document.graph
        for output, source in self.plan.memory.aliases:
            self.at[graph.outputs[output]] = self.at[graph.inputs[source]]
        for value in graph.outputs:
            if value not in self.at:
                self.keep(value, self.driver.empty(value.type))

    def run(self, between: Callable[[], object] = lambda: None) -> None:
        """Start all kernels, in order. `between`: called before, and after each start."""
        memory = self.plan.memory
        arena = self.driver.empty(TensorType((memory.arena_bytes,), dtypes.U8))
        base = self.driver.pointer(arena)
        self.at.update({value: base + offset for value, offset in memory.offsets.items()})
        between()
        for start, function in zip(self.plan.starts, self.functions, strict=True):
            if function is None:
                self._interpret(self.plan.kernels[start.kernels[0]])
            else:
                function([at for step in start.kernels for at in self._pointers(step, base)])
            between()
        del arena

    def _pointers(self, step: int, arena: int) -> list[int]:
        """Where the parameters of a kernel lie."""
        kernel = self.plan.kernels[step]
        values = iter((*kernel.reads, *kernel.writes))
        return [
            arena + self.plan.memory.workspaces[step, buffer.name]
            if buffer.space is Space.WORKSPACE
            else self.at[next(values)]
            for buffer in kernel.program.buffers
            if buffer.space is not Space.SCRATCH
        ]

    def _interpret(self, kernel: LoweredKernel) -> None:
        """On the host."""
        assert isinstance(kernel.program, OpaqueProgram)
        inputs = [np.empty(value.type.shape, value.type.dtype.numpy) for value in kernel.reads]
        for value, array in zip(kernel.reads, inputs, strict=True):
            self.driver.read(self.at[value], array)
        outs = [np.empty(value.type.shape, value.type.dtype.numpy) for value in kernel.writes]
        interpret_into(kernel.program.graph, inputs, outs)
        for value, array in zip(kernel.writes, outs, strict=True):
            self.driver.write(self.at[value], array)

    def finish_aliases(self) -> None:
        """Give the caller's NumPy arrays what was written into them."""
        for output, source in self.plan.memory.aliases:
            given = self.given[source]
            if isinstance(given, np.ndarray):
                self.driver.read(self.at[self.plan.document.graph.outputs[output]], given)

    def finished(self) -> tuple[Any, ...]:
        """The results where the caller wants them; new values of arguments on the device are put there."""
        document, aliased = self.plan.document, self.plan.aliased
        first = len(document.graph.outputs) - len(document.writebacks)
        sources = dict(enumerate(document.writebacks, first))
        found: list[Any] = []
        for number, value in enumerate(document.graph.outputs):
            given = self.given[sources[number]] if number in sources else None
            if given is None or (isinstance(given, np.ndarray) and number not in aliased):
                found.append(self._result(value))
                continue
            if isinstance(given, np.ndarray):
                self.driver.read(self.at[value], given)
            elif number not in aliased:
                there = document.graph.inputs[sources[number]]
                self.driver.move(self.at[there], self.at[value], value.type.nbytes)
            found.append(given)
        return tuple(found)

    def _result(self, value: Value) -> Any:
        """A result in an array of its own, on the device if an argument was."""
        if not self.on_device:
            out = np.empty(value.type.shape, value.type.dtype.numpy)
            self.driver.read(self.at[value], out)
            return out
        array = self.held.pop(value, None)
        if array is not None and value in self.plan.computed:
            return array
        fresh = self.driver.empty(value.type)
        self.driver.move(self.driver.pointer(fresh), self.at[value], value.type.nbytes)
        return fresh


def build_executable(
    document: PlanDocument, kernels: tuple[LoweredKernel, ...], gpu: Gpu, driver: Driver | None
) -> CudaExecutable:
    """Plan memory and generate code. Raises PlanError, LegalityError or BackendError."""
    memory = plan_memory(document.graph, document.writebacks, kernels)
    codes = codes_of(kernels, gpu.arch)
    computed = frozenset(value for kernel in kernels for value in kernel.writes)
    starts = starts_of(kernels, codes, gpu, most_parameter_bytes(driver))
    return CudaExecutable(document, kernels, codes, memory, gpu, driver, computed, starts)


def codes_of(kernels: Sequence[LoweredKernel], arch: str) -> dict[TileProgram, CudaCode]:
    """The CUDA C of kernels, by their canonical form: equal ones share it, under the first one's name.

    Raises LegalityError or BackendError.
    """
    codes: dict[TileProgram, CudaCode] = {}
    for kernel in kernels:
        if isinstance(kernel.program, TileProgram):
            key = canonical(kernel.program)
            if key not in codes:
                codes[key] = CudaCode(kernel.program, generate(kernel.program, arch))
    return codes
