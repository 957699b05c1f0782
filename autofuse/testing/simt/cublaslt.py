"""A stand-in for `nvmath.bindings.cublasLt`, which computes by NumPy: descriptions are those of cuBLASLt.

It is stricter than the library: whatever it does not know is an error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from autofuse.measurement.errorbounds.approximations import to_tf32
from autofuse.targets.cuda.cublaslt import BIASED, CLIPPED, RESULT

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}
_OF_COMPUTE = {69: (0,), 71: (1,), 68: (2, 14), 77: (0,)}
"""Types of operands by type of computing."""
_TF32 = 77
PROPOSED = 3
"""Algorithms, unless a test says otherwise."""


class FakeCublasLt:
    """Its functions, on memory of this process."""

    def __init__(self, memory: Callable[[int, int], NDArray[np.uint8]]) -> None:
        """`memory`: (address, bytes) -> what lies there."""
        self._memory, self.proposed = memory, PROPOSED
        self._numbers = count(1)
        self.made: dict[int, dict[str, Any]] = {}
        """Descriptions by handle; those that are alive."""
        self.algorithms: list[int] = []
        """Of the calls that were made."""

    def _new(self, **told: Any) -> int:
        handle = next(self._numbers)
        self.made[handle] = dict(told)
        return handle

    def create(self) -> int:
        return self._new()

    def get_version(self) -> int:
        return 130100

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._new(compute=compute, scale=scale)

    def matmul_desc_destroy(self, handle: int) -> None:
        del self.made[handle]

    def matrix_layout_create(self, kind: int, rows: int, columns: int, pitch: int) -> int:
        assert pitch >= rows > 0 < columns
        return self._new(kind=kind, shape=(rows, columns), pitch=pitch)

    matrix_layout_destroy = matmul_preference_destroy = matmul_desc_destroy

    def matmul_preference_create(self) -> int:
        return self._new()

    def _set(self, handle: int, attribute: int, address: int, size: int, sizes: dict[int, int]) -> None:
        if sizes[attribute] != size:
            raise ValueError(f"attribute {attribute} has {sizes[attribute]} bytes, got {size}")
        self.made[handle][str(attribute)] = int.from_bytes(ctypes.string_at(address, size), "little", signed=True)

    def matmul_desc_set_attribute(self, handle: int, attribute: int, address: int, size: int) -> None:
        self._set(handle, attribute, address, size, {3: 4, 4: 4, 7: 4, 8: 8})

    def matrix_layout_set_attribute(self, handle: int, attribute: int, address: int, size: int) -> None:
        self._set(handle, attribute, address, size, {5: 4, 6: 8})

    def matmul_preference_set_attribute(self, handle: int, attribute: int, address: int, size: int) -> None:
        self._set(handle, attribute, address, size, {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4})

    def matmul_algo_get_heuristic(
        self, _: int, how: int, a: int, b: int, c: int, d: int, wish: int, wanted: int, results: int, found: int
    ) -> None:
        description, layouts = self.made[how], [self.made[layout] for layout in (a, b, c, d)]
        kinds = {layout["kind"] for layout in layouts[:2]}
        if len(kinds) != 1 or not kinds <= set(_OF_COMPUTE[description["compute"]]):
            raise ValueError("CUBLAS_STATUS_NOT_SUPPORTED")
        assert self.made[wish]["1"] >= 0
        many = min(wanted, self.proposed)
        for number in range(many):
            result = np.zeros(1, RESULT)
            result["algorithm"][0, 0] = number + 1
            ctypes.memmove(results + number * RESULT.itemsize, result.ctypes.data, RESULT.itemsize)
        ctypes.memmove(found, np.array([many], np.int32).ctypes.data, 4)

    def matmul(
        self,
        _: int,
        how: int,
        one: int,
        a: int,
        a_layout: int,
        b: int,
        b_layout: int,
        nothing: int,
        c: int,
        c_layout: int,
        d: int,
        d_layout: int,
        algorithm: int,
        workspace: int,
        workspace_bytes: int,
        __: int,
    ) -> None:
        told = self.made[how]
        assert (c, c_layout) == (d, d_layout)
        scales = np.float64 if told["scale"] == 1 else np.float32
        width = np.dtype(scales).itemsize
        alpha, beta = (np.frombuffer(ctypes.string_at(at, width), scales)[0] for at in (one, nothing))
        assert (alpha, beta) == (1, 0)
        self.algorithms.append(int.from_bytes(ctypes.string_at(algorithm, 8), "little"))
        self._memory(workspace, workspace_bytes)[:] = 0xAB
        left, right = self._read(a, a_layout), self._read(b, b_layout)
        left = left.swapaxes(1, 2) if told["3"] else left
        right = right.swapaxes(1, 2) if told["4"] else right
        if told["compute"] == _TF32:
            left, right = to_tf32(left), to_tf32(right)
        result = np.matmul(left.astype(scales), right.astype(scales))
        if told["7"] & BIASED:
            bias = self._memory(told["8"], result.shape[1] * 4).view(np.float32)
            result = result + bias[:, None]
        if told["7"] & CLIPPED:
            result = np.fmax(result, 0)
        self._view(d, d_layout)[...] = result

    def _read(self, address: int, handle: int) -> NDArray[Any]:
        return self._view(address, handle).copy()

    def _view(self, address: int, handle: int) -> NDArray[Any]:
        """(count, rows, columns), where it lies."""
        told = self.made[handle]
        kind, (rows, columns) = np.dtype(_TYPES[told["kind"]]), told["shape"]
        many, step = told.get("5", 1), told.get("6", 0)
        last = (many - 1) * step + (columns - 1) * told["pitch"] + rows
        memory = self._memory(address, last * kind.itemsize).view(kind)
        strides = tuple(n * kind.itemsize for n in (step, 1, told["pitch"]))
        return np.lib.stride_tricks.as_strided(memory, (many, rows, columns), strides)
