"""Conditional loads and stores: masks where they must be, loops cut in parts where they can be."""

import math

import numpy as np
import pytest

from autofuse.ir.dtypes import BF16, BOOL, F32, F64, I32, I64, U8, U32, U64
from autofuse.ir.index import Element, Symbol, of
from autofuse.ir.pieces import Condition
from autofuse.lower.rewrite import statements
from autofuse.lower.statements import Constant, Load, Map, Position, Reduce, Store
from autofuse.lower.statements import Test as When
from autofuse.targets.cpu.passes.narrowing import narrow_values
from tests.fixtures.tilekernels import generated
from tests.fixtures.tileprograms import buffers, check, engine, phase, program, stage


def nested(built, lane):
    """A two-dimensional phase with its lane in the stage, in the grid, or none at all."""
    (a, i), body = built
    if lane == "stage":
        return phase([a], stage(*body, over=[i], vectorised=i))
    return phase([a, i], stage(*body), vectorised=i if lane == "grid" else None)


LANES = pytest.mark.parametrize("lane", ["stage", "grid", "none"])


@LANES
@pytest.mark.parametrize("dtype", [F32, BF16, BOOL, U8], ids=str)
@pytest.mark.parametrize("columns", [3, 20, 150])
def test_pad_on_every_side(lane, dtype, columns):
    a, i = Symbol("a", 7), Symbol("i0", columns + 5)
    body = (
        Constant(0, dtype, 1),
        When(1, (Condition(of(a), 2, 6), Condition(of(i), 1, columns + 1))),
        Load(2, dtype, "x", (of(a) - 2) * columns + of(i) - 1, mask=1, fill=0),
        Store("y", of(a) * (columns + 5) + of(i), 2),
    )
    listed = buffers(f"x={dtype}[4,{columns}]", f"y={dtype}[7,{columns + 5}]")
    check(program("pad", listed, nested(((a, i), body), lane)), exact=True)


@LANES
def test_interior_padding_tests_divisibility(lane):
    a, i = Symbol("a", 3), Symbol("i0", 118)
    at = of(a) * 40 + of(i) // 3
    body = (
        Constant(0, F32, -1.0),
        When(1, (Condition(of(i), 0, 118, 3, 0),)),
        Load(2, F32, "x", at, mask=1, fill=0),
        Store("y", of(a) * 118 + of(i), 2),
    )
    check(program("spread", buffers("x=f32[3,40]", "y=f32[3,118]"), nested(((a, i), body), lane)), exact=True)


def concatenated(axis):
    """Three parts joined along an axis; each part is loaded only where it is."""
    extents = [(7, 50), (7, 33), (7, 64)] if axis == 1 else [(3, 61), (1, 61), (9, 61)]
    total = sum(e[axis] for e in extents)
    a, i = (Symbol("a", 7), Symbol("i0", total)) if axis == 1 else (Symbol("a", total), Symbol("i0", 61))
    along, body, start, value = (i if axis == 1 else a), [Constant(0, F32, 0.0)], 0, 0
    for number, (rows, columns) in enumerate(extents):
        size = (rows, columns)[axis]
        row, column = (of(a), of(i) - start) if axis == 1 else (of(a) - start, of(i))
        test, loaded, chosen = (10 * number + n for n in (1, 2, 3))
        body += [
            When(test, (Condition(of(along), start, start + size),)),
            Load(loaded, F32, "xyz"[number], row * columns + column, mask=test, fill=0),
            Map(chosen, F32, "select", (test, loaded, value)),
        ]
        start, value = start + size, chosen
    body.append(Store("w", of(a) * i.extent + of(i), value))
    shapes = [f"{n}=f32[{r},{c}]" for n, (r, c) in zip("xyz", extents, strict=True)]
    return buffers(" ".join(shapes), f"w=f32[{a.extent},{i.extent}]"), ((a, i), body)


@LANES
@pytest.mark.parametrize("axis", [0, 1])
def test_concatenate(lane, axis):
    listed, built = concatenated(axis)
    check(program("join", listed, nested(built, lane)), exact=True)


@pytest.mark.parametrize("lane", ["stage", "grid"])
def test_concatenate_leaves_no_mask_but_in_tails(lane):
    listed, built = concatenated(1)
    code = generated(program("join", listed, nested(built, lane)), engine().machine)
    calls = [line for line in code.ir.splitlines() if "call" in line and "masked.load" in line]
    assert len(calls) <= 3, "one masked tail per part"
    assert "select <" not in code.ir


@LANES
def test_conditions_on_two_loops_at_once_stay_masks(lane):
    """The lower triangle."""
    a, i = Symbol("a", 9), Symbol("i0", 70)
    body = (
        Constant(0, F32, 0.0),
        When(1, (Condition(of(a) * 8 - of(i), 0, 1000),)),
        Load(2, F32, "x", of(a) * 70 + of(i), mask=1, fill=0),
        Store("y", of(a) * 70 + of(i), 2),
    )
    check(program("tril", buffers("x=f32[9,70]", "y=f32[9,70]"), nested(((a, i), body), lane)), exact=True)


