"""Kernels of a plan that are no generated code: what the device's array library computes, and what the host does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autofuse.ir.graph import Value
from autofuse.ir.interpreter import interpret_into
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.targets.cuda.codes import generated_scatter
from autofuse.targets.cuda.driver import Driver
from autofuse.targets.cuda.library.form import Form, Given
from autofuse.targets.cuda.library.forms import device_form
from autofuse.targets.cuda.segments import Place

LIBRARY_NOTE = "is computed on the device by CuPy"
HOST_NOTE = "runs on the host, by NumPy, between copies"


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """A kernel that calls a function."""

    driver: Driver
    program: OpaqueProgram
    form: Form | None
    """None: the host computes it."""
    reads: tuple[Place, ...]
    """Of the inputs of its graph."""
    writes: tuple[Place, ...]
    """Of the outputs."""

    def start(self, arrays: Sequence[int]) -> None:
        """Start it, given the addresses of the call's arrays; the host waits for what was started before.

        Raises CallError, BackendError and NotEnoughMemoryError.
        """
        graph = self.program.graph
        operands, results = _given(graph.inputs, self.reads, arrays), _given(graph.outputs, self.writes, arrays)
        if self.form is None:
            interpret_between_copies(self.driver, self.program, operands, results)
        else:
            self.driver.call(self.form, operands, results)


def library_step(driver: Driver, program: OpaqueProgram, place: Callable[[Value], Place]) -> LibraryStep:
    """A kernel whose values lie where `place` says, on the device if its library can."""
    graph, form = program.graph, device_form(program)
    places = tuple(map(place, graph.inputs)), tuple(map(place, graph.outputs))
    return LibraryStep(driver, program, None if isinstance(form, str) else form, *places)


def interpret_between_copies(
    driver: Driver, program: OpaqueProgram, operands: Sequence[Given], results: Sequence[Given]
) -> None:
    """A kernel on the host."""
    inputs = [np.empty(given.type.shape, given.type.dtype.numpy) for given in operands]
    for given, array in zip(operands, inputs, strict=True):
        driver.read(given.pointer, array)
    outs = [np.empty(given.type.shape, given.type.dtype.numpy) for given in results]
    interpret_into(program.graph, inputs, outs)
    for given, array in zip(results, outs, strict=True):
        driver.write(given.pointer, array)


def library_note(program: TileProgram | OpaqueProgram) -> str | None:
    """Where a kernel that is no generated code is computed, and why not on the device; None for generated code."""
    if isinstance(program, TileProgram) or generated_scatter(program) is not None:
        return None
    form = device_form(program)
    return f"{HOST_NOTE}: {form}" if isinstance(form, str) else f"{LIBRARY_NOTE}: {form.label}"


def _given(values: Sequence[Value], places: Sequence[Place], arrays: Sequence[int]) -> list[Given]:
    pairs = zip(values, places, strict=True)
    return [Given(arrays[place.array] + place.offset, value.type) for value, place in pairs]
