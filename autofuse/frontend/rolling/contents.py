"""What variables of loops may be bound to: arrays, numbers, containers, constants."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from autofuse.frontend.promotion import as_tracer
from autofuse.frontend.rolling.numbers import Number
from autofuse.frontend.tracer import TracerArray, fresh

_STATE = frozenset(np.dtype(kind) for kind in ["?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d"])
"""dtypes of NumPy's scalars that arrays of a graph have."""


def is_array(value: Any) -> bool:
    """Whether it is an array, and no scalar of one."""
    return isinstance(value, TracerArray) and not value.is_scalar


def is_object(value: Any) -> bool:
    """Whether it is one of Python's containers, or an object with attributes, which a region knows if it made it."""
    followed = isinstance(value, TracerArray | FunctionType | type) or hasattr(type(value), "is_selection")
    return isinstance(value, list | dict | set) or (not followed and hasattr(value, "__dict__"))


def is_number(value: Any, python: type) -> bool:
    """Whether it is one of Python's numbers of a type, known or not."""
    return type(value) is python or (isinstance(value, Number) and value.python is python)


def as_scalar(content: Any) -> Any:
    """What a variable is before a loop of which no iteration is traced alone: arithmetic makes scalars of these."""
    if type(content) is tuple:
        return tuple(map(as_scalar, content))
    if type(content) is TracerArray:
        return content if content.shape or content.is_scalar else fresh(content.value)
    is_number = isinstance(content, np.bool_ | np.number) and content.dtype in _STATE
    return as_tracer(content) if is_number else content


def is_constant(value: Any) -> bool:
    """Whether it is the same thing in all iterations, whatever the run does."""
    return value is None or isinstance(value, bool | int | float | str | bytes | np.dtype | type)
