"""What a traced function asks of its arguments beyond their types."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from autofuse.errors import ArgumentError


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
