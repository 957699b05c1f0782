"""Whether arrays are what a plan's kernels take, asked before anything is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.ir.types import TensorType


def fits(array: Any, wanted: TensorType) -> bool:
    """Whether it is a C-contiguous NumPy array of just that type."""
    return (
        type(array) is np.ndarray
        and array.shape == wanted.shape
        and array.dtype == wanted.dtype.numpy
        and array.flags.c_contiguous
    )


def all_fit(arrays: Sequence[Any], types: Sequence[TensorType]) -> bool:
    """The same of each of them."""
    return len(arrays) == len(types) and all(map(fits, arrays, types))


def fit_to_write(outs: Sequence[Any], types: Sequence[TensorType], inputs: Sequence[Any]) -> bool:
    """Whether results of these types can go there: into memory that belongs to nothing else."""
    if not all_fit(outs, types) or not all(out.flags.writeable for out in outs):
        return False
    others = [array for array in (*inputs, *outs) if isinstance(array, np.ndarray)]
    return not any(np.may_share_memory(out, other) for out in outs for other in others if other is not out)
