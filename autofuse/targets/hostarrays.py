"""Arrays that callers give a target whose memory is the host's."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError


class HostArrays:
    """See `autofuse.targets.base.Arrays`."""

    def __init__(self, backend: str) -> None:
        """`backend`: the name of the target's kind."""
        self._backend = backend

    def fetched(self, array: Any) -> NoReturn:
        raise ArgumentError(f"backend={self._backend!r} cannot read a {type(array).__name__}; pass NumPy arrays")

    def adopted(self, value: Any) -> None:  # noqa: ARG002  # the protocol's
        return None

    def plain(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(array)

    def copied(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.copy()

    def placed(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def assign(self, target: NDArray[Any], source: NDArray[Any]) -> None:
        np.copyto(target, source)
