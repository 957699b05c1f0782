"""The functions under study: reference, bound, where arguments matter, and the values that must be met exactly.

References compute in a wider type, f64 for f32 and the C library's 80-bit long double (x86) for f64. Bounds are in
units in the last place.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from autofuse.targets.cpu.native.engine import default_engine
from autofuse.targets.cpu.native.linking import link

Array = NDArray[Any]
_INF, _NAN = float("inf"), float("nan")


@dataclass(frozen=True, slots=True)
class Function:
    """One opcode of one argument."""

    exact: Callable[[Array], Array]
    """The function on an array of the wider type."""
    bound: float
    """Largest accepted error in ulp."""
    scale: float = 1.0
    """Magnitude about which ordinary arguments are drawn."""
    centre: float = 0.0
    """Samples crowd about this argument too: a zero or pole of the function."""
    edges: tuple[float, ...] = ()
    """Arguments at the steps of an argument reduction or of overflow: multiples of these are sampled closely."""
    specials: tuple[tuple[float, float], ...] = ()
    """Arguments and results that must be met exactly, with the signs of zeros. NaN gives NaN for every function."""


def _logistic(x: Array) -> Array:
    if x.dtype == np.float64:
        return scipy.special.expit(x)
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, x.dtype.type(1)) / (1 + e)


def _erf(x: Array) -> Array:
    return scipy.special.erf(x) if x.dtype == np.float64 else _long_erf(x)


def _rsqrt(x: Array) -> Array:
    return np.where(x == 0, np.copysign(x.dtype.type(_INF), x), 1 / np.sqrt(x))


_ERF_LOOP = """
declare x86_fp80 @erfl(x86_fp80)
define void @erfl_of_each(ptr %in, ptr %out, i64 %n) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr [16 x i8], ptr %in, i64 %i
  %to = getelementptr [16 x i8], ptr %out, i64 %i
  %x = load x86_fp80, ptr %from, align 16
  %y = call x86_fp80 @erfl(x86_fp80 %x)
  store x86_fp80 %y, ptr %to, align 16
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@functools.cache
def _erf_loop() -> tuple[Any, Callable[..., None]]:
    engine = default_engine()
    code = link([engine.compile(_ERF_LOOP)], exports=["erfl_of_each"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code["erfl_of_each"])
    return code, call


def _long_erf(x: Array) -> Array:
    """The C library's erfl, which neither NumPy nor SciPy has."""
    source = np.require(x, requirements=["C", "A"])
    result = np.zeros_like(source)
    _erf_loop()[1](source.ctypes.data, result.ctypes.data, source.size)
    return result


_ODD = ((0.0, 0.0), (-0.0, -0.0))
_FULL_ODD = (*_ODD, (_INF, _INF), (-_INF, -_INF))
_LN2 = 0.6931471805599453
_HALF_PI = 1.5707963267948966
_LOGARITHM = ((0.0, -_INF), (-0.0, -_INF), (1.0, 0.0), (_INF, _INF), (-1.0, _NAN), (-_INF, _NAN), (-1e-40, _NAN))
_WAVE = ((_INF, _NAN), (-_INF, _NAN))

UNARY: Mapping[str, Function] = {
    "exp": Function(
        np.exp,
        2.0,
        20.0,
        edges=(_LN2 / 2, 88.72283905206835, -103.97207708399179, 709.782712893384, -745.1332191019412),
        specials=((0.0, 1.0), (-0.0, 1.0), (_INF, _INF), (-_INF, 0.0), (1e5, _INF), (-1e5, 0.0), (1e-42, 1.0)),
    ),
    "exp2": Function(
        np.exp2,
        2.0,
        30.0,
        edges=(0.5, 128.0, -150.0, 1024.0, -1075.0),
        specials=(
            (0.0, 1.0),
            (-0.0, 1.0),
            (_INF, _INF),
            (-_INF, 0.0),
            (-149.0, 2.0**-149),
            (-126.0, 2.0**-126),
            (10.0, 1024.0),
            (1e9, _INF),
            (-1e9, 0.0),
        ),
    ),
    "expm1": Function(
        np.expm1,
        4.0,
        5.0,
        edges=(_LN2 / 2, 88.72283905206835, 709.782712893384, -17.5, -37.5),
        specials=(*_ODD, (_INF, _INF), (-_INF, -1.0), (1e5, _INF), (-1e5, -1.0), (2.0**-140, 2.0**-140)),
    ),
    "log": Function(np.log, 2.0, 1e3, centre=1.0, edges=(2.0**0.5,), specials=_LOGARITHM),
    "log2": Function(
        np.log2,
        2.0,
        1e3,
        centre=1.0,
        edges=(2.0**0.5,),
        specials=(*_LOGARITHM, (2.0**-149, -149.0), (8.0, 3.0), (2.0**100, 100.0)),
    ),
    "log1p": Function(
        np.log1p,
        4.0,
        1.0,
        centre=-1.0,
        edges=(2.0**0.5 - 1, 2.0**-0.5 - 1),
        specials=(*_ODD, (-1.0, -_INF), (_INF, _INF), (-2.0, _NAN), (-_INF, _NAN), (2.0**-140, 2.0**-140)),
    ),
    "tanh": Function(
        np.tanh,
        4.0,
        1.5,
        edges=(_LN2 / 4, 9.01, 19.06),
        specials=(*_ODD, (_INF, 1.0), (-_INF, -1.0), (100.0, 1.0), (2.0**-140, 2.0**-140)),
    ),
    "logistic": Function(
        _logistic,
        4.0,
        10.0,
        edges=(_LN2 / 2, -103.97, -745.13, 16.6, 36.7),
        specials=((0.0, 0.5), (-0.0, 0.5), (_INF, 1.0), (-_INF, 0.0), (1e3, 1.0), (-1e3, 0.0)),
    ),
    "erf": Function(_erf, 4.0, 1.5, edges=(1.0, 3.92, 5.92), specials=(*_ODD, (_INF, 1.0), (-_INF, -1.0), (30.0, 1.0))),
    "sin": Function(np.sin, 4.0, 10.0, edges=(_HALF_PI / 2,), specials=(*_ODD, *_WAVE, (2.0**-140, 2.0**-140))),
    "cos": Function(np.cos, 4.0, 10.0, edges=(_HALF_PI / 2,), specials=((0.0, 1.0), (-0.0, 1.0), *_WAVE)),
    "tan": Function(np.tan, 4.0, 10.0, edges=(_HALF_PI / 2,), specials=(*_ODD, *_WAVE, (2.0**-140, 2.0**-140))),
    "rsqrt": Function(
        _rsqrt,
        4.0,
        1e3,
        edges=(4.0,),
        specials=(
            (0.0, _INF),
            (-0.0, -_INF),
            (_INF, 0.0),
            (4.0, 0.5),
            (-1.0, _NAN),
            (-_INF, _NAN),
            (2.0**-148, 2.0**74),
        ),
    ),
    "sqrt": Function(
        np.sqrt, 0.5, 1e3, edges=(4.0,), specials=(*_ODD, (_INF, _INF), (4.0, 2.0), (-1.0, _NAN), (-_INF, _NAN))
    ),
    "cbrt": Function(
        np.cbrt, 4.0, 1e3, edges=(8.0,), specials=(*_FULL_ODD, (8.0, 2.0), (-27.0, -3.0), (2.0**-147, 2.0**-49))
    ),
}
"""Every opcode of one float that is computed, rather than a bit operation or rounding."""

BINARY: Mapping[str, tuple[Callable[[Array, Array], Array], float]] = {
    "power": (np.power, 4.0),
    "atan2": (np.arctan2, 4.0),
    "remainder": (np.fmod, 0.0),
}
"""Opcodes of two floats: reference and bound."""
