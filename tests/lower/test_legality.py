"""What lowering refuses, beyond what the grid rules out (tests/fusion/test_domain.py): the reason is shown to users."""

import numpy as np
import pytest

from autofuse.errors import LegalityError
from autofuse.ir.dtypes import F32, I32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.testing.fusions import LIMITS, whole_kernel
from tests.fixtures.kernelchecks import check_fused, fused


def zeros(*shape):
    return np.zeros(shape, np.float32)


def refused(fn, *arrays, because, limits=LIMITS):
    with pytest.raises(LegalityError, match=because):
        lower(fused(fn, *arrays), Schedule(), "k", limits)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x + x.T).sum(1),
        lambda x: (np.exp(x) * np.exp(x).T).max(0),
        lambda x: x.T @ x,
        lambda x: np.tanh(x @ x.T) + x,
        lambda x: (h := np.tanh(x @ x)) @ x + h,
        lambda x: np.cumsum(x, 0) - np.cumsum(x.T, 1).T,
    ],
    ids=["sum of both", "product of both", "gram", "gram rows", "residual", "running sums"],
)
def test_reading_one_value_in_two_ways_is_legal_where_rows_agree(fn):
    check_fused(fn, np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32))


def test_two_ways_through_one_row_are_refused():
    def outer(x):
        e = x.sum(1)
        return e[:, None] + e[None, :]

    refused(outer, zeros(6, 5), because="two axes of one value would be the same loop")


def test_too_many_ways_to_read_one_value():
    def tangled(x):
        for _ in range(16):
            x = x + x.T
        return x.sum(1)

    refused(tangled, zeros(4, 4), because="too many ways")


def test_a_right_side_scaled_by_a_sum_is_refused():
    def scaled(x, w):
        return x @ (w * w.sum((1, 2), keepdims=True))

    refused(scaled, zeros(2, 1, 5), zeros(2, 5, 4), because="is the result of another reduction or dot")


def test_a_product_read_at_another_row_is_refused():
    refused(lambda x, w: (lambda y: y + np.flip(y, 0))(x @ w), zeros(6, 5), zeros(5, 4), because="another row")


def test_a_running_value_read_at_another_row_is_refused():
    refused(lambda x: (lambda y: y + np.flip(y, 0))(np.cumsum(x, 1)), zeros(6, 5), because="another row")


def test_a_sum_read_at_a_position_that_depends_on_data_is_refused():
    build = GraphBuilder("g")
    x, at = build.input(TensorType((6, 5), F32), "x"), build.input(TensorType((6,), I32), "at")
    total = build.emit("reduce", [x], dimensions=(1,), combiner="add")
    taken = build.emit(
        "gather",
        [total, at],
        offset_dims=(),
        collapsed_slice_dims=(0,),
        operand_batching_dims=(),
        start_indices_batching_dims=(),
        start_index_map=(0,),
        index_vector_dim=1,
        slice_sizes=(1,),
    )
    with pytest.raises(LegalityError, match=r"read inside another loop|does not have"):
        lower(whole_kernel(build.finish([build.emit("add", [taken, total])])), Schedule(), "k", LIMITS)


def test_a_sum_beyond_its_edge_is_refused():
    def shifted(x):
        return np.pad(x.sum(1), (1, 0))[:6] * x.sum(1)

    refused(shifted, zeros(6, 5), because="read where it does not exist")


def test_recomputation_without_end_is_refused():
    def stencils(x):
        for _ in range(6):
            padded = np.pad(x, 1)
            x = np.tanh(padded[2:] + padded[:-2] * x)
        return x

    refused(stencils, zeros(40), because="too much is recomputed", limits=Limits(scalars=200))


def test_nothing_is_computed_inside_a_call():
    refused(lambda x: np.sort(x, 1).sum(0), zeros(3, 4), because="sort is an opaque call")