@LANES
def test_masked_stores_share_an_output(lane):
    """Even elements come from one store, odd ones from another."""
    a, i = Symbol("a", 4), Symbol("i0", 75)
    at = of(a) * 75 + of(i)
    body = (
        When(0, (Condition(of(i), 0, 75, 2, 0),)),
        When(1, (Condition(of(i), 0, 75, 2, 1),)),
        Load(2, F32, "x", at),
        Map(3, F32, "negate", (2,)),
        Store("y", at, 2, mask=0),
        Store("y", at, 3, mask=1),
    )
    check(program("weave", buffers("x=f32[4,75]", "y=f32[4,75]"), nested(((a, i), body), lane)), exact=True)


@LANES
def test_a_store_of_one_iteration_only(lane):
    """The last column goes to an output of its own."""
    a, i = Symbol("a", 5), Symbol("i0", 50)
    body = (
        When(0, (Condition(of(i), 49, 50),)),
        Load(1, F32, "x", of(a) * 50 + of(i)),
        Store("y", of(a) * 50 + of(i), 1),
        Store("last", of(a), 1, mask=0),
    )
    listed = buffers("x=f32[5,50]", "y=f32[5,50] last=f32[5]")
    check(program("last", listed, nested(((a, i), body), lane)), exact=True)


@LANES
@pytest.mark.parametrize("start", [-3, 0, 11, 40])
def test_dynamic_update_slice_where_the_start_is_read(lane, start):
    a, i = Symbol("a", 3), Symbol("i0", 60)
    first = of(Element(0, (), 0, 40))
    at = of(a) * 60 + of(i)
    body = (
        Load(0, I32, "start", of(0)),
        When(1, (Condition(of(i) - first, 0, 20),)),
        Load(2, F32, "x", at),
        Load(3, F32, "u", of(a) * 20 + of(i) - first, mask=1, fill=2),
        Store("y", at, 3),
    )
    listed = buffers("x=f32[3,60] u=f32[3,20] start=i32[]", "y=f32[3,60]")
    generator = np.random.default_rng(0)
    inputs = {n: generator.standard_normal(s).astype(np.float32) for n, s in (("x", (3, 60)), ("u", (3, 20)))}
    inputs["start"] = np.array(start, np.int32)
    check(program("update", listed, nested(((a, i), body), lane)), inputs, exact=True)


@pytest.mark.parametrize("lane", ["stage", "grid"])
def test_reduction_over_a_padded_row(lane):
    """Parts of a cut loop feed one accumulator."""
    a, k = Symbol("a", 21), Symbol("k0", 140)
    reduction = (
        Constant(0, F32, 2.0),
        When(1, (Condition(of(k), 3, 133),)),
        Load(2, F32, "x", of(a) * 130 + of(k) - 3, mask=1, fill=0),
        Reduce(3, F32, "add", 2),
    )
    own = k if lane == "stage" else None
    stages = stage(*reduction, over=[k], vectorised=own), stage(Store("y", of(a), 3))
    listed = buffers("x=f32[21,130]", "y=f32[21]")
    check(program("padsum", listed, phase([a], *stages, vectorised=a if lane == "grid" else None)))


@LANES
def test_a_stencil_reads_its_neighbours(lane):
    a, i = Symbol("a", 6), Symbol("i0", 90)
    body, total = [Constant(0, F32, 0.0)], 0
    for number, (da, di) in enumerate([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]):
        test, loaded, added = (10 * number + n for n in (1, 2, 3))
        body += [
            When(test, (Condition(of(a) + da, 0, 6), Condition(of(i) + di, 0, 90))),
            Load(loaded, F32, "x", (of(a) + da) * 90 + of(i) + di, mask=test, fill=0),
            Map(added, F32, "add", (total, loaded)),
        ]
        total = added
    body.append(Store("y", of(a) * 90 + of(i), total))
    check(program("stencil", buffers("x=f32[6,90]", "y=f32[6,90]"), nested(((a, i), body), lane)), exact=True)


def test_too_many_parts_fall_back_to_masks():
    i = Symbol("i0", 400)
    body, total = [Constant(0, F32, 0.0)], 0
    for number in range(30):
        test, loaded, added = (10 * number + n for n in (1, 2, 3))
        body += [
            When(test, (Condition(of(i), 10 * number, 10 * number + 90),)),
            Load(loaded, F32, "x", of(i) - 10 * number, mask=test, fill=0),
            Map(added, F32, "add", (total, loaded)),
        ]
        total = added
    body.append(Store("y", of(i), total))
    check(program("many", buffers("x=f32[90]", "y=f32[400]"), phase([i], stage(*body), vectorised=i)), exact=True)


