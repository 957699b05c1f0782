"""Library calls that write their result where it belongs: what would return a new array, to be copied, writes it there.

Only results of the type that the function itself would return: of any other, nothing is written and the call is left
to `library_calls.resolve`, whose result is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Writer = Callable[..., bool]
"""(memory for the result, the function's own arguments) -> whether the result was written there."""


def _by_ufunc(ufunc: np.ufunc) -> Writer:
    def write(target: Array, *operands: Any) -> bool:
        arrays = [np.asarray(operand) for operand in operands]
        made = ufunc.resolve_dtypes((*(array.dtype for array in arrays), None))[-1]
        if made != target.dtype or np.broadcast_shapes(*(array.shape for array in arrays)) != target.shape:
            return False
        ufunc(*arrays, out=target)
        return True

    return write


def _partition(target: Array, a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect") -> bool:
    array = np.asarray(a)
    if axis is None or array.dtype != target.dtype or array.shape != target.shape:
        return False
    target[...] = array
    target.partition(kth, axis, kind)
    return True


WRITERS: Mapping[str, Writer] = {
    "numpy.gcd": _by_ufunc(np.gcd),
    "numpy.lcm": _by_ufunc(np.lcm),
    "numpy.partition": _partition,
}
"""By the function's whole name."""
