"""Functions of `scipy.special` that are not ufuncs. Its ufuncs (erf, expit, xlogy, ...) are traced as NumPy's are."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.dispatch import call, implements_named
from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.tracer import TracerArray


def _floating(x: Any) -> TracerArray:
    array = as_tracer(x)
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def _largest(array: TracerArray, axis: Any) -> Any:
    """The largest elements, 0 in place of infinities and NaN: those of one row spoil no element of the row."""
    largest = call(np.max, array, axis, keepdims=True)
    return call(np.where, np.isfinite(largest), largest, 0)


@implements_named("scipy.special", "softmax")
def softmax(x: Any, axis: Any = None) -> Any:
    """As `scipy.special.softmax`."""
    array = _floating(x)
    powers = np.exp(np.subtract(array, call(np.max, array, axis, keepdims=True)))
    return powers / call(np.sum, powers, axis, keepdims=True)


@implements_named("scipy.special", "log_softmax")
def log_softmax(x: Any, axis: Any = None) -> Any:
    """As `scipy.special.log_softmax`."""
    array = _floating(x)
    shifted = np.subtract(array, _largest(array, axis))
    return shifted - np.log(call(np.sum, np.exp(shifted), axis, keepdims=True))


@implements_named("scipy.special", "logsumexp")
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """As `scipy.special.logsumexp`."""
    if return_sign:
        raise ValueError("logsumexp is traced without return_sign")
    array = _floating(a)
    finite = _largest(array, axis)
    powers = np.exp(np.subtract(array, finite))
    total = call(np.sum, powers if b is None else np.multiply(b, powers), axis, keepdims=True)
    result = np.log(total) + finite
    return result if keepdims else call(np.squeeze, result, axis)[()]
