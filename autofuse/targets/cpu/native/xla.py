"""Programs for XLA's runtime: entries by which the handlers of `xla.ll` find them, kept as long as executables do."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.digest import digest
from autofuse.targets.base import XlaEntry, XlaHandlers
from autofuse.targets.cpu.native.guarded import guarded
from autofuse.targets.cpu.native.nativeprogram import CpuProgram
from autofuse.targets.cpu.native.nativeruntime import native_runtime

if TYPE_CHECKING:  # a program without steps that Python runs needs none
    from autofuse.targets.cpu.native.opaque import OpaqueCall

_ENTRY = ("next", "number", "context", "executables")
"""Slots of an entry, in the order that xla.ll states."""
_VERSION = "0.3"
_REASON = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_MOST_TOLD = 64
"""Texts of errors that are kept: XLA copies one while the handler returns."""


class _Entered:
    """A program that XLA may call, and what must live as long."""

    def __init__(self, number: int, context: int, kept: object, calls: Sequence[OpaqueCall]) -> None:
        self.words: NDArray[np.int64] = np.array([0, number, context, 0], np.int64)
        self.kept: object | None = kept
        self.calls = calls


class _Entries:
    """All programs that XLA may call in this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run while this thread holds it
        self._used: dict[int, _Entered] = {}
        """By number."""
        self._words: list[NDArray[np.int64]] = []
        """Of all entries ever made: XLA's threads may look at them."""
        self._holders: dict[int, weakref.WeakSet[Any]] = {}
        """By number: who gave that program to be called."""
        self._told: list[bytes] = []
        runtime = native_runtime()
        self._enter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(runtime["af_xla_enter"])
        self._retire = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(runtime["af_xla_retire"])
        self._reason = _REASON(self._why)
        ctypes.c_void_p.from_address(runtime["af_xla_reason"]).value = ctypes.cast(self._reason, ctypes.c_void_p).value

    def enter(self, number: int, context: int, kept: object, calls: Sequence[OpaqueCall], holder: object) -> None:
        """Have XLA find a program as long as `holder` lives, or an executable refers to it."""
        with self._lock:
            self._sweep()
            if number not in self._used:
                entered = _Entered(number, context, kept, calls)
                self._used[number] = entered
                self._words.append(entered.words)
                self._holders[number] = weakref.WeakSet()
                self._enter(entered.words.ctypes.data)
            self._holders[number].add(holder)

    def __len__(self) -> int:
        with self._lock:
            self._sweep()
            return len(self._used)

    def _sweep(self) -> None:
        """Forget programs that nobody can call any more."""
        for number in [number for number, holders in self._holders.items() if not holders]:
            if self._retire(self._used[number].words.ctypes.data):
                del self._used[number], self._holders[number]

    def _why(self, address: int) -> int | None:
        """The address of a text that says why a program stopped, for the handler."""
        number = int(ctypes.c_int64.from_address(address + 8 * _ENTRY.index("number")).value)
        entered = self._used.get(number)
        errors = [call.take_error() for call in (() if entered is None else entered.calls)]
        error = next(filter(None, errors), None)
        if error is None:
            return None
        text = f"autofuse: a step that Python runs failed: {type(error).__name__}: {error}".encode()
        self._told = [*self._told[-_MOST_TOLD:], text]
        return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value


@functools.cache
def entries() -> _Entries:
    """Those of this process."""
    return _Entries()


@functools.cache
def handlers() -> XlaHandlers:
    """The handlers of all programs."""
    runtime = native_runtime()
    _TYPE_INFO[:] = 24, 0, runtime["af_xla_left"]
    return XlaHandlers(
        platform="cpu",
        version=_VERSION,
        instantiate=runtime["af_xla_instantiate"],
        execute=runtime["af_xla_execute"],
        type_id=runtime["af_xla_type"],
        type_info=_TYPE_INFO.ctypes.data,
        guarded=guarded,
    )


_TYPE_INFO: NDArray[np.int64] = np.zeros(3, np.int64)
"""XLA_FFI_TypeInfo: its size, no extension, and what is called with a state that is no longer needed."""


def entry_of(
    program: CpuProgram,
    objects: Sequence[bytes],
    calls: Sequence[OpaqueCall],
    context: int,
    kept: object,
    holder: object,
) -> XlaEntry:
    """Have XLA find a program. `context`: of entry.ll, which `kept` keeps; `holder`: may ask for it to be called."""
    number = number_of(program, objects, calls)
    entries().enter(number, context, kept, calls, holder)
    return XlaEntry(handlers(), number, {alias.output: alias.input for alias in program.output_aliases})


def number_of(program: CpuProgram, objects: Sequence[bytes], calls: Sequence[OpaqueCall]) -> int:
    """A digest of all that a program does, so that an executable never runs another one under its number."""
    content = hashlib.sha256()
    for call in calls:
        content.update(digest(call.program.graph).encode())
    for data in objects:
        content.update(hashlib.sha256(data).digest())
    for constant in program.constants:
        content.update(f"{constant.dtype} {constant.shape}".encode())
        content.update(np.ascontiguousarray(constant).view(np.uint8).data)
    launches = [kernel.launches for kernel in program.kernels]
    about = (launches, program.calls, program.inputs, program.outputs, program.output_aliases, program.arena_bytes)
    content.update(repr((*about, program.threads)).encode())
    return int.from_bytes(content.digest()[:8], "little", signed=True)
