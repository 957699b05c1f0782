"""Arrays that lie on a device and say so by `__cuda_array_interface__` (CuPy, PyTorch, Numba, JAX)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from autofuse.errors import GraphError
from autofuse.ir.dtypes import from_numpy
from autofuse.ir.types import TensorType

_NAME = "__cuda_array_interface__"


def is_device_array(value: Any) -> bool:
    """Whether it is one. Classes are asked, since looking at an instance may copy."""
    return hasattr(type(value), _NAME)


def type_of_device_array(value: Any) -> TensorType:
    """Its shape and dtype. Raises GraphError for a dtype that there is none for."""
    dtype: Any = value.dtype
    if not isinstance(dtype, np.dtype):  # PyTorch's own
        name = str(dtype).rsplit(".", 1)[-1]
        try:
            dtype = np.dtype(getattr(ml_dtypes, name, name))
        except TypeError:
            raise GraphError(f"dtype {dtype} is not supported; convert the array") from None
    return TensorType(tuple(value.shape), from_numpy(dtype))
