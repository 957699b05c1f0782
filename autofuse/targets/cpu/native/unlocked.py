"""LLVM's slow calls, without llvmlite's lock around every call: threads compile at the same time.

LLVM allows it as long as each thread works on a context, a module and a target machine of its own.
"""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite.binding import ffi


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """What `manager.run(module, builder)` does."""
    _function("LLVMPY_RunNewModulePassManager")(manager, module, builder)


def run_function_passes(manager: Any, function: Any, builder: Any) -> None:
    """What `manager.run(function, builder)` does."""
    _function("LLVMPY_RunNewFunctionPassManager")(manager, function, builder)


def emit_object(machine: Any, module: Any) -> bytes:
    """What `machine.emit_object(module)` does. Raises RuntimeError."""
    return _emitted(machine, module, 1)


def emit_assembly(machine: Any, module: Any) -> str:
    """What `machine.emit_assembly(module)` does. Raises RuntimeError."""
    return _emitted(machine, module, 0).decode()


def _emitted(machine: Any, module: Any, kind: int) -> bytes:
    """`kind`: LLVM's number for a form of machine code, 0 for text and 1 for objects."""
    with ffi.OutputString() as message:
        buffer = _function("LLVMPY_TargetMachineEmitToMemory")(machine, module, kind, message)
        if not buffer:
            raise RuntimeError(str(message))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _function(name: str) -> Any:
    """The C function inside llvmlite's wrapper that locks; the wrapper itself where it looks otherwise."""
    wrapped = getattr(ffi.lib, name)
    return getattr(wrapped, "_cfn", wrapped)
