"""Calls of a plan on a GPU: where the values of one lie, who holds their memory, and what is copied where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any
from warnings import warn

import numpy as np

from autofuse.errors import ArgumentError, BackendError, LibraryRefusedWarning
from autofuse.ir import dtypes
from autofuse.ir.devicearrays import is_read_only
from autofuse.ir.graph import Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace
from autofuse.plan.document import PlanDocument
from autofuse.runtime.fitting import fit_to_write, fits
from autofuse.runtime.memory import MemoryPlan
from autofuse.runtime.planlowering import LoweredKernel
from autofuse.targets.cuda.driver import CudaCode, Driver, Function
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.horizontal import StartedProgram
from autofuse.targets.cuda.librarysteps import LibraryStep
from autofuse.targets.cuda.regionsteps import Loaded, RegionStep, step_of
from autofuse.targets.cuda.segments import Launch, Place, Segment
from autofuse.targets.cuda.streams import order_of, streams_of


class SharedByCalls:
    """What the calls of a plan share: loaded kernels, constants, and where in a call's arrays everything lies.

    The arrays of a call are its arguments, the constants, results that have memory of their own, and the arena.
    """

    def __init__(
        self,
        document: PlanDocument,
        kernels: Sequence[LoweredKernel],
        program: StartedProgram,
        memory: MemoryPlan,
        gpu: Gpu,
        driver: Driver,
    ) -> None:
        """Load kernels and copy constants to the device. Raises BackendError and NotEnoughMemoryError.

        `program`: what it starts.
        """
        self.document, self.memory, self.driver = document, memory, driver
        self.written = frozenset(document.writebacks)
        self.aliased = frozenset(output for output, _ in memory.aliases)
        self.computed = frozenset(value for kernel in kernels for value in kernel.writes)
        graph = document.graph
        read = {value for kernel in kernels for value in kernel.reads} | {*graph.outputs}
        constants = [value for value in values_of(graph, Role.CONSTANT) if value in read]
        in_arguments = {graph.outputs[output]: graph.inputs[source] for output, source in memory.aliases}
        own = dict.fromkeys(v for v in graph.outputs if v not in in_arguments and v in self.computed)
        self.results = tuple(own)
        in_arrays = (*graph.inputs, *constants, *self.results)
        seen = (*document.input_types, *document.output_types)
        self._kinds = dict(zip((*graph.inputs, *graph.outputs), seen, strict=True))
        self._place = {value: Place(number) for number, value in enumerate(in_arrays)}
        self._place |= {value: self._place[argument] for value, argument in in_arguments.items()}
        self._arena = len(in_arrays)
        self._place |= {value: Place(self._arena, offset) for value, offset in memory.offsets.items()}
        self.kernels = kernels
        self.starts = program.starts
        self.steps = self._loaded(program)
        self.segments = self._segments(streams_of(program.starts, kernels, gpu))
        self.constants = [self._constant(value) for value in constants]
        self.constant_pointers = [driver.pointer(array) for array in self.constants]
        driver.wait()  # other streams read them

    def kind(self, value: Value) -> TensorType:
        """The type of an argument or a result as callers see it."""
        return self._kinds[value]

    def place(self, value: Value) -> Place:
        """Where a value lies."""
        return self._place[value]

    def _loaded(self, program: StartedProgram) -> list[Launch | LibraryStep | RegionStep]:
        """How each start is made, in order."""
        codes = program.codes()
        loaded = Loaded(self.driver, codes, self._functions(codes), self.document.replayed)

        def arena(offset: int) -> Place:
            return Place(self._arena, offset)

        numbers = range(len(program.starts))
        return [step_of(program, n, self.kernels, self.memory, self.place, arena, loaded) for n in numbers]

    def _functions(self, codes: Sequence[CudaCode]) -> Sequence[Function]:
        """Loaded; what cuBLASLt was to compute by generated code, if it is not here or refuses."""
        try:
            return self.driver.load(codes)
        except BackendError as refused:
            if all(code.library is None for code in codes):
                raise
            said = f"plan {self.document.name}: {refused}; generated code computes it"
            warn(said, LibraryRefusedWarning, stacklevel=2)
            return self.driver.load([replace(code, library=None) for code in codes])

    def _segments(self, streams: Sequence[int]) -> list[Segment | LibraryStep | RegionStep]:
        """All of a plan: launches that follow each other, and calls between them."""
        found: list[Segment | LibraryStep | RegionStep] = []
        for is_launch, run in groupby(enumerate(self.steps), key=lambda step: isinstance(step[1], Launch)):
            numbers, steps = zip(*run, strict=True)
            if not is_launch:
                found += steps
                continue
            kernels = [self.starts[number].kernels for number in numbers]
            waits = order_of(self.document.graph, self.kernels, kernels, [streams[n] for n in numbers], self.memory)
            found.append(Segment(steps, waits, self.driver, self.document.replayed))
        return found

    def _constant(self, value: Value) -> Any:
        array = self.driver.empty(value.type)
        self.driver.write(self.driver.pointer(array), self.document.graph.producers[value].attrs["value"])
        return array

    def call(self, inputs: Sequence[Any]) -> Call | None:
        """A call with its arguments on the device; None if there is one that does not fit.

        Raises ArgumentError for an array on another device, and NotEnoughMemoryError.
        """
        wanted = self.document.graph.inputs
        if len(inputs) != len(wanted):
            return None
        call = Call(self, inputs)
        taken = (call.take(number, value) for number, value in enumerate(wanted))
        return call if all(taken) and call.keeps_arguments_apart() else None


class Call:
    """One call."""

    def __init__(self, shared: SharedByCalls, given: Sequence[Any]) -> None:
        """`given`: its arguments, which `take` has on the device one after another."""
        self._shared, self._driver, self._given = shared, shared.driver, given
        self._held: list[Any] = []
        self._arrays: list[int] = []
        """Addresses."""
        self._is_on_device = False
        """Whether an argument was."""
        self._outs: list[tuple[Value, Any, Any | None]] = []
        """Results and the caller's arrays for them, and the device's arrays that these are."""
        self._own_place: dict[Value, Any] = {}
        """The caller's arrays on the device that results with memory of their own are written into."""

    def at(self, value: Value) -> int:
        """The address of a value."""
        place = self._shared.place(value)
        return self._arrays[place.array] + place.offset

    def _hold(self, array: Any) -> None:
        self._held.append(array)
        self._arrays.append(self._driver.pointer(array))

    # ---- arguments -------------------------------------------------------------------------------------------------

    def take(self, number: int, value: Value) -> bool:
        """Have an argument on the device. False for what does not fit; raises ArgumentError for another device's."""
        given, is_written, kind = self._given[number], number in self._shared.written, self._shared.kind(value)
        if isinstance(given, np.ndarray):
            if not fits(given, kind) or (is_written and not given.flags.writeable):
                return False
            self._hold(self._driver.empty(kind))
            self._driver.write(self._arrays[-1], given)
            return True
        found = self._adopted(given, kind, value.name, is_written=is_written)
        if found is None:
            return False
        self._hold(found)
        self._is_on_device = True
        return True

    def _adopted(self, given: Any, kind: TensorType, name: str, *, is_written: bool) -> Any | None:
        """An array of the device that kernels take as it is; None for others. Raises what `Driver.adopt` does."""
        try:
            found = self._driver.adopt(given)
        except ArgumentError as error:
            raise ArgumentError(f"{name}: {error}") from error
        if found is None or tuple(found.shape) != kind.shape or found.dtype != kind.dtype.numpy:
            return None
        return found if self._driver.is_plain(found) and not (is_written and is_read_only(given)) else None

    def keeps_arguments_apart(self) -> bool:
        """Whether none that is written into overlaps another. Where one might, the caller looks closer."""
        return all(
            not self._overlap(number, other)
            for number in self._shared.written
            for other in range(len(self._given))
            if other != number
        )

    def _overlap(self, number: int, other: int) -> bool:
        mine, theirs = self._given[number], self._given[other]
        if isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray):
            return np.may_share_memory(mine, theirs)
        values = self._shared.document.graph.inputs
        return self._meets(self.at(values[number]), values[number].type.nbytes, other)

    def _meets(self, begin: int, nbytes: int, argument: int) -> bool:
        """Whether memory of the device has a byte of an argument."""
        value = self._shared.document.graph.inputs[argument]
        at = self.at(value)
        return begin < at + value.type.nbytes and at < begin + nbytes

    # ---- arrays for results ----------------------------------------------------------------------------------------

    def take_outs(self, values: Sequence[Value], outs: Sequence[Any]) -> bool:
        """Have results written into the caller's arrays. False, with nothing done, where one is not a plain array.

        So it is, too, where one overlaps another or an argument. Raises ArgumentError for another device's.
        """
        pairs = zip(map(self._shared.kind, values), outs, strict=True)
        on_host = [(out, kind) for kind, out in pairs if isinstance(out, np.ndarray)]
        if not fit_to_write([out for out, _ in on_host], [kind for _, kind in on_host], self._given):
            return False
        taken: list[tuple[int, int]] = []
        for value, out in zip(values, outs, strict=True):
            if isinstance(out, np.ndarray):
                self._outs.append((value, out, None))
                continue
            found = self._adopted(out, self._shared.kind(value), "out", is_written=True)
            if found is None:
                return False
            begin, nbytes = self._driver.pointer(found), value.type.nbytes
            if any(begin < at + size and at < begin + nbytes for at, size in taken):
                return False
            if any(self._meets(begin, nbytes, number) for number in range(len(self._given))):
                return False
            taken.append((begin, nbytes))
            self._outs.append((value, out, found))
            self._own_place.setdefault(value, found)
        return True

    def finish_outs(self) -> None:
        """Have in the caller's arrays what kernels did not write there."""
        for value, out, found in self._outs:
            if found is None:
                self._driver.read(self.at(value), out)
            elif self._driver.pointer(found) != self.at(value):
                self._driver.move(self._driver.pointer(found), self.at(value), value.type.nbytes)

    # ---- kernels ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Start all kernels."""
        arena = self._arena()
        for segment in self._shared.segments:
            segment.start(self._arrays)
        del arena

    def run_each(self, between: Callable[[], object]) -> None:
        """Start the kernels one after another. `between`: called before, and after each start, which is short then."""
        arena = self._arena()
        starts = [
            step.ready(self._arrays) if isinstance(step, Launch) else partial(step.start, self._arrays)
            for step in self._shared.steps
        ]
        between()
        for start in starts:
            start()
            between()
        del arena

    def _arena(self) -> Any:
        """Have memory for results and temporaries; given back when nobody has what this returns.

        The arena comes first, so that it lies where the last call's did, and the results of that do not matter.
        """
        shared = self._shared
        arena = self._driver.empty(TensorType((shared.memory.arena_bytes,), dtypes.U8))
        self._arrays += shared.constant_pointers
        for value in shared.results:
            own = self._own_place.get(value)
            self._hold(self._driver.empty(shared.kind(value)) if own is None else own)
        self._arrays.append(self._driver.pointer(arena))
        return arena

    # ---- results ---------------------------------------------------------------------------------------------------

    def finish_aliases(self) -> None:
        """Give the caller's NumPy arrays what was written into them."""
        shared = self._shared
        for output, source in shared.memory.aliases:
            given = self._given[source]
            if isinstance(given, np.ndarray):
                self._driver.read(self.at(shared.document.graph.outputs[output]), given)

    def finished(self) -> tuple[Any, ...]:
        """The results where the caller wants them; new values of arguments on the device are put there."""
        document, aliased = self._shared.document, self._shared.aliased
        first = len(document.graph.outputs) - len(document.writebacks)
        sources = dict(enumerate(document.writebacks, first))
        own = dict(zip(self._shared.results, self._held[len(document.graph.inputs) :], strict=True))
        found: list[Any] = []
        for number, value in enumerate(document.graph.outputs):
            given = self._given[sources[number]] if number in sources else None
            if given is None or (isinstance(given, np.ndarray) and number not in aliased):
                found.append(self._result(value, own))
                continue
            if isinstance(given, np.ndarray):
                self._driver.read(self.at(value), given)
            elif number not in aliased:
                there = document.graph.inputs[sources[number]]
                self._driver.move(self.at(there), self.at(value), value.type.nbytes)
            found.append(given)
        return tuple(found)

    def _result(self, value: Value, own: dict[Value, Any]) -> Any:
        """A result in an array of its own, on the device if an argument was."""
        if not self._is_on_device:
            kind = self._shared.kind(value)
            out = np.empty(kind.shape, kind.dtype.numpy)
            self._driver.read(self.at(value), out)
            return out
        array = own.pop(value, None)
        if array is not None:
            return array
        fresh = self._driver.empty(self._shared.kind(value))
        self._driver.move(self._driver.pointer(fresh), self.at(value), value.type.nbytes)
        return fresh
