"""Complex numbers in memory: two reals each, the real part first, as C, NumPy and BLAS have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import GraphError
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

Array = NDArray[Any]
_NO_PARTS = "parts of complex numbers lie along a last axis of 2, got {}"


def in_parts(type_: TensorType) -> TensorType:
    """The type of what complex numbers are in memory: reals, the two parts along a last axis. A real type is itself."""
    return TensorType((*type_.shape, 2), type_.dtype.part) if type_.dtype.is_complex else type_


def of_parts(type_: TensorType) -> TensorType:
    """The complex type whose memory `type_` describes: `in_parts` backwards. Raises GraphError where there is none."""
    if type_.shape[-1:] != (2,):
        raise GraphError(_NO_PARTS.format(type_))
    return TensorType(type_.shape[:-1], dtypes.complex_of(type_.dtype))


def complex_places(values: Sequence[Value]) -> tuple[int, ...]:
    """Which of them are complex."""
    return tuple(number for number, value in enumerate(values) if value.type.dtype.is_complex)


def seen_as(types: Sequence[TensorType], places: Sequence[int]) -> tuple[TensorType, ...]:
    """Types of which some are parts of complex numbers, as those who know the complex numbers see them.

    Raises GraphError for a place that there is not, or of a type that is none of parts.
    """
    for place in places:
        if not 0 <= place < len(types):
            raise GraphError(f"complex numbers are expected at place {place} of {len(types)}")
    return tuple(of_parts(type_) if number in places else type_ for number, type_ in enumerate(types))


def as_parts(array: Array) -> Array:
    """Complex numbers as their parts, in the same memory if they are C-contiguous; any other array as it is."""
    if array.dtype.kind != "c":
        return array
    part = dtypes.from_numpy(array.dtype).part.numpy
    return np.asarray(array, order="C")[..., np.newaxis].view(part)


def as_complex(array: Array) -> Array:
    """Parts as the complex numbers that they are, in the same memory if they are C-contiguous.

    Raises GraphError where they are no parts.
    """
    dtype = dtypes.from_numpy(array.dtype)
    if array.shape[-1:] != (2,):
        raise GraphError(_NO_PARTS.format(TensorType(array.shape, dtype)))
    return np.asarray(array, order="C").view(dtypes.complex_of(dtype).numpy)[..., 0]
