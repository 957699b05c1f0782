"""Arrays that callers give a GPU: of the host, or on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError, BackendError
from autofuse.ir.devicearrays import type_of_device_array
from autofuse.ir.types import of_array
from autofuse.targets.cuda.driver import Driver


class DeviceArrays:
    """See `autofuse.targets.base.Arrays`. Work is done on the caller's current stream."""

    def __init__(self, backend: str, driver: Driver | None) -> None:
        """`backend`: the name of the target's kind. `driver`: None where there is no such device."""
        self._backend, self._driver = backend, driver

    @property
    def _there(self) -> Driver:
        if self._driver is None:
            raise BackendError(f"backend={self._backend!r}: there is no such GPU here, whose arrays could be read")
        return self._driver

    def fetched(self, array: Any) -> NDArray[Any]:
        driver = self._there
        with driver.entered():
            found = driver.adopt(array)
            if found is None:
                name = type(array).__name__
                raise ArgumentError(f"backend={self._backend!r} cannot read a {name}; pass NumPy arrays")
            kind = type_of_device_array(found)
            copy = np.empty(kind.shape, kind.dtype.numpy)
            plain = found if driver.is_plain(found) else driver.copied(found)
            driver.read(driver.pointer(plain), copy)
            return copy

    def adopted(self, value: Any) -> Any | None:
        if isinstance(value, np.ndarray | np.generic):
            return None
        with self._there.entered():
            return self._there.adopt(value)

    def plain(self, array: Any) -> Any:
        if isinstance(array, np.ndarray):
            return np.ascontiguousarray(array)
        with self._there.entered():
            return array if self._there.is_plain(array) else self._there.copied(array)

    def copied(self, array: Any) -> Any:
        if isinstance(array, np.ndarray):
            return array.copy()
        with self._there.entered():
            return self._there.copied(self._there.adopt(array))

    def placed(self, array: NDArray[Any]) -> Any:
        driver = self._there
        with driver.entered():
            there = driver.empty(of_array(array))
            driver.write(driver.pointer(there), array)
            return there

    def assign(self, target: Any, source: Any) -> None:
        if isinstance(target, np.ndarray):
            np.copyto(target, source if isinstance(source, np.ndarray) else self.fetched(source))
            return
        driver = self._there
        with driver.entered():
            there = driver.adopt(source)
            if there is None:
                there = self.placed(np.ascontiguousarray(source))
            driver.assign(driver.adopt(target), there)
