"""Call arguments that are not exactly what a plan was compiled for: converted where that is safe, refused clearly."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.exceptions import TooHardError
from numpy.typing import NDArray

from autofuse.errors import ArgumentError
from autofuse.ir.contracts import check_contiguous
from autofuse.ir.devicearrays import footprint
from autofuse.ir.types import TensorType, require_plain

if TYPE_CHECKING:
    from autofuse.targets.base import Arrays

_OVERLAP_WORK = 10_000
"""Steps spent on deciding whether two strided arrays share an element."""


def prepared(
    leaves: Sequence[Any],
    types: Sequence[TensorType],
    names: Sequence[str],
    written: Collection[int],
    contiguous: Collection[int],
    arrays: Arrays,
) -> tuple[list[Any], list[str]]:
    """Exactly typed, C-contiguous arrays for a plan's inputs, and the names of those that had to be copied.

    `written`: inputs the function modifies in place. `contiguous`: those of which a copy would not do. `arrays`: of the
    plan's target; arrays on its device stay there. Raises ArgumentError naming the argument.
    """
    checked = [_checked(leaf, type_, name, arrays) for leaf, type_, name in zip(leaves, types, names, strict=True)]
    for number in written:
        if isinstance(leaves[number], np.generic):
            raise ArgumentError(f"{names[number]}: the function writes into it; pass an array, not a NumPy scalar")
    footprints = [_footprint(leaf, array) for leaf, array in zip(leaves, checked, strict=True)]
    check_written(footprints, names, written)
    check_contiguous(footprints, names, contiguous)
    found: list[Any] = []
    copied: list[str] = []
    for leaf, array, type_, name in zip(leaves, checked, types, names, strict=True):
        if not isinstance(array, np.ndarray):
            plain = arrays.plain(array)
            found.append(leaf if plain is array else plain)
            copied += [] if plain is array else [name]
            continue
        exact = np.require(array, type_.dtype.numpy, ["C", "A"])
        if exact is not array and exact.size and not np.shares_memory(exact, array):
            copied.append(name)
        found.append(exact.view(np.ndarray))
    return found, copied


def _footprint(given: Any, array: Any) -> NDArray[Any]:
    """An array of NumPy's itself, or one in the place of the device's: it says what it overlaps, and who may write."""
    if isinstance(given, np.ndarray | np.generic):
        return np.asarray(given if array is None else array)
    return footprint(given if hasattr(given, "__cuda_array_interface__") else array)


def _checked(leaf: Any, type_: TensorType, name: str, arrays: Arrays) -> Any:
    """An array of NumPy's or of the device."""
    array = _adopted(leaf, name, arrays)
    if array is None:
        if not isinstance(leaf, np.ndarray | np.generic):
            raise ArgumentError(f"{name}: needs an array {type_}, got {type(leaf).__name__}; pass np.asarray(...)")
        _require_plain(leaf, name)
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


def _adopted(value: Any, name: str, arrays: Arrays) -> Any | None:
    try:
        return None if isinstance(value, np.ndarray) else arrays.adopted(value)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from error


def _require_plain(value: Any, name: str) -> None:
    try:
        require_plain(value)
    except TypeError as error:
        raise ArgumentError(f"{name}: {error}") from None


def check_written(leaves: Sequence[Any], names: Sequence[str], written: Collection[int]) -> None:
    """Whether the arguments a function writes into can take it; what is no array is left to `prepared`.

    Raises ArgumentError where one is read-only, overlaps itself, or shares memory with another argument.
    """
    for number in written:
        array, name = leaves[number], names[number]
        if not isinstance(array, np.ndarray):
            continue
        if not array.flags.writeable:
            raise ArgumentError(f"{name}: the function writes into it, but it is read-only; pass a writeable array")
        if array.size and any(
            stride == 0 and extent > 1 for stride, extent in zip(array.strides, array.shape, strict=True)
        ):
            raise ArgumentError(f"{name}: the function writes into it, but its elements overlap; pass a copy")
        for other, leaf in enumerate(leaves):
            if other != number and isinstance(leaf, np.ndarray) and overlap(array, leaf):
                raise ArgumentError(
                    f"{name} and {names[other]} overlap, and the function writes into the first; pass copies"
                )


def overlap(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays have an element in common; where that is hard to decide, whether they might."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=cast("Any", _OVERLAP_WORK))
    except TooHardError:
        return True


def check_outs(
    outs: Sequence[Any], names: Sequence[str], leaves: Sequence[Any], written: Mapping[int, str], arrays: Arrays
) -> None:
    """Raise ArgumentError where an output would destroy another, or an argument that the function writes into."""
    places = [_footprint(out, _adopted(out, name, arrays)) for out, name in zip(outs, names, strict=True)]
    for (a, first), (b, second) in itertools.combinations(zip(places, names, strict=True), 2):
        if overlap(a, b):
            raise ArgumentError(f"{first} and {second} overlap; pass separate arrays")
    for number, argument in written.items():
        leaf = leaves[number]
        array = _adopted(leaf, argument, arrays)
        if array is None and not isinstance(leaf, np.ndarray):
            continue  # which `prepared` says
        for place, name in zip(places, names, strict=True):
            if overlap(place, _footprint(leaf, array)):
                raise ArgumentError(f"{name} overlaps {argument}, which the function writes into; pass another array")


def check_out(out: Any, type_: TensorType, name: str, arrays: Arrays) -> Any:
    """An array that can take an output, as it was given. Raises ArgumentError."""
    array = out if isinstance(out, np.ndarray) else _adopted(out, name, arrays)
    if array is None:
        raise ArgumentError(f"{name}: needs an array {type_} to write into, got {type(out).__name__}")
    _require_plain(out, name)
    if array.dtype != type_.dtype.numpy or array.shape != type_.shape:
        raise ArgumentError(f"{name}: needs {type_}, got {array.dtype}{list(array.shape)}; pass np.empty of that type")
    if not _footprint(out, array).flags.writeable:
        raise ArgumentError(f"{name}: is read-only; pass a writeable array")
    return out
