"""The reference executor: what a TileProgram means, on programs small enough to check by hand."""

import numpy as np
import pytest

from autofuse.errors import BackendError
from autofuse.ir.dtypes import F32, I32
from autofuse.ir.index import Affine, Symbol, of
from autofuse.ir.pieces import Condition
from autofuse.ir.types import TensorType
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import ArgReduce, Constant, Load, Reduce, Scan, Store
from autofuse.lower.statements import Test as When
from autofuse.lower.tile import Buffer, Dot, Matrix, Phase, RowBlock, RowGroup, Space, Stage, TileProgram

R, K = Symbol("i0", 3), Symbol("k0", 4)
X = Buffer("x", TensorType((3, 4), F32), Space.INPUT)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def program(phase, *buffers):
    return TileProgram("p", buffers, ((phase,),), Schedule())


def row_sum(offset=None):
    load = Load(0, F32, "x", offset or of(R) * 4 + of(K))
    sums = Stage((K,), (load, Reduce(1, F32, "add", 0)), K)
    store = Stage((), (Store("y", of(R), 1),), None)
    y = Buffer("y", TensorType((3,), F32), Space.OUTPUT)
    return program(Phase((R,), (RowGroup((sums, store)),)), X, y)


def test_a_reduction_gives_one_value_per_grid_point():
    assert evaluate_program(row_sum(), {"x": ROWS})["y"].tolist() == [6, 22, 38]


def test_an_offset_outside_its_buffer_is_refused():
    with pytest.raises(BackendError, match="out of range"):
        evaluate_program(row_sum(of(R) * 4 + of(K) + 1), {"x": ROWS})


def test_an_output_stored_in_part_is_refused():
    y = Buffer("y", TensorType((4,), F32), Space.OUTPUT)
    phase = Phase((R,), (RowGroup((Stage((), (Constant(0, F32, 1.0), Store("y", of(R), 0)), None),)),))
    with pytest.raises(BackendError, match="never stored"):
        evaluate_program(program(phase, y), {})


def test_masked_loads_read_fill_and_touch_no_memory():
    wide = Symbol("j0", 6)
    body = (
        Constant(0, F32, -1.0),
        When(1, (Condition(of(wide), 1, 5),)),
        Load(2, F32, "x", of(wide) - 1, mask=1, fill=0),
        Store("y", of(wide), 2),
    )
    phase = Phase((wide,), (RowGroup((Stage((), body, None),)),))
    y = Buffer("y", TensorType((6,), F32), Space.OUTPUT)
    assert evaluate_program(program(phase, X, y), {"x": ROWS})["y"].tolist() == [-1, 0, 1, 2, 3, -1]


def test_scans_run_in_both_directions():
    for reverse, expected in ((False, [0, 1, 3, 6]), (True, [6, 6, 5, 3])):
        body = (Load(0, F32, "x", of(K)), Scan(1, F32, "add", 0, reverse), Store("y", of(K), 1))
        phase = Phase((), (RowGroup((Stage((K,), body, None),)),))
        y = Buffer("y", TensorType((4,), F32), Space.OUTPUT)
        assert evaluate_program(program(phase, X, y), {"x": ROWS})["y"].tolist() == expected


def test_argreduce_takes_the_first_of_equals_and_the_first_nan():
    body = (Load(0, F32, "x", of(R) * 4 + of(K)), ArgReduce(1, I32, "argmax", 0, of(K)))
    stages = (Stage((K,), body, K), Stage((), (Store("y", of(R), 1),), None))
    y = Buffer("y", TensorType((3,), I32), Space.OUTPUT)
    x = np.array([[1, 5, 5, 0], [0, np.nan, 9, np.nan], [7, 7, 7, 7]], np.float32)
    assert evaluate_program(program(Phase((R,), (RowGroup(stages),)), X, y), {"x": x})["y"].tolist() == [1, 1, 0]


def test_row_blocks_of_a_dot_share_scratch_by_local_row():
    row_block = RowBlock(R, Symbol("l0", 2), 2)
    j = Symbol("j0", 5)
    dot = Dot(
        Matrix("s", Affine(), 5, 1),
        Matrix("x", of(R) * 4, 4, 1),
        Matrix("w", Affine(), 5, 1),
        rows=2,
        columns=5,
        depth=4,
        dtype=F32,
    )
    store = Stage((j,), (Load(0, F32, "s", of(row_block.local) * 5 + of(j)), Store("y", of(R) * 5 + of(j), 0)), j)
    buffers = (
        X,
        Buffer("w", TensorType((4, 5), F32), Space.INPUT),
        Buffer("s", TensorType((2, 5), F32), Space.SCRATCH),
        Buffer("y", TensorType((3, 5), F32), Space.OUTPUT),
    )
    w = np.arange(20, dtype=np.float32).reshape(4, 5)
    found = evaluate_program(
        program(Phase((R,), (dot, RowGroup((store,))), row_block=row_block), *buffers), {"x": ROWS, "w": w}
    )
    np.testing.assert_array_equal(found["y"], ROWS @ w)
