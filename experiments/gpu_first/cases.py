"""The first programs at sizes worth timing: what they move, what NumPy says, what CuPy itself would do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.dtypes import F16, F32
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.testing import programs

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One program and how to judge it."""

    program: TileProgram
    reference: Callable[..., Array]
    """NumPy: inputs in order to the output."""
    peer: Callable[..., Any]
    """The same with the cupy module first: ordinary CuPy calls, one kernel or several."""
    tolerance: float
    """Relative to the largest magnitude of the output."""
    flops: float = 0.0
    """Of a matrix product; 0 for what is bound by memory."""

    @property
    def bytes_moved(self) -> int:
        """Inputs read once and outputs written once."""
        spaces = (Space.INPUT, Space.OUTPUT)
        return sum(b.type.nbytes for b in self.program.buffers if b.space in spaces)


SUM = 2e-5  # sums of up to 2**26 terms in another order, in f32 and as a tree
MATH = 4e-6  # CUDA's exp and NumPy's differ by up to 2 ulp each
HALF = 2e-3  # one unit in the last place of f16


def _softmax(x: Array) -> Array:
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def _cupy_softmax(cupy: Any, x: Any) -> Any:
    power = cupy.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def _layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(1e-5)) * scale + shift


def _cupy_layer_norm(cupy: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / cupy.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5) * scale + shift


def _dense(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(a @ b + c, 0)


def _add(n: int, name: str = "add", dtype: Any = F32, **schedule: int) -> Case:
    program = programs.binary(name, "add", n, dtype, cuda_schedule(**schedule))
    return Case(program, np.add, lambda cupy, x, y: cupy.add(x, y), 0.0)


def _row_sum(rows: int, columns: int, name: str, **schedule: int) -> Case:
    program = programs.row_reduce(name, "add", rows, columns, schedule=cuda_schedule(**schedule))
    return Case(program, lambda x: x.sum(axis=1), lambda _, x: x.sum(axis=1), SUM)


def _soft(rows: int, columns: int, name: str, **schedule: int) -> Case:
    program = programs.softmax(name, rows, columns, schedule=cuda_schedule(**schedule))
    return Case(program, _softmax, _cupy_softmax, MATH)


def cases(scale: int) -> list[Case]:
    """All cases, with sizes divided by `scale` (1 = several times the second-level cache)."""
    n, rows = (1 << 27) // scale, max(64, 32768 // scale)
    side = max(256, 4096 // max(1, int(scale**0.34)))
    total = programs.split_sum("split_sum", n, 1024)
    columns = programs.column_sum("column_sum", rows, 4096)
    norm = programs.layer_norm("layer_norm", rows, 4096)
    arg = programs.row_arg("argmax", "argmax", rows, 4096)
    dot = programs.matmul("matmul", side, side, side)
    epilogue = programs.dense("dense", side, side, side)
    return [
        _add(n),
        _add(n + 3, "add_odd"),
        _add(n, "add_f16", F16, items=8),
        _row_sum(rows, 4096, "row_sum"),
        _row_sum(rows * 128, 32, "row_sum_short"),
        Case(columns, lambda x: x.sum(axis=0), lambda _, x: x.sum(axis=0), SUM),
        Case(total, lambda x: np.asarray(x.sum()), lambda _, x: x.sum(), SUM),
        _soft(rows, 4096, "softmax"),
        _soft(rows * 32, 128, "softmax_short"),
        _soft(rows // 4, 16384, "softmax_long"),
        Case(norm, _layer_norm, _cupy_layer_norm, SUM),
        Case(arg, lambda x: x.argmax(axis=1), lambda _, x: x.argmax(axis=1), 0.0),
        Case(dot, np.matmul, lambda cupy, a, b: cupy.matmul(a, b), SUM, 2.0 * side**3),
        Case(epilogue, _dense, lambda cupy, a, b, c: cupy.maximum(cupy.matmul(a, b) + c, 0), SUM, 2.0 * side**3),
    ]


def sweep(scale: int) -> list[Case]:
    """The same programs under other schedules: what there is to tune."""
    n, rows = (1 << 27) // scale, max(64, 32768 // scale)
    found: list[Case] = []
    for items in (1, 2, 4, 8, 16):
        for threads in (128, 256, 512, 1024):
            tag = f"items{items}_threads{threads}"
            found.append(_add(n, f"add_{tag}", items=items, threads=threads))
            if items in (1, 4):
                found.append(_row_sum(rows, 4096, f"row_sum_{tag}", items=items, threads=threads))
                found.append(_soft(rows, 4096, f"softmax_{tag}", items=items, threads=threads))
    return found
