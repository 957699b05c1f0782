"""`isinstance`, `hasattr` and `type` under trace: they say of a traced value what they would say in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontend.tracer import TracerArray


def isinstance_in_numpy(value: Any, kinds: Any) -> bool:
    """Whether NumPy, or Python, has an object of one of these classes where the trace has `value`."""
    own = class_in_numpy(value)
    if own is None:
        return isinstance(value, kinds)
    try:
        return issubclass(own, kinds)
    except TypeError:  # a protocol with attributes knows objects only
        return isinstance(value, kinds)


def hasattr_in_numpy(value: Any, name: str) -> bool:
    """Whether NumPy's, or Python's, object has an attribute where the trace has `value`."""
    own = class_in_numpy(value)
    return hasattr(value, name) if own is None else hasattr(own, name)


def getattr_in_numpy(value: Any, name: str, *default: Any) -> Any:
    """An attribute that NumPy's, or Python's, object has where the trace has `value`."""
    if hasattr_in_numpy(value, name):
        return getattr(value, name)
    if default:
        return default[0]
    own = class_in_numpy(value)
    if own is None:
        return getattr(value, name)
    raise AttributeError(f"{own.__name__!r} object has no attribute {name!r}")


def class_in_numpy(value: Any) -> type | None:
    """The class that a traced value would have; None of any other value."""
    if isinstance(value, TracerArray):
        python: type | None = getattr(value, "python", None)
        if python is not None:  # one of Python's numbers, which the run decides
            return python
        return value.dtype.type if value.is_scalar else np.ndarray
    return np.ndarray if hasattr(type(value), "is_selection") else None
