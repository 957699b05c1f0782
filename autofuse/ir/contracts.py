"""What a traced function asks of its arguments beyond their types."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError, OutOfBoundsError, OutOfDomainError
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class BoundsCheck:
    """What the entries of one index must keep to, or a condition."""

    where: str
    """The source line."""
    what: str
    """What is indexed: `axis 0 with size 5`. Of a condition: what is wrong where it does not hold."""
    low: int
    """The least that an entry may be."""
    high: int
    """One more than the most. 0 says that this is a condition: its number is 0 where it holds, else -1."""


def check_bounds(checks: Sequence[BoundsCheck], numbers: NDArray[np.int64]) -> None:
    """Raise OutOfBoundsError for the first index that broke its bounds, OutOfDomainError for a condition that fails.

    `numbers`: for each check the least entry of the index and the least complement of one (`~i`).
    """
    for check, (least, complement) in zip(checks, numbers.reshape(-1, 2).tolist(), strict=True):
        if not check.high:
            if least < 0:
                raise OutOfDomainError(f"{check.where}: {check.what}")
        elif least < check.low or complement < -check.high:
            index = least if least < check.low else ~complement
            raise OutOfBoundsError(f"{check.where}: index {index} is out of bounds for {check.what}")


def check_contiguous(leaves: Sequence[Any], names: Sequence[str], contiguous: Collection[int]) -> None:
    """Raise ArgumentError for an array in another memory order than C that the function treats by its memory order.

    `contiguous`: places of those in `leaves`; `names`: what to call all of them.
    """
    for number in contiguous:
        array, name = leaves[number], names[number]
        if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
            raise ArgumentError(
                f"{name}: must be C-contiguous: the function reshapes or flattens it, or an array of its order, and"
                " writes into one of the two, or asks for the order itself; where this is traced with a view, NumPy"
                f" would have a copy; pass np.ascontiguousarray({name})"
            )