@pytest.mark.parametrize("rows", [64, 1000, 4133])
def test_a_stack_of_few_results_is_spread_over_rows(rows):
    """z = stack([sin(x), cos(x), x * y], axis=-1): three lanes would be mostly idle."""
    a, i = Symbol("a", rows), Symbol("i0", 3)
    body = [
        Load(0, F32, "x", of(a)),
        Load(1, F32, "y", of(a)),
        Map(2, F32, "sin", (0,)),
        Map(3, F32, "cos", (0,)),
        Map(4, F32, "multiply", (0, 1)),
        When(5, (Condition(of(i), 0, 1),)),
        When(6, (Condition(of(i), 1, 2),)),
        Map(7, F32, "select", (6, 3, 4)),
        Map(8, F32, "select", (5, 2, 7)),
        Store("z", of(a) * 3 + of(i), 8),
    ]
    listed = buffers(f"x=f32[{rows}] y=f32[{rows}]", f"z=f32[{rows},3]")
    built = program("stack", listed, phase([a, i], stage(*body), vectorised=i))
    check(built)
    lanes = engine().machine.vector_bits // 32
    assert f"<{lanes} x float>" in generated(built, engine().machine).ir


@LANES
@pytest.mark.parametrize("opcode", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_of_positions(lane, opcode):
    """where(i OP 2*j - 5, x, 0) with 64-bit positions, as a causal mask is written."""
    a, i = Symbol("a", 30), Symbol("i0", 75)
    body = (
        Position(0, I32, of(i)),
        Map(1, I64, "convert", (0,)),
        Position(2, I64, of(a)),
        Constant(3, I64, 2),
        Map(4, I64, "multiply", (2, 3)),
        Constant(5, I64, 5),
        Map(6, I64, "subtract", (4, 5)),
        Map(7, BOOL, opcode, (1, 6)),
        Load(8, F32, "x", of(a) * 75 + of(i)),
        Constant(9, F32, 0.0),
        Map(10, F32, "select", (7, 8, 9)),
        Store("y", of(a) * 75 + of(i), 10),
    )
    built = program("mask", buffers("x=f32[30,75]", "y=f32[30,75]"), nested(((a, i), body), lane))
    check(built, exact=True)
    if opcode != "ne" and lane != "none":
        assert f"<{engine().machine.vector_bits // 32} x float>" in generated(built, engine().machine).ir


def test_positions_that_wrap_stay_arithmetic():
    """An unsigned byte counts modulo 256."""
    i = Symbol("i0", 600)
    body = (
        Position(0, U8, of(i)),
        Constant(1, U8, 200),
        Map(2, BOOL, "lt", (0, 1)),
        Store("y", of(i), 2),
    )
    check(program("wrap", buffers("", "y=bool[600]"), phase([i], stage(*body), vectorised=i)), exact=True)


@pytest.mark.parametrize(("yes", "no"), [(10.0, -10.0), (0.1, 1e300), (math.nan, -0.0)])
def test_a_choice_between_wide_numbers_is_made_in_the_narrow_type(yes, no):
    """`where(x < 1, 0.1, ...).astype(f32)`: no value takes 64 bits, so vectors hold as many floats as can be."""
    i = Symbol("i0", 100)
    body = (
        Load(0, F32, "x", of(i)),
        Constant(1, F32, 1.0),
        Map(2, BOOL, "lt", (0, 1)),
        Constant(3, F64, yes),
        Constant(4, F64, no),
        Map(5, F64, "select", (2, 3, 4)),
        Map(6, F32, "convert", (5,)),
        Map(7, F32, "multiply", (6, 0)),
        Store("y", of(i), 7),
    )
    tested = program("choice", buffers("x=f32[100]", "y=f32[100]"), phase([i], stage(*body), vectorised=i))
    check(tested, exact=True)
    assert "double" not in generated(tested, engine().machine).ir


@pytest.mark.parametrize(
    ("narrow", "wide", "kept"), [(I32, I64, False), (U8, I64, False), (I32, U64, True), (U32, I32, True)], ids=str
)
@pytest.mark.parametrize("opcode", ["eq", "lt", "ge"])
def test_widened_integers_are_compared_as_they_were(opcode, narrow, wide, kept):
    """Where widening keeps every value; a negative number that becomes an unsigned one does not."""
    i = Symbol("i0", 90)
    body = (
        Load(0, narrow, "x", of(i)),
        Load(1, narrow, "y", of(i)),
        Map(2, wide, "convert", (0,)),
        Map(3, wide, "convert", (1,)),
        Map(4, BOOL, opcode, (2, 3)),
        Store("z", of(i), 4),
    )
    tested = program(
        "order", buffers(f"x={narrow}[90] y={narrow}[90]", "z=bool[90]"), phase([i], stage(*body), vectorised=i)
    )
    check(tested, exact=True)
    maps = [s for p in narrow_values(tested).phases() for _, s in statements(p.steps) if isinstance(s, Map)]
    assert any(s.opcode == "convert" for s in maps) == kept
