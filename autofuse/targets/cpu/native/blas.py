"""BLAS for kernels: routines by address from SciPy, a row-major gemm wrapper in LLVM IR, control of BLAS's threads.

A kernel calls `@af_sgemm` or `@af_dgemm` and lists the line of `DECLARATIONS` among its `declares`; the compile unit
then holds the wrapper itself. While a plan that uses BLAS runs, the library's own threads are set to one
(`af_blas_enter` in pool.ll), because the pool already has a thread on every core.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from autofuse.errors import BackendError

_REALS = {"s": "float", "d": "double"}
_PARAMETERS = "i1, i1, i64, i64, i64, {real}, ptr, i64, ptr, i64, {real}, ptr, i64"

DECLARATIONS: dict[str, str] = {
    f"af_{t}gemm": f"declare void @af_{t}gemm({_PARAMETERS.format(real=real)})" for t, real in _REALS.items()
}
"""Wrapper -> the `declare` line that brings it into a kernel. Arguments: transpose A, transpose B, m, n, k, alpha, A,
row stride of A, B, row stride of B, beta, C, row stride of C; strides in elements."""

_ROUTINES = {"gemm": 13, "gemv": 11}
_EXTERNALS = {
    f"af_blas_{t}{routine}": f"declare void @af_blas_{t}{routine}({', '.join(['ptr'] * arity)})"
    for t in _REALS
    for routine, arity in _ROUTINES.items()
}
CALLS_BLAS = _EXTERNALS["af_blas_dgemm"]
"""Among the `declares` of a kernel that calls BLAS by an address of its own: the library has one thread then."""

_THREAD_CONTROLS = (
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)
_DESCRIPTIONS = ("scipy_openblas_get_config", "openblas_get_config", "bli_info_get_version_str")
"""Functions of BLAS libraries that give a text about themselves."""
_MODULE = "scipy.linalg.cython_blas"
_PRODUCTS = ("dgemm_", "scipy_dgemm_")
_MOST_CHARACTERS = 200


def is_wrapper(symbol: str) -> bool:
    """Whether an external symbol of a kernel stands for a wrapper of this module."""
    return symbol in DECLARATIONS


def wrapper_text(symbols: Iterable[str]) -> str:
    """Definitions of the wrappers among `symbols` and the declarations they need; "" when there is none."""
    types = sorted({symbol[3] for symbol in symbols if is_wrapper(symbol)})
    if not types:
        return ""
    from string import Template  # code that is kept needs none

    template = Template(Path(__file__).with_name("blas.ll").read_text(encoding="utf-8"))
    needed = [line for symbol, line in _EXTERNALS.items() if symbol[8] in types]
    bodies = [template.substitute(t=t, real=_REALS[t]) for t in types]
    return "\n".join([*needed, "declare i64 @llvm.smax.i64(i64, i64)", *bodies])


def external_symbols() -> frozenset[str]:
    """Names of the BLAS routines as the wrappers call them."""
    return frozenset(_EXTERNALS)


@functools.cache
def addresses() -> dict[str, int]:
    """Address of each routine of `external_symbols`. Raises BackendError when SciPy offers another interface."""
    table: dict[str, Any] = _cython_blas().__pyx_capi__
    routines = {name: name.removeprefix("af_blas_") for name in _EXTERNALS}
    return {name: capsule_address(table, routine, _ROUTINES[routine[1:]]) for name, routine in routines.items()}


@functools.cache
def thread_control() -> tuple[int, int] | None:
    """Addresses of BLAS's `int get_num_threads()` and `void set_num_threads(int)`; None when it has no such call.

    They are looked up in the library that SciPy's BLAS module was linked with.
    """
    library = ctypes.CDLL(_module_file() or _cython_blas().__file__)
    for get, put in _THREAD_CONTROLS:
        if hasattr(library, get) and hasattr(library, put):
            return _function_address(library, get), _function_address(library, put)
    return None


@functools.cache
def loaded_library() -> str:
    """What the BLAS library that SciPy calls says of itself: name, version, and the CPU that its kernels are for.

    SciPy is not imported, and what it was built with is not asked: the linker may give it another library. One that
    says nothing goes by the name and size of its file; "" where there is none.
    """
    file = _module_file()
    if file is None:
        return ""
    library = ctypes.CDLL(file)
    for name in _DESCRIPTIONS:
        if hasattr(library, name):
            describe = getattr(library, name)
            describe.restype = ctypes.c_char_p
            return (describe() or b"").decode(errors="replace")[:_MOST_CHARACTERS]
    return _file_of(library)


def _module_file(module: str = _MODULE) -> str | None:
    """An extension module of SciPy's, found without importing it."""
    scipy = importlib.util.find_spec("scipy")
    folders = [] if scipy is None else list(scipy.submodule_search_locations or ())
    below = module.split(".")[1:]
    for folder in folders:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            file = os.path.join(folder, *below[:-1], f"{below[-1]}{suffix}")
            if os.path.exists(file):
                return file
    return None


class _Place(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def _file_of(library: ctypes.CDLL) -> str:
    """The file that holds a library's product of matrices, by name and size."""
    place = _Place()
    for name in _PRODUCTS:
        if hasattr(library, name) and ctypes.CDLL(None).dladdr(getattr(library, name), ctypes.byref(place)):
            file = os.path.realpath(os.fsdecode(place.file))
            return f"{os.path.basename(file)} {os.path.getsize(file)} bytes"[:_MOST_CHARACTERS]
    return ""


def _cython_blas() -> Any:
    return module_alone(_MODULE)


def module_alone(name: str) -> Any:
    """A module of SciPy's. By itself: importing its package takes a tenth of a second, and none of it is needed.

    Raises ImportError where there is none.
    """
    file = None if name in sys.modules else _module_file(name)
    spec = None if file is None else importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _function_address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def capsule_address(table: dict[str, Any], routine: str, arity: int) -> int:
    """The address of a routine of BLAS or LAPACK in one of SciPy's tables.

    Raises BackendError where it is missing, or takes anything but `arity` pointers with integers of 32 bits.
    """
    capsule = table.get(routine)
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature: bytes = name_of(capsule) if capsule is not None else b"nothing"
    if not (signature.startswith(b"void (") and signature.count(b" *") == arity and b"int *" in signature):
        raise BackendError(
            f"SciPy's {routine} should take {arity} pointers with 32-bit integers, but is "
            f"{signature.decode()}; install a SciPy release whose BLAS interface is LP64"
        )
    return pointer_of(capsule, signature)
