"""What calls of a plan on the simulated device ask for each time: see `autofuse.targets.cuda.driver.Entrance`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.ir.dtypes import U8
from autofuse.ir.types import TensorType
from autofuse.targets.cuda.driver import Driver
from autofuse.testing.simt.array import SimulatedArray


class SimulatedEntrance:
    """By the driver's own methods, one by one."""

    def __init__(
        self, driver: Driver, arguments: Sequence[TensorType], results: Sequence[TensorType], arena_bytes: int
    ) -> None:
        self._driver, self._arguments, self._results = driver, arguments, results
        self._arena = TensorType((arena_bytes,), U8)

    def taken(self, arguments: Sequence[Any]) -> list[int] | None:
        current: Any = self._driver
        if len(arguments) != len(self._arguments) or current.current.is_captured:
            return None
        pairs = zip(arguments, self._arguments, strict=True)
        return [self._driver.pointer(one) for one in arguments] if all(self._fits(*pair) for pair in pairs) else None

    def _fits(self, given: Any, kind: TensorType) -> bool:
        if not isinstance(given, SimulatedArray) or given.shape != kind.shape or given.dtype != kind.dtype.numpy:
            return False
        try:
            return self._driver.adopt(given) is given and self._driver.is_plain(given)
        except ArgumentError:  # another device's, which the long way says
            return False

    def made(self, addresses: list[int]) -> tuple[list[Any], Any]:
        arena = self._driver.empty(self._arena)
        found = [self._driver.empty(kind) for kind in self._results]
        addresses += [self._driver.pointer(array) for array in (*found, arena)]
        return found, arena

    def said(self, error: Exception) -> Exception:
        return error
