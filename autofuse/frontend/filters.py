"""Filters of one dimension: convolve and correlate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.eager import numpys_own
from autofuse.frontend.promotion import as_tracer
from autofuse.ir import dtypes
from autofuse.ir.types import TensorType

_MOST_TAPS = 32
"""Longer filters are NumPy's own: a kernel has a term for each tap."""
_LENGTHS: Mapping[str, Callable[[int, int], int]] = {
    "full": lambda n, m: n + m - 1,
    "same": max,
    "valid": lambda n, m: n - m + 1,
}


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """As `np.convolve`."""
    signal, kernel = as_tracer(a), as_tracer(v)
    if kernel.size > signal.size:
        signal, kernel = kernel, signal
    if not kernel.size:
        raise ValueError("v cannot be empty" if signal.size else "a cannot be empty")
    dtype = np.result_type(signal.dtype, kernel.dtype)
    if mode in _LENGTHS and kernel.size > _MOST_TAPS and dtype.kind in "iufc":
        length = _LENGTHS[mode](signal.size, kernel.size)
        result = TensorType((length,), dtypes.from_numpy(dtype))
        return numpys_own(np.convolve, result, signal.astype(dtype), kernel.astype(dtype), mode)
    long, short = signal.astype(dtype), kernel.astype(dtype)
    n, m = long.size, short.size
    result: Any = None
    for i in range(m):
        # products are padded, not factors: beyond the signal there is nothing, not 0 times an infinity
        term = call(np.pad, long * short[i], (i, m - 1 - i))
        result = term if result is None else result + term
    match mode:
        case "full":
            return result
        case "same":
            return result[(m - 1) // 2 : (m - 1) // 2 + n]
        case "valid":
            return result[m - 1 : n]
        case _:
            raise ValueError("mode must be one of 'full', 'same', or 'valid'")


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """As `np.correlate`."""
    kernel = as_tracer(v).conj()
    if kernel.size > as_tracer(a).size:
        return call(np.flip, convolve(kernel, call(np.flip, as_tracer(a)), mode)).copy()  # an array of its own
    return convolve(a, call(np.flip, kernel), mode)
