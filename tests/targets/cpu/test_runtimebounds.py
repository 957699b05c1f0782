"""Loops that end where a mask does whose limit is read from memory: they compute what the whole loops would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autofuse.ir.dtypes import BOOL, F64, I64
from autofuse.ir.index import Affine, Symbol, of
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.statements import Constant, Load, Map, Position, Reduce, Store
from autofuse.lower.tile import Space
from tests.fixtures.tilekernels import Kernel
from tests.fixtures.tileprograms import buffers, compare, engine, phase, program, stage

LIMITS = (-(2**63) + 1, -3, 0, 1, 2, 8, 29, 30, 31, 32, 41, 42, 44, 2**63 - 1)
ORDERS = ("lt", "le", "gt", "ge")
ROWS, COLUMNS = 30, 41


def compared(position, order, swapped):
    """`position order limit` as scalar 2, of scalars 0 and 1; the limit is one less than what is read."""
    return (
        Position(0, I64, position),
        Load(10, I64, "k", Affine()),
        Constant(11, I64, 1),
        Map(1, I64, "subtract", (10, 11)),
        Map(2, BOOL, order, (1, 0) if swapped else (0, 1)),
    )


def given(limit):
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    return {"k": np.array(limit), "x": x}


def agree(tested):
    """Whatever the limit is, and wherever the work is split, the kernel gives what the program means."""
    kernel = Kernel(tested, engine())
    for limit in LIMITS:
        expected = evaluate_program(tested, given(limit))["y"]
        for parts in (1, 3):
            compare(kernel.run(given(limit), parts)["y"], expected, F64)
    assert str(1 << 60) in kernel.unit, "no limit is computed"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("lanes", "turned"), [("stage", False), ("grid", True), ("none", False)])
def test_sums_of_what_lies_within(order, lanes, turned):
    i, k = Symbol("i0", ROWS), Symbol("k0", COLUMNS)
    place = of(k) * -1 + (COLUMNS - 1) if turned else of(k) - 2
    body = (
        *compared(place, order, turned),
        Load(3, F64, "x", of(i) * COLUMNS + of(k)),
        Constant(4, F64, 0.0),
        Map(5, F64, "select", (2, 3, 4)),
        Reduce(6, F64, "add", 5),
    )
    summed = stage(*body, over=[k], vectorised=k if lanes == "stage" else None)
    listed = buffers(f"k=i64[] x=f64[{ROWS},{COLUMNS}]", f"y=f64[{ROWS}]")
    grid = phase([i], summed, stage(Store("y", of(i), 6)), vectorised=i if lanes == "grid" else None)
    agree(program("sums", listed, grid))


@pytest.mark.parametrize(("order", "swapped"), [("lt", True), ("ge", False)])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_or_columns_that_are_computed(order, axis, swapped):
    """A stage that only one side of a choice needs, on grid points that are lanes, or walked one by one."""
    i, j, k = Symbol("i0", ROWS), Symbol("i1", COLUMNS), Symbol("k0", ROWS)
    place = of(i) if axis == 0 else of(j)
    summed = stage(Load(20, F64, "x", of(k) * COLUMNS + of(j)), Reduce(21, F64, "add", 20), over=[k])
    chosen = stage(
        *compared(place, order, swapped),
        Load(3, F64, "x", of(i) * COLUMNS + of(j)),
        Map(5, F64, "select", (2, 21, 3)),
        Store("y", of(i) * COLUMNS + of(j), 5),
    )
    listed = buffers(f"k=i64[] x=f64[{ROWS},{COLUMNS}]", f"y=f64[{ROWS},{COLUMNS}]")
    agree(program("chosen", listed, phase([i, j], summed, chosen, vectorised=j)))


@pytest.mark.parametrize("order", ["le", "gt"])
def test_stores_of_what_changes(order):
    i, j = Symbol("i0", ROWS), Symbol("i1", COLUMNS)
    at = of(i) * COLUMNS + of(j)
    body = (*compared(of(j), order, swapped=False), Load(3, F64, "x", at), Map(4, F64, "negate", (3,)))
    listed = buffers(f"k=i64[] x=f64[{ROWS},{COLUMNS}]", f"y=f64[{ROWS},{COLUMNS}]")
    listed = tuple(replace(b, holds="x") if b.space is Space.OUTPUT else b for b in listed)
    agree(program("stores", listed, phase([i, j], stage(*body, Store("y", at, 4, mask=2)), vectorised=j)))
