"""Plans and kernels, run by the evaluator of TilePrograms while the clock counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.errors import ArgumentError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret_into
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.parts import as_complex, as_parts
from autofuse.lazydataclass import dataclass
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, Space, TileProgram
from autofuse.plan.document import PlanDocument
from autofuse.report.tileprint import print_program
from autofuse.runtime.fitting import all_fit, fit_to_write
from autofuse.runtime.memory import MemoryPlan, plan_memory
from autofuse.runtime.needs import require_memory
from autofuse.runtime.planlowering import LoweredKernel, candidate_of, canonical
from autofuse.testing.counted.device import CountedClock, CountedDevice
from autofuse.testing.counted.hidden import Hidden
from autofuse.testing.counted.work import features, nanoseconds

Array = NDArray[Any]
Compiler = Callable[[TileProgram | OpaqueProgram], CompiledFacts | None]


def says_nothing(program: TileProgram | OpaqueProgram) -> None:
    """As a compiler whose words do not matter."""
    del program


class Counting(Protocol):
    """What runs kernels and plans: the target."""

    device: CountedDevice
    hidden: Hidden
    clock: CountedClock
    compiler: Compiler


@dataclass(slots=True)
class CountedKernel:
    """A kernel, ready to run on a device."""

    program: TileProgram | OpaqueProgram
    takes: Callable[[], float]
    """Nanoseconds of a call."""
    clock: CountedClock
    compiler: Compiler = says_nothing
    _last: tuple[list[bytes], tuple[Array, ...]] | None = None
    """What it was called with, and what came of it: evaluating that again would give the same."""

    @staticmethod
    def of(
        program: TileProgram | OpaqueProgram, kernel: KernelCandidate, schedule: Schedule, target: Counting
    ) -> CountedKernel:
        """Count its work. Raises BackendError for what there is no kernel for."""
        counted = nanoseconds(features(program), target.device)
        takes = partial(target.hidden.kernel, kernel, schedule, counted)
        return CountedKernel(program, takes, target.clock, target.compiler)

    def results(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """The values of its outputs, in order. Raises what the interpreter raises."""
        if isinstance(self.program, OpaqueProgram):
            return self._library(inputs)
        given = [array.tobytes() for array in inputs]
        if self._last is None or self._last[0] != given:
            self._last = given, self._evaluated(inputs)
        return self._last[1]

    def run_into(self, inputs: Sequence[Array], outs: Sequence[Array]) -> bool:
        """Run once; False, with nothing done, if an array does not fit."""
        buffers = self.program.buffers
        fit = all_fit(inputs, [b.type for b in buffers if b.space is Space.INPUT])
        if not fit or not fit_to_write(outs, [b.type for b in buffers if b.space is Space.OUTPUT], inputs):
            return False
        for out, result in zip(outs, self.results(inputs), strict=True):
            np.copyto(out, result)
        self.clock.advance(round(self.takes()))
        return True

    def bound(self, inputs: Sequence[Array], outs: Sequence[Array]) -> Callable[[], object]:
        """What runs it on these arrays."""
        return partial(self.run_into, tuple(inputs), tuple(outs))

    def compiled(self) -> CompiledFacts | None:
        """See `CountedTarget.compiled`."""
        return self.compiler(self.program)

    def _library(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        outs = [np.empty(b.type.shape, b.type.dtype.numpy) for b in self.program.buffers if b.space is Space.OUTPUT]
        assert isinstance(self.program, OpaqueProgram)
        interpret_into(self.program.graph, inputs, outs)
        return tuple(outs)

    def _evaluated(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        assert isinstance(self.program, TileProgram)
        names = [buffer.name for buffer in self.program.buffers if buffer.space is Space.INPUT]
        with np.errstate(all="ignore"):
            found = evaluate_program(self.program, dict(zip(names, inputs, strict=True)))
        return tuple(found[buffer.name] for buffer in self.program.buffers if buffer.space is Space.OUTPUT)


@dataclass(frozen=True, slots=True)
class CountedProgram:
    """No native code. See `autofuse.targets.base.Program`."""

    constant_bytes: int
    direct: None = None
    direct_into: None = None
    xla_entry: None = None


@dataclass(frozen=True, slots=True)
class CountedExecutable:
    """A plan. See `autofuse.targets.base.Executable`."""

    document: PlanDocument
    kernels: tuple[LoweredKernel, ...]
    counted: tuple[CountedKernel, ...]
    memory: MemoryPlan
    target: Counting

    @property
    def aliased(self) -> frozenset[int]:
        return frozenset(output for output, _ in self.memory.aliases)

    @property
    def calls_python(self) -> bool:
        return True

    @property
    def program(self) -> CountedProgram:
        return CountedProgram(self.memory.constant_bytes)

    def run(self, inputs: Sequence[Array]) -> tuple[Array, ...] | Any:
        if not self._takes(inputs):
            return NotImplemented
        results, _ = self._computed(inputs)
        owned = [result.copy() for result in results]
        for output, source in self.memory.aliases:
            np.copyto(inputs[source], results[output])
            owned[output] = inputs[source]
        return tuple(owned)

    def run_into(self, inputs: Sequence[Array], outs: Sequence[Array]) -> bool:
        written = [number for number in range(len(self.document.graph.outputs)) if number not in self.aliased]
        types = [self.document.output_types[number] for number in written]
        if not self._takes(inputs) or not fit_to_write(outs, types, inputs):
            return False
        results, _ = self._computed(inputs)
        for output, source in self.memory.aliases:
            np.copyto(inputs[source], results[output])
        for number, out in zip(written, outs, strict=True):
            np.copyto(out, results[number])
        return True

    def profile(self, inputs: Sequence[Array]) -> tuple[int, ...]:
        if not self._takes(inputs):
            raise ArgumentError(f"plan {self.document.name}: arguments must have the types of the graph's inputs")
        results, times = self._computed(inputs)
        for output, source in self.memory.aliases:
            np.copyto(inputs[source], results[output])
        return times

    def source(self) -> Mapping[str, str]:
        texts: dict[object, tuple[str, str]] = {}
        for kernel in self.kernels:
            program = kernel.program
            key = canonical(program) if isinstance(program, TileProgram) else program
            texts.setdefault(key, (program.name, print_program(program)))
        return dict(texts.values())

    def listings(self) -> Mapping[str, str]:
        return {f"{name}.tile": text for name, text in self.source().items()}

    def keep(self, name: bytes) -> None:
        """There is nothing that would be quicker to find than to make."""

    def _takes(self, inputs: Sequence[Array]) -> bool:
        written = [inputs[source] for _, source in self.memory.aliases if source < len(inputs)]
        return all_fit(inputs, self.document.input_types) and all(array.flags.writeable for array in written)

    def _computed(self, inputs: Sequence[Array]) -> tuple[list[Array], tuple[int, ...]]:
        """Values of the graph's outputs, and nanoseconds per kernel. Nothing is written into any argument."""
        graph = self.document.graph
        values: dict[Value, Array] = {
            **_constants(graph),
            **dict(zip(graph.inputs, map(as_parts, inputs), strict=True)),
        }
        for lowered, kernel in zip(self.kernels, self.counted, strict=True):
            values.update(zip(lowered.writes, kernel.results([values[v] for v in lowered.reads]), strict=True))
        times = tuple(round(kernel.takes()) for kernel in self.counted)
        self.target.clock.advance(round(self.target.hidden.plan(self.document, sum(times))))
        whole = self.document.complex_outputs
        made = [values[value] for value in graph.outputs]
        return [as_complex(array) if number in whole else array for number, array in enumerate(made)], times


def _constants(graph: Graph) -> dict[Value, Array]:
    return {value: graph.producers[value].attrs["value"] for value in values_of(graph, Role.CONSTANT)}


def build_executable(document: PlanDocument, kernels: tuple[LoweredKernel, ...], target: Counting) -> CountedExecutable:
    """Plan memory, and count the kernels' work. Raises PlanError or BackendError."""
    memory = plan_memory(document.graph, document.writebacks, kernels)
    require_memory(document.name, memory, kernels)
    counted: list[CountedKernel] = []
    for kernel in kernels:
        candidate = candidate_of(document.graph, kernel.planned.nodes, kernel.planned.outputs)
        counted.append(CountedKernel.of(kernel.program, candidate, kernel.planned.schedule, target))
    return CountedExecutable(document, kernels, tuple(counted), memory, target)
