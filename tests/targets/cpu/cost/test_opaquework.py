"""What scatters take: updates one by one, or computed in vectors before, and rows that lie far away."""

import pytest

from autofuse.ir.dtypes import F32, I32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lower.tile import Buffer, OpaqueProgram, Space
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server

UPDATES = 4096


def scattered(rows, *ops, columns=()):
    """`x[at] += ops(u)`, row by row."""
    builder, window = GraphBuilder("g"), tuple(range(1, 1 + len(columns)))
    x, at = builder.input(TensorType((rows, *columns), F32), "x"), builder.input(TensorType((UPDATES,), I32), "at")
    u = made = builder.input(TensorType((UPDATES, *columns), F32), "u")
    for op in ops:
        made = builder.emit(op, [made])
    result = builder.emit(
        "scatter",
        [x, at, made],
        update_window_dims=window,
        inserted_window_dims=(0,),
        input_batching_dims=(),
        scatter_indices_batching_dims=(),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        combiner="add",
    )
    buffers = [Buffer(value.name, value.type, Space.INPUT) for value in (x, at, u)]
    output = Buffer("y", result.type, Space.OUTPUT)
    return OpaqueProgram("s", builder.finish([result]), (*buffers, output), is_coded=True)


def test_updates_that_are_computed_are_so_in_vectors():
    plain, costly = (features(scattered(100, *ops)).opaque.coded_ns for ops in ((), ("exp", "log1p", "tanh")))
    # 0.4 ns of each update for memory between vectors and elements; some 50 instructions of 0.3 ns for 16 elements
    assert UPDATES * 0.4 < costly - plain < UPDATES * (0.4 + 80 * 0.3 / 16)


def test_rows_that_no_cache_holds_are_moved_for_each_visit():
    near, far = (features(scattered(rows, columns=(64,))).opaque for rows in (64, 1 << 20))
    for opaque, nbytes in ((near, 64 * 256), (far, (1 << 20) * 256)):
        assert opaque.visits.traffic(nbytes) == (opaque.moved_bytes, 0)
        assert opaque.visits.traffic(nbytes / 2) == (opaque.moved_bytes + UPDATES * 128, UPDATES * 128)
        assert opaque.visits.traffic(0) == (opaque.moved_bytes + UPDATES * 256, UPDATES * 256)


def test_they_are_priced_so():
    model = CpuTarget(server(1)).cost_model()
    near, far = (model.breakdown(features(scattered(rows, columns=(64,)))).us for rows in (64, 1 << 20))
    copied = model._memory.copy_bytes_per_us(2 * (1 << 20) * 256)
    assert far - 2 * (1 << 20) * 256 / copied > 1.5 * near


def test_a_vector_of_updates_is_one_element_each_for_its_place():
    opaque = features(scattered(1 << 20)).opaque
    assert opaque.visits.traffic(0)[1] == UPDATES * 64  # a line for each
    assert opaque.coded_ns == pytest.approx(0.2 * UPDATES * (1.5 + 5 * 0.3), rel=0.3)
