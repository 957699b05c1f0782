"""Tensor types: a shape and an element type, and their text form `f32[2048,4096]`."""

from __future__ import annotations

import math
import re
from typing import Any, cast

import numpy as np

from autofuse.errors import GraphError, ParseError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass, field

MAX_RANK = 32
MAX_BYTES = 1 << 47
"""What a process can address on x86-64 Linux."""
_LIFE = frozenset(
    (
        *("__new__", "__init__", "__array_finalize__", "__reduce__", "__setstate__", "__repr__", "__str__"),
        *("__module__", "__doc__", "__dict__", "__class_getitem__"),
    )
)
"""What a class of arrays may have of its own without changing what an operation means."""
_SPEC = re.compile(r"\s*([a-z]+[0-9]*)\s*\[([0-9,\s]*)\]\s*")


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a value. `str()` gives `f32[2,3]`; a scalar is `f32[]`."""

    shape: tuple[int, ...]
    dtype: DType
    size: int = field(init=False, repr=False, compare=False)
    """Number of elements."""
    nbytes: int = field(init=False, repr=False, compare=False)
    """Bytes of the dense array."""

    def __post_init__(self) -> None:
        """Raises GraphError for more dimensions than NumPy's iterators take, and for more bytes than a process has."""
        object.__setattr__(self, "size", math.prod(self.shape))
        object.__setattr__(self, "nbytes", self.size * self.dtype.itemsize)
        if len(self.shape) > MAX_RANK:
            raise GraphError(
                f"an array has at most {MAX_RANK} dimensions, got {len(self.shape)}; drop those of extent 1"
            )
        if max(self.shape, default=0) > MAX_BYTES or self.nbytes > MAX_BYTES:
            raise GraphError(f"an array has at most {MAX_BYTES} bytes (128 TiB), got {self}; check the shape")

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def of_array(array: np.ndarray[Any, Any]) -> TensorType:
    """The type of a NumPy array."""
    return TensorType(tuple(array.shape), dtypes.from_numpy(array.dtype))


def require_plain(value: object) -> None:
    """Raises TypeError for an array of a class that gives operations another meaning: `np.matrix`, masked arrays.

    Plain are classes that override nothing of ndarray's, `np.memmap` and `np.recarray`.
    """
    cls = cast("type", type(value))
    if isinstance(value, np.ndarray) and _overrides(cls):
        raise TypeError(
            f"needs a plain array, got {cls.__module__}.{cls.__qualname__}, whose operations mean something else;"
            " pass np.asarray(x), which drops what the class adds (of a masked array: the mask)"
        )


def _overrides(cls: type) -> bool:
    """Whether a class of arrays gives anything that ndarray has another meaning."""
    own = cls.__mro__[: cls.__mro__.index(np.ndarray)]
    named = {name for part in own if part not in (np.memmap, np.recarray) for name in vars(part)}
    return any(hasattr(np.ndarray, name) for name in named - _LIFE)


def parse_type(text: str) -> TensorType:
    """Parse `f32[2048,4096]`. Raises ParseError showing what is expected."""
    match = _SPEC.fullmatch(text)
    if match is None or match.group(1) not in {d.name for d in dtypes.KNOWN}:
        names = ", ".join(d.name for d in dtypes.KNOWN)
        raise ParseError(
            f"{text!r:.80} is not a tensor type; write DTYPE[D0,D1,...], e.g. f32[2048,4096]; dtypes: {names}"
        )
    body = match.group(2).strip()
    try:
        shape = tuple(int(part) for part in body.split(",")) if body else ()
    except ValueError:
        raise ParseError(
            f"{text!r:.80}: dimensions must be integers separated by commas, e.g. f32[2048,4096]"
        ) from None
    try:
        return TensorType(shape, dtypes.by_name(match.group(1)))
    except GraphError as bad:
        raise ParseError(f"{text!r:.80}: {bad}") from None
