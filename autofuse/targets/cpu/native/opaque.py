"""Kernels that are one call of the interpreter: native code calls back into Python.

The kernel's LLVM function is the same for all of them: it reads the address of a callback from its last buffer and
calls it with its table of buffers. So the code stays cacheable, and the address lives in a constant of this process. A
call that fails ends the program (see driver.ll).
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.interpreter import Routine
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.native.nativeprogram import KernelCode, PhaseCode

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def opaque_code(name: str, buffers: int) -> KernelCode:
    """The code of a kernel that calls back; `buffers` counts its inputs and outputs, the callback's address follows."""
    text = f"""
define void @{name}(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) {{
  %slot = getelementptr ptr, ptr %buffers, i64 {buffers}
  %box = load ptr, ptr %slot
  %function = load ptr, ptr %box
  %failed = call i64 %function(ptr %buffers)
  %stop.at = getelementptr ptr, ptr %buffers, i64 -1
  %stop = load ptr, ptr %stop.at
  %before = load i64, ptr %stop
  %after = or i64 %before, %failed
  store i64 %after, ptr %stop
  ret void
}}
"""
    return KernelCode(name, text, (), ((PhaseCode(name, blocks=1, task_blocks=1, scratch_bytes=0),),))


class OpaqueCall:
    """A callback that evaluates one opaque kernel on the buffers it is given."""

    def __init__(self, program: OpaqueProgram) -> None:
        self.program = program
        self._routine = Routine(program.graph)
        self._errors: dict[int, BaseException] = {}
        self._function: Any = _CALLBACK(self._run)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        self.box: NDArray[Any] = np.array([address], np.uint64)
        """The constant that holds the callback's address."""

    def take_error(self) -> BaseException | None:
        """What the callback of this thread's last call could not raise: native code in between knows no exceptions."""
        return self._errors.pop(threading.get_ident(), None)

    def _run(self, table: int) -> int:
        try:
            self._evaluate(table)
        except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `take_error` hands it to the caller
            self._errors[threading.get_ident()] = error
            return 1
        return 0

    def _evaluate(self, table: int) -> None:
        buffers = self.program.buffers
        addresses = (ctypes.c_void_p * len(buffers)).from_address(table)
        arrays = [
            _view(address or 0, b.type.shape, b.type.dtype.numpy) for address, b in zip(addresses, buffers, strict=True)
        ]
        count = len(self.program.graph.inputs)
        self._routine.run_into(arrays[:count], arrays[count:])


def raise_pending(calls: Sequence[OpaqueCall]) -> None:
    """Raise the error of what native code just called, if there was one; nothing was run after it."""
    for call in calls:
        error = call.take_error()
        if error is not None:
            raise error


def _view(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array over foreign memory; valid while the native call runs."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return np.empty(shape, dtype)
    raw: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.ndarray(shape, dtype, raw)
