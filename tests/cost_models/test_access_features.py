"""Features of accesses that are not side by side: strides, parts of loops, places that data decide."""

import pytest

from autofuse.cost_models.features import FarWalk
from autofuse.ir.dtypes import F16, F32, I64
from autofuse.ir.index import Affine, Element, Symbol, of
from autofuse.ir.pieces import Condition
from autofuse.lower.statements import Constant, Load, Map, Store
from autofuse.lower.statements import Test as When
from autofuse.lower.tile import Phase, RowGroup, Space, Stage
from autofuse.targets.cpu.cost.extract import features
from tests.fixtures.countedprograms import buffer, only_stage, program


def test_short_strides_are_whole_vectors_that_are_shuffled():
    i = Symbol("i0", 1000)
    body = (Load(0, F32, "x", of(i) * 3), Store("y", of(i), 0))
    phase = Phase((i,), (RowGroup((Stage((), body, None),)),), i)
    stage = only_stage(features(program(phase, buffer("x", (3000,)), buffer("y", (1000,), Space.OUTPUT))))
    # 62 whole vectors of three each; the last 8 elements are gathered
    assert stage.accesses.contiguous == 63 + 62 * 3
    assert (stage.accesses.strided, stage.accesses.gathered_elements) == (1, 16)
    assert stage.operations == {("integer", "f32"): 62 * 3, ("gather", "f32"): 1}


def test_strided_stores_are_scattered():
    i = Symbol("i0", 1600)
    body = (Load(0, F32, "x", of(i)), Store("y", of(i) * 3, 0))
    phase = Phase((i,), (RowGroup((Stage((), body, None),)),), i)
    stage = only_stage(features(program(phase, buffer("x", (1600,)), buffer("y", (4800,), Space.OUTPUT))))
    assert stage.operations == {("scatter", "f32"): 100}


def test_each_part_of_a_cut_loop_ends_with_a_vector_of_its_own():
    i = Symbol("i0", 100)
    first, second = When(1, (Condition(of(i), 0, 50),)), When(2, (Condition(of(i), 50, 100),))
    body = (
        first,
        second,
        Constant(3, F32, 0.0),
        Load(4, F32, "a", of(i), 1, 3),
        Load(5, F32, "b", of(i) - 50, 2, 3),
        Map(6, F32, "select", (1, 4, 5)),
        Store("y", of(i), 6),
    )
    phase = Phase((i,), (RowGroup((Stage((), body, None),)),), i)
    buffers = (buffer("a", (50,)), buffer("b", (50,)), buffer("y", (100,), Space.OUTPUT))
    found = features(program(phase, *buffers))
    stage = only_stage(found)
    assert stage.vectors == 2 * 4  # 50 elements are three vectors and a part of one, twice
    assert stage.accesses.contiguous == 8 + 4 + 4
    # each part is read where its condition holds alone
    assert found.phases[0].reuse.traffic(1 << 20)[0] == pytest.approx(400, abs=64)


def test_a_gather():
    j = Symbol("i0", 1600)
    place = Affine(0, ((Element("0", (), 0, 9999), 1),))
    body = (Load(0, I64, "at", of(j)), Load(1, F32, "x", place), Store("y", of(j), 1))
    phase = Phase((j,), (RowGroup((Stage((), body, None),)),), j)
    buffers = (buffer("at", (1600,), dtype=I64), buffer("x", (10000,)), buffer("y", (1600,), Space.OUTPUT))
    found = features(program(phase, *buffers))
    stage = only_stage(found)
    assert stage.lanes == 8  # as wide as the positions
    assert (stage.accesses.gather, stage.accesses.gathered_elements) == (200, 1600)
    assert stage.accesses.contiguous == 400
    assert stage.operations == {("gather", "f32"): 200}
    assert stage.far_walks == (FarWalk(1600, 10, write=False),)  # 40000 bytes are ten pages, in any order
    # 1600 places among 10000 are taken to lie on lines of their own, but no more than there are
    assert found.buffers[1].read_bytes == 40000
    assert found.buffers[1].floor_read_bytes == 4


def test_one_element_of_each_row_touches_a_line_of_each_row():
    i = Symbol("i0", 100)
    label = of(i) * 50000 + Affine(0, ((Element("0", (), 0, 49999), 1),))
    body = (Load(0, I64, "at", of(i)), Load(1, F32, "x", label), Store("y", of(i), 1))
    phase = Phase((i,), (RowGroup((Stage((), body, None),)),), i)
    buffers = (buffer("at", (100,), dtype=I64), buffer("x", (100, 50000)), buffer("y", (100,), Space.OUTPUT))
    found = features(program(phase, *buffers))
    assert found.buffers[1].read_bytes == 100 * 64


def test_rows_at_run_time_positions_bring_their_lines_once():
    i, j = Symbol("i0", 1000), Symbol("i1", 64)
    row = Affine(0, ((Element("0", (), 0, 24_999), 64),)) + of(j)
    body = (Load(0, I64, "at", of(i)), Load(1, F32, "x", row), Store("y", of(i) * 64 + of(j), 1))
    phase = Phase((i, j), (RowGroup((Stage((), body, None),)),), j)
    buffers = (buffer("at", (1000,), dtype=I64), buffer("x", (25_000, 64)), buffer("y", (1000, 64), Space.OUTPUT))
    found = features(program(phase, *buffers))
    # 1000 rows of four lines each, not a line for each of their elements
    assert found.buffers[1].read_bytes == 1000 * 256
    assert found.phases[0].reuse.traffic(16 << 10)[0] == pytest.approx(1000 * 256 + 1000 * 8, abs=64)


def test_elements_of_16_bits_are_gathered_one_by_one():
    i = Symbol("i0", 1600)
    stages = {}
    for dtype in (F32, F16):
        body = (Load(0, dtype, "x", of(i) * 100), Store("y", of(i), 0))
        phase = Phase((i,), (RowGroup((Stage((), body, None),)),), i)
        buffers = buffer("x", (160_000,), dtype=dtype), buffer("y", (1600,), Space.OUTPUT, dtype=dtype)
        stages[dtype] = only_stage(features(program(phase, *buffers)))
    assert stages[F32].operations["gather", "f32"] == 100
    assert stages[F16].operations["gather", "f32"] == 3 * 100
