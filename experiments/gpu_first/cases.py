"""NumPy functions, one kernel each, at sizes worth timing: what they move, and what CuPy itself would do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace
from autofuse.lower.lowering import lower
from autofuse.lower.tile import Space, TileProgram
from autofuse.passes.pipeline import clean
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.testing.fusions import whole_kernel

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One program and how to judge it."""

    program: TileProgram
    reference: Callable[..., Array]
    """The NumPy function: inputs in order to the output."""
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


def _softmax(x: Any) -> Any:
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def _cupy_softmax(cupy: Any, x: Any) -> Any:
    power = cupy.exp(x - x.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(1e-5)) * scale + shift


def _cupy_layer_norm(cupy: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / cupy.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5) * scale + shift


def _case(
    name: str,
    function: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    peer: Callable[..., Any],
    tolerance: float,
    *,
    dtype: Any = np.float32,
    flops: float = 0.0,
    **schedule: int,
) -> Case:
    """A NumPy function of arrays of these shapes as one kernel."""
    graph = clean(trace(function, *(spec(shape, dtype) for shape in shapes)).graph)
    program = lower(whole_kernel(graph), cuda_schedule(**schedule), name)
    assert isinstance(program, TileProgram), "the kernel is a call of the interpreter"
    return Case(program, function, peer, tolerance, flops)


def _add(n: int, name: str = "add", dtype: Any = np.float32, **schedule: int) -> Case:
    peer = lambda cupy, x, y: cupy.add(x, y)  # noqa: E731
    return _case(name, np.add, [(n,), (n,)], peer, 0.0, dtype=dtype, **schedule)


def _row_sum(rows: int, columns: int, name: str, **schedule: int) -> Case:
    return _case(name, lambda x: x.sum(axis=1), [(rows, columns)], lambda _, x: x.sum(axis=1), SUM, **schedule)


def _soft(rows: int, columns: int, name: str, **schedule: int) -> Case:
    return _case(name, _softmax, [(rows, columns)], _cupy_softmax, MATH, **schedule)


def cases(scale: int) -> list[Case]:
    """All cases, with sizes divided by `scale` (1 = several times the second-level cache)."""
    n, rows = (1 << 27) // scale, max(64, 32768 // scale)
    side = max(256, 4096 // max(1, int(scale**0.34)))
    square, wide = (side, side), (rows, 4096)
    return [
        _add(n),
        _add(n + 3, "add_odd"),
        _add(n, "add_f16", np.float16, packs=8),
        _row_sum(rows, 4096, "row_sum"),
        _row_sum(rows * 128, 32, "row_sum_short"),
        _case("column_sum", lambda x: x.sum(axis=0), [wide], lambda _, x: x.sum(axis=0), SUM),
        _case("split_sum", lambda x: x.sum(), [(n,)], lambda _, x: x.sum(), SUM, split=1024),
        _soft(rows, 4096, "softmax"),
        _soft(rows * 32, 128, "softmax_short"),
        _soft(rows // 4, 16384, "softmax_long"),
        _case("layer_norm", _layer_norm, [wide, (4096,), (4096,)], _cupy_layer_norm, SUM),
        _case("argmax", lambda x: x.argmax(axis=1), [wide], lambda _, x: x.argmax(axis=1), 0.0),
        _case("matmul", np.matmul, [square, square], lambda cupy, a, b: cupy.matmul(a, b), SUM, flops=2.0 * side**3),
        _case(
            "dense",
            lambda a, b, c: np.maximum(a @ b + c, 0),
            [square, square, (side,)],
            lambda cupy, a, b, c: cupy.maximum(cupy.matmul(a, b) + c, 0),
            SUM,
            flops=2.0 * side**3,
        ),
    ]


def sweep(scale: int) -> list[Case]:
    """The same programs under other schedules: what there is to tune."""
    n, rows = (1 << 27) // scale, max(64, 32768 // scale)
    found: list[Case] = []
    for packs in (1, 2, 4, 8, 16):
        for threads in (128, 256, 512, 1024):
            tag = f"packs{packs}_threads{threads}"
            found.append(_add(n, f"add_{tag}", packs=packs, threads=threads))
            if packs in (1, 4):
                found.append(_row_sum(rows, 4096, f"row_sum_{tag}", packs=packs, threads=threads))
                found.append(_soft(rows, 4096, f"softmax_{tag}", packs=packs, threads=threads))
    return found
