"""Builtins that call another callable, with a handler for what it raises: for calls that Python has no time for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from autofuse.targets.cpu.native.nativeruntime import native_runtime

_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x2
_definitions: list[MethodDef] = []
"""The definition that all of them share, once there is one: CPython looks at it as long as it runs."""


class MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def new_builtin(definition: MethodDef, itself: object) -> Callable[..., Any]:
    """A builtin function, which holds `itself`, but not its definition."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., Any] = make(ctypes.addressof(definition), itself, None)
    return function


def guarded(function: Callable[..., Any], handler: Callable[..., Any]) -> Callable[..., Any]:
    """Calls `function`. Where that raises, `handler` is called with the exception before the same arguments.

    What the handler returns or raises is the outcome of the call. The way to `function` costs some 10 ns.
    """
    if not _definitions:
        address = native_runtime()["af_guarded"]
        _definitions.append(MethodDef(b"call", address, _METH_FASTCALL | _METH_KEYWORDS, None))
    return new_builtin(_definitions[0], (function, handler))
