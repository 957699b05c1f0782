"""Kernels that are one call of the interpreter: native code calls back into Python.

The kernel's LLVM function is the same for all of them: it reads the address of a callback from its last buffer and
calls it with its table of buffers. So the code stays cacheable, and the address lives in a constant of this process. A
call that fails ends the program (see driver.ll).

Where NumPy has a loop of machine code that does the same (`numpyloops.py`), that is called first; Python is called only
for what the loop finds no result for, so that NumPy says what to raise. LAPACK's routines (`lapackcalls.py`) need none.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import Routine
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cpu.native.blas import CALLS_BLAS
from autofuse.targets.cpu.native.lapackcalls import lapack_call
from autofuse.targets.cpu.native.nativeprogram import KernelCode, PhaseCode
from autofuse.targets.cpu.native.numpyloops import MOST_ARGUMENTS, NativeLoop, native_loop

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


_WORD = (1 << 64) - 1
_LOOP = "numpyloop"
_ONE_THREADED_BYTES = 1 << 20
"""Memory of a matrix whose factors BLAS's own threads make no sooner, and far later where other work has the cores."""
_DECLARES = ("declare i32 @feclearexcept(i32)", "declare i32 @fetestexcept(i32)")


@dataclass(frozen=True, slots=True)
class CallForm:
    """What the code of a kernel depends on that calls something."""

    file: str
    """Its text."""
    buffers: int
    """Its inputs and outputs, which the box follows."""
    scratch_bytes: int = 0
    """The worker's memory that it takes."""
    arity: int = 0
    """How many addresses a routine of LAPACK's takes."""

    @property
    def name(self) -> str:
        """Its function's."""
        return f"af_{self.file}_{self.buffers}_{self.scratch_bytes}_{self.arity}"


def opaque_code(form: CallForm) -> KernelCode:
    """The code of a kernel that calls back, a loop of NumPy's, or a routine of LAPACK's."""
    from string import Template  # code that is kept needs none

    template = Template(Path(__file__).with_name(f"{form.file}.ll").read_text(encoding="utf-8"))
    pointers = [f"%address.{k}" for k in range(form.arity)]
    text = template.substitute(
        name=form.name,
        buffers=form.buffers,
        most=MOST_ARGUMENTS,
        loads="\n".join(
            f"  {p} = call ptr @address(ptr %box, ptr %addresses, i64 {k}, ptr %scratch)"
            for k, p in enumerate(pointers)
        ),
        arguments=", ".join(f"ptr {p}" for p in pointers),
    )
    declares: tuple[str, ...] = _DECLARES if form.file == _LOOP else ()
    if form.arity and form.scratch_bytes <= _ONE_THREADED_BYTES:
        declares = (CALLS_BLAS,)
    phase = PhaseCode(form.name, blocks=1, task_blocks=1, scratch_bytes=form.scratch_bytes)
    return KernelCode(form.name, text, declares, ((phase,),))


class OpaqueCall:
    """A callback that evaluates one opaque kernel on the buffers it is given."""

    def __init__(self, program: OpaqueProgram) -> None:
        self.program = program
        self._routine = Routine(program.graph)
        self._errors: dict[int, BaseException] = {}
        self._function: Any = _CALLBACK(self._run)
        address = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self.form, words = _called(program.graph, len(program.buffers))
        """Which code its kernel has."""
        self.box: NDArray[Any] = np.array([address, *words], np.uint64)
        """The constant that holds the callback's address, and what a loop or a routine is called with."""

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


def _called(graph: Graph, buffers: int) -> tuple[CallForm, Sequence[int]]:
    """How a graph of one call is run, and the box behind the callback."""
    loop = native_loop(graph)
    if loop is not None:
        return CallForm(_LOOP, buffers, loop.scratch_bytes), _words(loop)
    call = lapack_call(graph)
    if call is not None:
        return CallForm("lapackcall", buffers, call.scratch_bytes, call.arity), call.words
    return CallForm("opaque", buffers), ()


def _words(loop: NativeLoop) -> tuple[int, ...]:
    """The box behind the callback, as numpyloop.ll reads it."""
    arguments = (*loop.operands, *loop.results)
    head = (loop.function, loop.data, len(loop.operands), len(arguments), len(loop.extents))
    places = [(a.buffer, a.offset, a.converted, -1 if a.scratch is None else a.scratch) for a in arguments]
    words = (*head, *(word for place in places for word in place), *loop.extents, *loop.strides)
    return tuple(word & _WORD for word in words)


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
