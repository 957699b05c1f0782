"""Lowering of every shape and dtype, and its limits.

`check_fused` runs the kernel by the reference executor, which checks every access, and as native code on poisoned
outputs, and compares both with the interpreter.
"""

import gc
import inspect
import sys

import numpy as np
import pytest

from autofuse.errors import LegalityError
from autofuse.ir.dtypes import BOOL, F32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Scan
from autofuse.testing.fusions import whole_kernel
from tests.fixtures.kernelchecks import check_fused, check_kernel, fused
from tests.fixtures.loweredkernels import count, normal

SHAPES = [(), (1,), (0,), (1, 1, 1), (0, 5), (5, 0), (1, 7), (7, 1), (2, 0, 3), (3, 1, 4, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_of_a_loop(shape):
    check_fused(lambda x: (np.exp(x) + 1, x.reshape(-1) * 2, np.transpose(x)), normal(*shape))


@pytest.mark.parametrize("shape", [s for s in SHAPES if s], ids=str)
def test_every_shape_of_a_sum_and_what_follows(shape):
    check_fused(lambda x: x - x.sum(-1, keepdims=True), normal(*shape))
    check_fused(lambda x: x.sum(0), normal(*shape))
    check_fused(lambda x: np.cumsum(x, -1) * 2, normal(*shape))


FLOATS = [np.float16, "bfloat16", np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def array_of(dtype, *shape):
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    if dtype.kind in "iu":
        return np.random.default_rng(0).integers(0, 120, shape).astype(dtype)
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_float_dtype_in_a_stitched_row(dtype):
    from autofuse.ir import dtypes

    x = array_of(dtype, 5, 37)
    kind = dtypes.from_numpy(x.dtype)
    build = GraphBuilder("g")
    value = build.input(TensorType(x.shape, kind), "x")
    e = build.emit("exp", [value])
    total = build.emit("reduce", [e], dimensions=(1,), combiner="add")
    spread = build.emit("broadcast_in_dim", [total], shape=x.shape, broadcast_dimensions=(0,))
    check_kernel(build.finish([build.emit("divide", [e, spread]), total]), [x])


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: np.dtype(d).name)
def test_every_integer_dtype_wraps_and_reduces(dtype):
    def work(x):
        y = x * x + x
        return y, y.max(1), y.sum(1, dtype=x.dtype), np.cumsum(y, 1, dtype=x.dtype), y.argmax(1)

    check_fused(work, array_of(dtype, 4, 19))


def test_bool_masks():
    def work(x, m):
        small = x < 0.5
        return small & ~m, (small | m).any(1), (small ^ m).all(1), np.where(m, x, 0)

    check_fused(work, normal(5, 17), normal(5, 17, seed=1) > 0)


@pytest.mark.parametrize("combiner", ["and", "or", "minimum", "maximum"])
def test_bool_reductions(combiner):
    build = GraphBuilder("g")
    x = build.input(TensorType((4, 9), BOOL), "x")
    graph = build.finish([build.emit("reduce", [x], dimensions=(1,), combiner=combiner)])
    check_kernel(graph, [np.random.default_rng(0).random((4, 9)) < 0.8])


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_long_chain_is_legal_as_it_computes_nothing_twice():
    def chain(x):
        for _ in range(400):
            x = x * np.float32(0.99) + np.float32(0.1)
        return x

    kernel = fused(chain, normal(3, 5))
    with pytest.raises(LegalityError, match="more than 500 scalar values"):
        lower(kernel, Schedule(), "k", Limits(scalars=500))
    check_fused(chain, normal(3, 5), limits=Limits(scalars=plain_scalars(kernel)), native=False)


def test_a_kernel_that_writes_nothing_is_refused():
    build = GraphBuilder("g")
    build.emit("exp", [build.input(TensorType((3,), F32), "x")])
    with pytest.raises(LegalityError, match="writes nothing"):
        lower(whole_kernel(build.finish([])), Schedule(), "k")


def _deepest(function):
    """What a function returns that is called with hardly any recursion left."""
    left = sys.getrecursionlimit() - len(inspect.stack(0)) - 80

    def down(frames):
        return function() if frames == 0 else down(frames - 1)

    return down(left)


@pytest.mark.slow
def test_chains_are_lowered_whatever_the_recursion_limit_is():
    def chain(x):
        for _ in range(3000):
            x = x * np.float32(0.99) + np.float32(0.1)
        return x

    kernel = fused(chain, normal(3, 5))
    limits = Limits(scalars=plain_scalars(kernel))
    limit = sys.getrecursionlimit()
    program = _deepest(lambda: lower(kernel, Schedule(), "k", limits))
    assert sys.getrecursionlimit() == limit
    assert program == lower(kernel, Schedule(), "k", limits)


@pytest.mark.slow
def test_chains_of_views_gathers_and_reductions_are_lowered_at_any_depth():
    def chain(x, places):
        for _ in range(100):
            x = (x / x.sum(axis=1, keepdims=True))[:, places[::-1]]
        return x

    arguments = normal(3, 5), np.array([4, 2, 0, 1, 3])
    check_fused(chain, *arguments, limits=Limits(scalars=1 << 17), native=False)


def test_a_sum_of_many_products_is_lowered():
    def total(x, w):
        sum_of_products = x @ w
        for _ in range(1200):
            sum_of_products = sum_of_products + x @ w
        return sum_of_products

    kernel = fused(total, normal(3, 2), normal(2, 4))
    assert lower(kernel, Schedule(), "k", Limits(scalars=plain_scalars(kernel)))


def test_nothing_of_lowering_is_left_to_the_garbage_collector():
    def attention(q, k, v):
        e = np.exp(q @ k.T)
        return (np.cumsum(e, -1) / e.sum(-1, keepdims=True)) @ v

    kernel = fused(attention, normal(8, 4), normal(6, 4), normal(6, 4))
    of_lowering = {"PhaseBuilder", "PhaseDraft", "StageDraft", "BufferTable"}
    gc.collect()
    gc.disable()
    try:
        assert count(lower(kernel, Schedule(), "k"), Scan) == 1
        left = of_lowering & {type(found).__name__ for found in gc.get_objects()}
    finally:
        gc.enable()
    assert left == set()
