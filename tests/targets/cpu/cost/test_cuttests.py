"""Loops that are cut at conditions, and those where conditions stay masks: counted by hand."""

import pytest

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.features import FarWalk
from autofuse.ir.dtypes import F32
from autofuse.ir.index import Symbol, of
from autofuse.ir.pieces import Condition
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Constant, Load, Map, Store
from autofuse.lower.statements import Test as When
from autofuse.lower.tile import Buffer, Phase, RowGroup, Space, Stage, TileProgram
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server


def program(grid, body, *buffers):
    phase = Phase(grid, (RowGroup((Stage((), tuple(body), None),)),), grid[-1])
    return TileProgram("p", buffers, ((phase,),), Schedule())


def buffer(name, shape, space=Space.INPUT):
    return Buffer(name, TensorType(shape, F32), space)


def parts_of(parts):
    """Exponentials of so many matrices of two rows, 128 columns, below one another: 8 vectors a row."""
    i, j = Symbol("i0", 2 * parts), Symbol("i1", 128)
    body, total = [Constant(0, F32, 0.0)], 0
    for part in range(parts):
        at = 5 * part + 1
        body.append(When(at, (Condition(of(i), 2 * part, 2 * part + 2),)))
        body.append(Load(at + 1, F32, "x", of(i) * 128 + of(j), at, 0))
        body.append(Map(at + 2, F32, "exp", (at + 1,)))
        body.append(Map(at + 3, F32, "select", (at, at + 2, 0)))
        body.append(Map(at + 4, F32, "add", (total, at + 3)))
        total = at + 4
    body.append(Store("y", of(i) * 128 + of(j), total))
    shape = 2 * parts, 128
    kernel = program((i, j), body, buffer("x", shape), buffer("y", shape, Space.OUTPUT))
    (stage,) = features(kernel).phases[0].stages
    return stage


def test_each_row_is_of_one_part_where_there_is_code_for_each():
    stage = parts_of(9)
    assert stage.accesses.masked == 0
    assert stage.accesses.contiguous == pytest.approx(2 * 18 * 8)
    assert stage.operations["exp", "f32"] == pytest.approx(18 * 8)


def test_parts_without_code_of_their_own_are_computed_in_all_rows():
    """One of 13 parts has code of its own; in rows of the others all are computed, and what is loaded is asked for."""
    stage, vectors = parts_of(13), 26 * 8
    masked = 12 / 13
    assert stage.accesses.contiguous == pytest.approx(2 * vectors)
    assert stage.accesses.masked == pytest.approx(vectors)
    assert stage.operations["exp", "f32"] == pytest.approx((masked + (1 - masked) / 13) * 13 * vectors)


def test_lanes_of_two_vectors_are_masked_and_not_cut():
    i, j = Symbol("i0", 100), Symbol("i1", 20)
    body = [
        Constant(0, F32, 0.0),
        When(1, (Condition(of(j), 5, 20),)),
        Load(2, F32, "x", of(i) * 15 + of(j) - 5, 1, 0),
        Store("y", of(i) * 20 + of(j), 2),
    ]
    kernel = program((i, j), body, buffer("x", (100, 15)), buffer("y", (100, 20), Space.OUTPUT))
    (stage,) = features(kernel).phases[0].stages
    assert stage.vectors == 200
    assert stage.accesses.masked == pytest.approx(200 * 15 / 20)


def test_lanes_far_apart_meet_the_pages_of_neighbours_again():
    """A convolution's kernel with channels last: the next element of each of 128 rows lies on its page."""
    h, i, o = Symbol("i0", 9), Symbol("i1", 100), Symbol("i2", 128)
    body = [Load(0, F32, "x", of(o) * 1152 + of(i) * 9 + of(h)), Store("y", of(h) * 12800 + of(i) * 128 + of(o), 0)]
    kernel = program((h, i, o), body, buffer("x", (128, 1152)), buffer("y", (9, 100, 128), Space.OUTPUT))
    (stage,) = features(kernel).phases[0].stages
    assert stage.far_walks == (FarWalk(9 * 100 * 128, 128, write=False),)
    assert not stage.transposes


def test_squares_that_are_transposed_wait_for_their_lines():
    i, j = Symbol("i0", 512), Symbol("i1", 512)
    body = [Load(0, F32, "x", of(j) * 512 + of(i)), Store("y", of(i) * 512 + of(j), 0)]
    kernel = program((i, j), body, buffer("x", (512, 512)), buffer("y", (512, 512), Space.OUTPUT))
    model = CpuTarget(server(1)).cost_model()
    told = model.features(KernelFacts(kernel))
    assert told.phases[0].stages[0].transposes
    price = model.breakdown(told)
    assert price.us == pytest.approx(price.memory + price.compute + price.overhead)
