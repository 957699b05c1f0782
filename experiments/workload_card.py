"""Print the program tables of datasets/workloads/README.md: python experiments/workload_card.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, Workload, arrays, discover


def typed(array: NDArray[Any]) -> str:
    """Short type: f32[4096,2048]."""
    letter = {"f": "f", "i": "i", "u": "u", "b": "b"}[array.dtype.kind]
    name = "bool" if letter == "b" else f"{letter}{8 * array.itemsize}"
    return f"{name}[{','.join(map(str, array.shape))}]"


def largest(arrays: list[NDArray[Any]]) -> str:
    """The largest array's type, and how many others there are."""
    if not arrays:
        return "-"
    rest = f" +{len(arrays) - 1}" if len(arrays) > 1 else ""
    return typed(max(arrays, key=lambda array: array.nbytes)) + rest


def row(program: Workload) -> str:
    """One table row at full size."""
    before = arrays(program.inputs("full", 0))
    arguments = program.inputs("full", 0)
    results = arrays(program.function(*arguments))
    results += [new for old, new in zip(before, arrays(arguments), strict=True) if not np.array_equal(old, new)]
    moved = sum(array.nbytes for array in before + results) / 1e6
    return f"| `{program.name}` | {program.summary} | {largest(before)} | {largest(results)} | {moved:,.1f} |"


if __name__ == "__main__":
    for folder in (WORKLOADS_DIRECTORY, WORKLOADS_DIRECTORY / "loops"):
        print("| program | what it is, and where it comes from | arguments | results | least MB |")
        print("|---|---|---|---|---:|")
        for workload in discover(folder):
            print(row(workload))
        print()
