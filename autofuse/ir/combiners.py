"""Combiners of reductions (reduce, windows, scans, scatter): their NumPy functions and identities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from autofuse.ir.dtypes import DType

COMBINERS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}
"""How two elements become one."""


def combiner_identity(combiner: str, dtype: DType) -> bool | int | float:
    """The number that changes nothing when combined: 0, 1, the greatest, the least, all ones."""
    is_bool = dtype.kind == "bool"
    match combiner:
        case "add" | "or":
            return False if is_bool else 0
        case "multiply":
            return 1
        case "and":
            return True if is_bool else int(~dtype.numpy.type(0))
        case _ if dtype.is_float:
            return math.inf if combiner == "minimum" else -math.inf
        case _ if is_bool:
            return combiner == "minimum"
        case _:
            limits = np.iinfo(cast("Any", dtype.numpy))
            return int(limits.max if combiner == "minimum" else limits.min)
