"""Arrays that lie on a device and say so by `__cuda_array_interface__` (CuPy, PyTorch, Numba, JAX) or by DLPack."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir.dtypes import from_numpy
from autofuse.ir.types import TensorType

_NAME = "__cuda_array_interface__"
_DLPACK = "__dlpack_device__"
_HOST_MEMORY = 1
"""DLPack's number of it."""


def is_device_array(value: Any) -> bool:
    """Whether it is one. Classes are asked, since looking at an instance may copy."""
    kind = type(value)
    if hasattr(kind, _NAME):
        return True
    return not isinstance(value, np.ndarray | np.generic) and hasattr(kind, _DLPACK) and offers_device_memory(value)


def offers_device_memory(value: Any) -> bool:
    """Whether what speaks DLPack lies elsewhere than in the memory of the host."""
    return int(getattr(value, _DLPACK)()[0]) != _HOST_MEMORY


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


def footprint(value: Any) -> NDArray[Any]:
    """An array of NumPy's at the addresses of an array that has `__cuda_array_interface__`.

    It is there to be asked for shape, strides, flags and what it overlaps. Its elements are not the host's: looking at
    one ends the process.
    """
    offered = getattr(value, _NAME)
    shape, strides, typestr = offered["shape"], offered.get("strides"), offered["typestr"]
    if not math.prod(shape):
        return np.empty(shape, typestr)
    place = {"shape": shape, "typestr": typestr, "data": offered["data"], "strides": strides, "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=place))


def is_read_only(value: Any) -> bool:
    """Whether an array of a device says that nobody may write into it."""
    return hasattr(value, _NAME) and bool(getattr(value, _NAME)["data"][1])
