"""Which kernels are one product with a simple epilogue, and how its matrices lie."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.lower.lowering import lower
from autofuse.lower.plainproducts import PlainProduct, plain_product
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.passes.pipeline import clean
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.registry import backend_named

F32, F64, BF16 = np.float32, np.float64, ml_dtypes.bfloat16


def read(fn: Any, *args: Any, numerics: Any = "strict") -> PlainProduct | None:
    graph = clean(af.trace(fn, *args), numerics)
    kernel = candidate_of(graph, [node.name for node in graph.nodes], [value.name for value in graph.outputs])
    program = lower(kernel, Schedule(), "product", backend_named("cuda").target(device="h200").limits)
    assert isinstance(program, TileProgram)
    return plain_product(program)


def zeros(*shape: int, dtype: Any = F32) -> Any:
    return np.zeros(shape, dtype)


def test_a_product_and_where_its_matrices_lie() -> None:
    found = read(lambda a, b: a @ b, zeros(70, 64), zeros(64, 100))
    assert found is not None
    assert (found.rows, found.columns, found.depth, found.count) == (70, 100, 64, 1)
    assert [(side.row_stride, side.column_stride) for side in (found.left, found.right, found.out)] == [
        (64, 1),
        (100, 1),
        (100, 1),
    ]
    assert (found.bias, found.clips, found.fast, found.flops) == (None, False, False, 2 * 70 * 100 * 64)


def test_turned_operands_and_batches_have_strides_of_their_own() -> None:
    found = read(lambda a, b: a @ b.swapaxes(-1, -2), zeros(3, 4, 50, 64), zeros(3, 4, 30, 64))
    assert found is not None
    assert (found.count, found.left.step, found.right.step, found.out.step) == (12, 50 * 64, 30 * 64, 50 * 30)
    assert (found.right.row_stride, found.right.column_stride) == (1, 64)
    shared = read(lambda a, b: a.T @ b, zeros(64, 50), zeros(64, 30))
    assert shared is not None
    assert (shared.left.row_stride, shared.left.column_stride) == (1, 50)


@pytest.mark.parametrize(("numerics", "clips"), [("fast", True), ("strict", None)])
def test_a_clip_is_for_fast_numerics_as_libraries_may_lose_nan(numerics: str, clips: bool | None) -> None:
    found = read(lambda x, w: np.maximum(x @ w, 0), zeros(70, 64), zeros(64, 128), numerics=numerics)
    assert (None if found is None else found.clips) == clips


def test_a_bias_is_added_before_anything_is_rounded() -> None:
    found = read(lambda x, w, b: x @ w + b, zeros(70, 64), zeros(64, 128), zeros(128))
    assert found is not None
    assert found.bias == ("b", 0)
    turned = read(lambda x, w, b: b + x @ w, zeros(70, 64), zeros(64, 128), zeros(128))
    assert turned is not None
    assert turned.bias == ("b", 0)
    one_row = zeros(1, 64), zeros(64, 128), zeros(1, 128)
    assert read(lambda x, w, b: x @ w + b, *one_row) is None  # the result may lie where the bias does
    short = [zeros(70, 64, dtype=BF16), zeros(64, 128, dtype=BF16), zeros(128, dtype=BF16)]
    assert read(lambda x, w, b: (x @ w).astype(BF16) + b, *short) is None


def test_sixteen_bits_come_out_in_sixteen_or_thirty_two() -> None:
    x, w = zeros(70, 64, dtype=BF16), zeros(64, 128, dtype=BF16)
    assert read(lambda x, w: x @ w, x, w) is not None
    rounded = read(lambda x, w: (x @ w).astype(BF16), x, w)
    assert rounded is not None
    assert rounded.out.dtype.name == "bf16"


REFUSED = {
    "two products": (lambda a, b, c: a @ b + a @ c, zeros(40, 64), zeros(64, 128), zeros(64, 128)),
    "another function": (lambda a, b: np.exp(a @ b), zeros(40, 64), zeros(64, 128)),
    "a column": (lambda a, b, c: a @ b + c[:, None], zeros(40, 64), zeros(64, 128), zeros(40)),
    "a prologue": (lambda a, b: np.exp(a) @ b, zeros(40, 64), zeros(64, 128)),
    "integers": (lambda a, b: a @ b, zeros(40, 64, dtype=np.int32), zeros(64, 128, dtype=np.int32)),
    "two types": (lambda a, b: a @ b, zeros(40, 64), zeros(64, 128, dtype=BF16)),
    "two loops over products": (
        lambda a, b: np.einsum("bqhd,bkhd->bhqk", a, b),
        zeros(2, 128, 4, 64),
        zeros(2, 100, 4, 64),
    ),
    "nothing to add": (lambda a, b: a @ b, zeros(40, 0), zeros(0, 128)),
    "no product": (lambda a: a + 1, zeros(40, 64)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_none(name: str) -> None:
    assert read(*REFUSED[name], numerics="fast") is None


def test_a_slice_has_an_offset_and_a_pitch() -> None:
    found = read(lambda a, b: a[2:, 8:72] @ b, zeros(42, 100), zeros(64, 128))
    assert found is not None
    assert (found.left.offset, found.left.row_stride) == (208, 100)
