"""Run a generated CPU kernel by itself: every phase called from Python on any split of its blocks."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.lower.tile import Buffer, Space, TileProgram
from autofuse.targets.cpu.codegen import generate
from autofuse.targets.cpu.codegen.widths import TASK_US
from autofuse.targets.cpu.machine import Machine
from autofuse.targets.cpu.native import driver
from autofuse.targets.cpu.native.engine import Engine, LinkedCode
from autofuse.targets.cpu.native.nativeruntime import enable_blas
from autofuse.targets.cpu.native.program import KernelCode, PhaseCode
from autofuse.targets.cpu.passes.prepare import CpuPasses

_GUARD = 64
"""Bytes before and after each written buffer that a kernel must leave alone."""
_POISON = 0xA5


def generated(program: TileProgram, machine: Machine, task_us: float = TASK_US) -> KernelCode:
    """The code of a program as it was lowered, before the passes."""
    return generate(CpuPasses(machine.vector_bits)(program), machine, task_us)


class Kernel:
    """A compiled TileProgram, given as it was lowered, before the passes."""

    def __init__(self, program: TileProgram, engine: Engine, task_us: float = TASK_US) -> None:
        """Generate, compile and link. Raises BackendError."""
        self.program = program
        self.code = generated(program, engine.machine, task_us)
        self.unit = driver.kernel_unit(self.code)
        symbols = enable_blas() if driver.uses_blas([self.code]) else {}
        exports = [phase.symbol for launch in self.code.launches for phase in launch]
        self._linked: LinkedCode = engine.link([engine.compile(self.unit)], symbols, exports)

    def run(self, inputs: Mapping[str, NDArray[Any]], parts: int = 1) -> dict[str, NDArray[Any]]:
        """The OUTPUT buffers by name. Each phase is called for `parts` shares of its blocks, the last share first.

        Outputs and workspace start poisoned; raises AssertionError when a kernel writes outside them.
        """
        memory = {b.name: self._memory(b, inputs) for b in self.program.parameters()}
        table = (ctypes.c_void_p * max(len(memory), 1))(*(m.ctypes.data + _GUARD for m in memory.values()))
        for launch in self.code.launches:
            for phase in reversed(launch):
                self._run_phase(phase, table, parts)
        for buffer in self.program.parameters():
            guards = np.concatenate([memory[buffer.name][:_GUARD], memory[buffer.name][-_GUARD:]])
            assert (guards == _POISON).all(), f"{self.program.name} writes outside {buffer.name}"
        return {
            b.name: memory[b.name][_GUARD:-_GUARD].view(b.type.dtype.numpy).reshape(b.type.shape)
            for b in self.program.buffers
            if b.space is Space.OUTPUT
        }

    def _run_phase(self, phase: PhaseCode, table: Any, parts: int) -> None:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
            self._linked[phase.symbol]
        )
        scratch = _aligned(phase.scratch_bytes + 2 * _GUARD)
        limits = [phase.blocks * part // parts for part in range(parts + 1)]
        for begin, end in reversed(list(itertools.pairwise(limits))):
            scratch[:] = _POISON
            call(ctypes.addressof(table), begin, end, scratch.ctypes.data + _GUARD)
            guards = np.concatenate([scratch[:_GUARD], scratch[-_GUARD:]])
            assert (guards == _POISON).all(), f"{phase.symbol} writes outside its scratch"

    @staticmethod
    def _memory(buffer: Buffer, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        memory = _aligned(buffer.type.nbytes + 2 * _GUARD)
        memory[:] = _POISON
        if buffer.space is Space.INPUT:
            memory[_GUARD:-_GUARD] = np.ascontiguousarray(inputs[buffer.name]).reshape(-1).view(np.uint8)
        return memory


def _aligned(size: int) -> NDArray[np.uint8]:
    raw = np.empty(size + 63, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def random_inputs(buffers: Sequence[Buffer], seed: int = 0) -> dict[str, NDArray[Any]]:
    """Random values for the INPUT buffers: normal floats, integers over a small range, fair bools."""
    generator = np.random.default_rng(seed)
    return {b.name: _random(b, generator) for b in buffers if b.space is Space.INPUT}


def _random(buffer: Buffer, generator: np.random.Generator) -> NDArray[Any]:
    shape, dtype = buffer.type.shape, buffer.type.dtype
    if dtype.is_float:
        return generator.standard_normal(shape).astype(dtype.numpy)
    if dtype.is_integer:
        return generator.integers(-50 if dtype.kind == "int" else 0, 50, shape).astype(dtype.numpy)
    return generator.random(shape) < 0.5
