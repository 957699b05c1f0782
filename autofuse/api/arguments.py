"""Call arguments that are not exactly what a plan was compiled for: converted where that is safe, refused clearly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.ir.types import TensorType


def prepared(
    leaves: Sequence[Any], types: Sequence[TensorType], names: Sequence[str], written: Collection[int]
) -> tuple[list[NDArray[Any]], list[str]]:
    """Exactly typed, C-contiguous arrays for a plan's inputs, and the names of those that had to be copied.

    `written`: inputs the function modifies in place. Raises ArgumentError naming the argument.
    """
    arrays: list[NDArray[Any]] = []
    copied: list[str] = []
    for number, (leaf, type_, name) in enumerate(zip(leaves, types, names, strict=True)):
        array = _checked(leaf, type_, name)
        if number in written:
            _check_writeable(leaf, array, name)
        exact = np.require(array, type_.dtype.numpy, ["C", "A"])
        if exact is not array and exact.size and not np.shares_memory(exact, array):
            copied.append(name)
        arrays.append(exact.view(np.ndarray))
    _check_overlap(arrays, names, written)
    return arrays, copied


def _checked(leaf: Any, type_: TensorType, name: str) -> NDArray[Any]:
    if not isinstance(leaf, np.ndarray | np.generic):
        raise ArgumentError(f"{name}: needs an array {type_}, got {type(leaf).__name__}; pass np.asarray(...)")
    array = np.asarray(leaf)
    if array.dtype.newbyteorder("=") != type_.dtype.numpy:
        raise ArgumentError(
            f"{name}: needs dtype {type_.dtype.numpy}, got {array.dtype}; pass {name}.astype('{type_.dtype.numpy}') "
            "or compile for that dtype"
        )
    if array.shape != type_.shape:
        raise ArgumentError(
            f"{name}: needs shape {type_.shape}, got {array.shape}; a plan serves one shape: compile another"
        )
    return array


def _check_writeable(leaf: Any, array: NDArray[Any], name: str) -> None:
    if not isinstance(leaf, np.ndarray) or not array.flags.writeable:
        raise ArgumentError(f"{name}: the function writes into it, but it is read-only; pass a writeable array")


def _check_overlap(arrays: Sequence[NDArray[Any]], names: Sequence[str], written: Collection[int]) -> None:
    for number in written:
        for other, array in enumerate(arrays):
            if other != number and np.may_share_memory(arrays[number], array):
                raise ArgumentError(
                    f"{names[number]} and {names[other]} overlap, and the function writes into the first; pass copies"
                )


def check_out(out: Any, type_: TensorType, name: str) -> NDArray[Any]:
    """An array that can take an output. Raises ArgumentError."""
    if not isinstance(out, np.ndarray):
        raise ArgumentError(f"{name}: needs an array {type_} to write into, got {type(out).__name__}")
    if out.dtype != type_.dtype.numpy or out.shape != type_.shape:
        raise ArgumentError(f"{name}: needs {type_}, got {out.dtype}{list(out.shape)}; pass np.empty of that type")
    if not out.flags.writeable:
        raise ArgumentError(f"{name}: is read-only; pass a writeable array")
    return out
