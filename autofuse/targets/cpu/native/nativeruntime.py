"""What all plans share of the native runtime: thread pool, driver and Python entry, compiled and loaded once."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError, BackendError
from autofuse.host.objectcache import ObjectCache, cache_directory, object_key
from autofuse.runtime.environment import fingerprint
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.native import blas, threadcount
from autofuse.targets.cpu.native.forkgate import LLVM
from autofuse.targets.cpu.native.linking import LinkedCode, link

KERNEL_SYMBOLS = ("af_parallel",)
"""Functions of the runtime that kernels may call."""

_EXPORTS = (
    *KERNEL_SYMBOLS,
    "af_run",
    "af_blas_enter",
    "af_blas_exit",
    "af_call",
    "af_call_one",
    "af_call_into",
    "af_call_tree",
    "af_capsule_release",
    "af_arena_free",
    "af_guarded",
    "af_pool_after_fork",
    "af_pool_workers",
    "af_threads",
    "af_wake_work",
    "af_patience",
    "af_alone_until",
    "af_blas_get",
    "af_blas_set",
    "af_xla_type",
    "af_xla_reason",
    "af_xla_left",
    "af_xla_enter",
    "af_xla_retire",
    "af_xla_instantiate",
    "af_xla_execute",
)

_PARTS = ("waiting", "team", "pool", "blasthreads", "driver", "regions", "entry", "tree", "guarded", "xla")

_FUTEX = {"x86_64": 202, "aarch64": 98}
_RELAX = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)"),
}
_FLOAT_MODE = {"x86_64": 0x1F80, "aarch64": 0}
"""What threads begin with: MXCSR, FPCR."""
_FLOAT_MODES = {
    "x86_64": """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @float_mode() alwaysinline nounwind {
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %narrow = load i32, ptr %at
  %mode = zext i32 %narrow to i64
  ret i64 %mode
}
define internal void @set_float_mode(i64 %mode) alwaysinline nounwind {
  %at = alloca i32
  %narrow = trunc i64 %mode to i32
  store i32 %narrow, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}""",
    "aarch64": """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @float_mode() alwaysinline nounwind {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode
}
define internal void @set_float_mode(i64 %mode) alwaysinline nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}""",
}


_loading = threading.RLock()


@LLVM
def native_runtime() -> LinkedCode:
    """The loaded runtime; its settings are connected and a fork's child is looked after."""
    with _loading:
        return _load()


@functools.cache
def surroundings() -> tuple[str, str]:
    """What object code that is kept depends on, beside what it does: the machine, this package and its libraries."""
    return repr(detect()), fingerprint()


def _object() -> bytes:
    """The runtime's object code, of an earlier process if there is one: LLVM need not be loaded then."""
    kept, key = ObjectCache(cache_directory()), object_key("runtime", *surroundings())
    found = kept.get(key)
    if found is None:
        found = _compiled()
        kept.put(key, found)
    return found


def _compiled() -> bytes:
    from autofuse.targets.cpu.native.engine import runtime_engine

    engine = runtime_engine()
    architecture = engine.machine.architecture
    if architecture not in _FUTEX:
        raise BackendError(f"the CPU backend knows {', '.join(_FUTEX)}; this machine is {architecture}")
    return engine.compile(runtime_text(architecture, array_offsets()))


def prepare_runtime() -> None:
    """Begin to load the runtime beside the caller; who needs it before waits, and gets the errors.

    A process that ends meanwhile waits for it: LLVM must not be taken down while it works.
    """

    def load() -> None:
        with contextlib.suppress(AutofuseError):
            native_runtime()

    threading.Thread(target=load, name="autofuse-runtime").start()


@functools.cache
def _load() -> LinkedCode:
    code = link([_object()], exports=_EXPORTS)
    threadcount.attach_native(code["af_threads"], code["af_wake_work"], code["af_patience"])
    _after_fork(code["af_pool_after_fork"])
    return code


def runtime_text(architecture: str, offsets: Mapping[str, int]) -> str:
    """The runtime's LLVM IR, one unit, for an architecture and arrays laid out as `array_offsets` says."""
    relax, declaration = _RELAX[architecture]
    chunks = threadcount.CHUNKS_PER_PART
    values = {
        "relax": relax,
        "relax_declare": declaration,
        "futex": _FUTEX[architecture],
        "float_mode": _FLOAT_MODE[architecture],
        "float_modes": _FLOAT_MODES[architecture],
        "workers": threadcount.MAX_THREADS - 1,
        "participants": threadcount.MAX_THREADS,
        "chunks": chunks,
        "chunks_squared": chunks * chunks,
        "all_chunks": chunks << 32,
        "pieces": threadcount.PIECES_PER_PART,
        "turning_work": threadcount.TURNING_WORK,
        **offsets,
    }
    from string import Template  # code that is kept needs none

    texts = [Path(__file__).with_name(f"{name}.ll").read_text(encoding="utf-8") for name in _PARTS]
    return Template("\n".join(texts)).substitute(values)


@functools.cache
def enable_blas() -> dict[str, int]:
    """Load BLAS, let the runtime control its threads, and return the symbols that kernels call."""
    code = native_runtime()
    control = blas.thread_control()
    if control is not None:
        ctypes.c_void_p.from_address(code["af_blas_set"]).value = control[1]
        ctypes.c_void_p.from_address(code["af_blas_get"]).value = control[0]
    return blas.addresses()


def array_offsets() -> dict[str, int]:
    """Byte offsets of the fields of NumPy's array object, as its stable ABI fixes them, checked on a live array.

    Raises BackendError when they do not hold here.
    """
    head = object.__basicsize__
    names = ("data", "nd", "dimensions", "strides", "base", "descr", "flags")
    offsets = {"head": head, "type": head - 8, **{name: head + 8 * i for i, name in enumerate(names)}}
    sample = np.zeros((3, 5), np.float32)
    dimensions = _word(sample, offsets["dimensions"])
    found = (
        _word(sample, offsets["type"]),
        _word(sample, offsets["data"]),
        _word(sample, offsets["nd"]) & 0xFFFFFFFF,
        ctypes.c_int64.from_address(dimensions).value,
        ctypes.c_int64.from_address(dimensions + 8).value,
        _word(sample, offsets["descr"]),
        _word(sample, offsets["flags"]) & 0x501,
    )
    expected = (id(np.ndarray), sample.ctypes.data, 2, 3, 5, id(sample.dtype), 0x501)
    if found != expected:
        raise BackendError(f"NumPy {np.__version__} lays arrays out in an unknown way; use a release of NumPy 2")
    return offsets


def _word(array: Any, offset: int) -> int:
    return ctypes.c_uint64.from_address(id(array) + offset).value


def _after_fork(address: int) -> None:
    """Have the C library, or else the interpreter, call the function at `address` in the child of every fork."""
    process = ctypes.CDLL(None)
    for name, arity in (("pthread_atfork", 3), ("__register_atfork", 4)):
        register: Callable[..., int] | None = getattr(process, name, None)
        if register is not None:
            handlers = [None, None, ctypes.c_void_p(address), None][:arity]
            if register(*handlers) == 0:
                return
    os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(address))
