"""Specs: the type of an argument without its data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from autofuse.errors import ArgumentError
from autofuse.ir import dtypes, types
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    """Stands for an array argument of this type when tracing. `str()` gives `f32[2048,4096]`."""

    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype.numpy

    def __str__(self) -> str:
        return str(self.type)


def spec(text_or_shape: str | int | Sequence[int], dtype: Any = np.float32) -> Spec:
    """A spec from text (`spec("f32[2048,4096]")`) or from a shape and a NumPy dtype (`spec((2048, 4096), np.float32)`).

    Raises ParseError for ill-formed text, GraphError for an unsupported dtype, ArgumentError for what is no shape.
    """
    if isinstance(text_or_shape, str):
        return Spec(types.parse_type(text_or_shape))
    try:
        given = text_or_shape if isinstance(text_or_shape, Iterable) else (text_or_shape,)
        shape = tuple(index(extent) for extent in given)
        element = np.dtype(dtype)
    except TypeError as error:
        raise ArgumentError(
            f'spec: must be text such as "f32[2048,4096]", or a shape and a dtype; got {text_or_shape!r:.80},'
            f" {dtype!r:.80}: {error!s:.200}"
        ) from None
    return Spec(TensorType(shape, dtypes.from_numpy(element)))
