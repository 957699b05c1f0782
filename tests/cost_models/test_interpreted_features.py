"""Features of what the interpreter or coded loops compute: sorts, convolutions, scatters."""

import pytest

from autofuse.cost_models.features import Visits
from autofuse.ir.dtypes import F32, I32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.tile import (
    OpaqueProgram,
    Space,
)
from autofuse.targets.cpu.cost.extract import features
from tests.fixtures.countedprograms import buffer


def test_a_call_of_the_interpreter():
    builder = GraphBuilder("g")
    x = builder.input(TensorType((100, 64), F32), "x")
    y = builder.emit("sort", [x], dimension=1, descending=False, stable=True)
    graph = builder.finish([y])
    buffers = (buffer("x", (100, 64)), buffer("y", (100, 64), Space.OUTPUT))
    found = features(OpaqueProgram("s", graph, buffers))
    assert found.phases == ()
    assert found.opaque.nodes == 1
    assert found.opaque.moved_bytes == 2 * 25600
    assert found.opaque.sort_steps == 6400 * 6


def test_an_interpreted_convolution_counts_its_products():
    builder = GraphBuilder("g")
    x, w = builder.input(TensorType((40, 128), F32), "x"), builder.input(TensorType((8, 10), F32), "w")
    layout = {
        "window_strides": (),
        "padding": (),
        "lhs_dilation": (),
        "rhs_dilation": (),
        "input_batch_dimension": 1,
        "input_feature_dimension": 0,
        "input_spatial_dimensions": (),
        "kernel_input_feature_dimension": 1,
        "kernel_output_feature_dimension": 0,
        "kernel_spatial_dimensions": (),
        "output_batch_dimension": 1,
        "output_feature_dimension": 0,
        "output_spatial_dimensions": (),
        "feature_group_count": 4,
        "batch_group_count": 1,
    }
    graph = builder.finish([builder.emit("convolution", [x, w], **layout)])
    buffers = (buffer("x", (40, 128)), buffer("w", (8, 10)), buffer("y", (8, 128), Space.OUTPUT))
    opaque = features(OpaqueProgram("c", graph, buffers)).opaque
    assert opaque.multiply_adds == 8 * 128 * 10
    assert opaque.elements == 6 * 8 * 128  # copies of the result
    assert (opaque.nodes, opaque.coded_ns) == (15, 0)


ROWS = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "input_batching_dims": (),
    "scatter_indices_batching_dims": (),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
    "combiner": "add",
}


def test_loops_of_a_scatter():
    builder = GraphBuilder("g")
    x, at = builder.input(TensorType((1000, 64), F32), "x"), builder.input(TensorType((100,), I32), "at")
    updates = builder.input(TensorType((100, 64), F32), "u")
    graph = builder.finish([builder.emit("scatter", [x, at, updates], **ROWS)])
    shapes = buffer("x", (1000, 64)), buffer("at", (100,), dtype=I32), buffer("u", (100, 64))
    buffers = (*shapes, buffer("y", (1000, 64), Space.OUTPUT))
    opaque = features(OpaqueProgram("s", graph, buffers, is_coded=True)).opaque
    assert opaque.copied_bytes == 2 * 1000 * 64 * 4
    assert opaque.moved_bytes == 100 * 4 + 100 * 64 * 4
    assert (opaque.nodes, opaque.shares) == (0, 1)
    # 100 indices, 1.8 ns each; 400 vectors: four instructions of 0.3 ns; of that a fifth
    assert opaque.coded_ns == pytest.approx(0.2 * (100 * 1.8 + 400 * 4 * 0.3))
    assert opaque.visits == Visits(held=256000, once=26000, read=25600, written=25600)
