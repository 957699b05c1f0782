"""Compiles one scalar opcode, or any lane-wise emitter, into `void f(ptr in..., ptr out, i64 n)` and runs it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from autofuse.ir.dtypes import DType, from_numpy
from autofuse.targets.cpu import scalars
from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText, Vec

Emitter = Callable[[FunctionText, Sequence[str], int], str]
"""(function, register operands, lanes) -> register result."""


def compile_text(text: str) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2)
    passes = llvm.create_pass_builder(machine, llvm.PipelineTuningOptions(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    return llvm.create_mcjit_compiler(module, machine)


class Kernel:
    """A compiled loop over whole vectors; inputs are padded by repeating their last element."""

    def __init__(
        self, emitter: Emitter, operand_dtypes: Sequence[DType], result: DType, lanes: int, features: str | None = None
    ) -> None:
        self._result, self._lanes = result, lanes
        if features is None:
            features = llvm.get_host_cpu_features().flatten()
        self.text = kernel_text(emitter, operand_dtypes, result, lanes, features)
        self._engine = compile_text(self.text)
        pointers = [ctypes.c_void_p] * (len(operand_dtypes) + 1)
        self._call = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(self._engine.get_function_address("f"))

    def __call__(self, *inputs: Any) -> Any:
        count = len(inputs[0])
        padded = -(-count // self._lanes) * self._lanes
        arrays = [np.ascontiguousarray(np.pad(array, (0, padded - count), mode="edge")) for array in inputs]
        out = np.zeros(padded, self._result.numpy)
        self._call(*(array.ctypes.data for array in arrays), out.ctypes.data, padded)
        return out[:count]


def kernel_text(
    emitter: Emitter, operand_dtypes: Sequence[DType], result: DType, lanes: int, features: str = ""
) -> str:
    module = ModuleText(features=features)
    parameters = [("ptr", f"in{index}") for index in range(len(operand_dtypes))]
    fn = module.function("f", "void", [*parameters, ("ptr", "out"), ("i64", "n")])
    head, body, done = fn.label("head"), fn.label("body"), fn.label("done")
    following = fn.fresh("next")
    fn.branch(head)
    fn.block(head)
    index = fn.phi("i64", [("0", "entry"), (following, body)])
    fn.branch_if(fn.emit(f"icmp slt i64 {index}, %n"), body, done)
    fn.block(body)
    operands = []
    for (_, name), dtype in zip(parameters, operand_dtypes, strict=True):
        vec = Vec(dtype, lanes)
        address = fn.emit(f"getelementptr {vec.memory_element}, ptr %{name}, i64 {index}")
        loaded = fn.emit(f"load {vec.memory}, ptr {address}, align {dtype.itemsize}")
        operands.append(scalars.emit_load_conversion(fn, loaded, dtype, lanes))
    value = scalars.emit_store_conversion(fn, emitter(fn, operands, lanes), result, lanes)
    vec = Vec(result, lanes)
    address = fn.emit(f"getelementptr {vec.memory_element}, ptr %out, i64 {index}")
    fn.line(f"store {vec.memory} {value}, ptr {address}, align {result.itemsize}")
    fn.emit(f"add i64 {index}, {lanes}", name=following)
    fn.branch(head)
    fn.block(done)
    fn.ret()
    return module.render()


@cache
def _map_kernel(op: str, operand_dtypes: tuple[DType, ...], result: DType, lanes: int, features: str | None) -> Kernel:
    def emit(fn: FunctionText, operands: Sequence[str], lanes: int) -> str:
        return scalars.emit_map(fn, op, operands, operand_dtypes, result, lanes)

    return Kernel(emit, operand_dtypes, result, lanes, features)


@pytest.fixture(scope="session")
def run_map() -> Callable[..., Any]:
    """`run_map(op, *arrays, lanes=8, result=None, features=None)`: the opcode over arrays.

    `result`: the first dtype. `features`: what the emitters may use by name; the host's, "" for none.
    """

    def run(op: str, *arrays: Any, lanes: int = 8, result: DType | None = None, features: str | None = None) -> Any:
        dtypes = tuple(from_numpy(array.dtype) for array in arrays)
        return _map_kernel(op, dtypes, result or dtypes[0], lanes, features)(*arrays)

    return run


@pytest.fixture(scope="session")
def compile_kernel() -> Callable[..., Kernel]:
    """`compile_kernel(emitter, operand_dtypes, result, lanes)` for an emitter of one's own."""
    return Kernel
