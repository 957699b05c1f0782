"""Costly sides of choices: what they alone need, in which order, and what stays where it is."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir import dtypes
from autofuse.ir.index import Symbol, of
from autofuse.lower.lowering import lower
from autofuse.lower.raresides import RareSide, with_rare_sides
from autofuse.lower.rewrite import operands
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Constant, Effect, Load, Map, Store
from autofuse.lower.tile import RowGroup
from autofuse.passes.pipeline import clean

F32 = np.float32
X = np.linspace(-2, 2, 40).astype(F32)
ROW = of(Symbol("i", 40))


def costly_of(x):
    return np.exp(x) * np.sin(x) * np.tanh(x)


def body_of(function, *arguments):
    """The only stage of a function of elements."""
    atoms = AtomGraph(clean(af.trace(function, *arguments)))
    outputs = tuple(dict.fromkeys(atoms.graph.outputs))
    program = lower(atoms.candidate(frozenset(atoms.atoms), outputs), Schedule(), "kernel")
    ((step,),) = (phase.steps for phase in program.phases())
    assert isinstance(step, RowGroup)
    (stage,) = step.stages
    return stage.body


def sides(body, varies=lambda _: True):
    return [item for item in with_rare_sides(body, varies) if isinstance(item, RareSide)]


def opcodes(side):
    return [s.opcode for s in side.inside if hasattr(s, "opcode")]


def test_a_costly_side_is_taken_out():
    body = body_of(lambda x: np.where(x > 1, costly_of(x), x + 1), X)
    (side,) = sides(body)
    assert side.where
    assert sorted(opcodes(side)) == ["exp", "multiply", "multiply", "sin", "tanh"]


def test_of_two_costly_sides_the_costlier_one_is():
    body = body_of(lambda x: np.where(x > 1, np.tanh(x) * np.sin(x) * np.log1p(x), np.exp(x * x) * np.cos(x)), X)
    (side,) = sides(body)
    assert "log1p" in opcodes(side)
    assert "cos" not in opcodes(side)


def test_cheap_sides_stay():
    body = body_of(lambda x: np.where(x > 1, x * x, x + 1), X)
    assert with_rare_sides(body, lambda _: True) is body


def test_what_others_need_stays():
    def shared(x):
        costly = costly_of(x)
        return np.where(x > 1, costly, x + 1), costly

    body = body_of(shared, X)
    assert not sides(body)


def test_choices_by_one_condition_share_a_branch():
    def two(x):
        costly = costly_of(x)
        return np.where(x > 1, costly, x + 1), np.where(x > 1, costly * 2, x - 1)

    (side,) = sides(body_of(two, X))
    assert len(side.selects) == 2


def test_a_condition_that_needs_the_side_is_no_branch():
    def own(x):
        costly = costly_of(x)
        return np.where(costly > 1, costly, x)

    assert not sides(body_of(own, X))


def test_choices_that_wait_for_one_another_stay():
    def chained(x):
        first = np.where(x > 1, costly_of(x), x)
        return np.where(x > 1, costly_of(first), first + 1)

    body = body_of(chained, X)
    items = with_rare_sides(body, lambda _: True)
    results = {s.result for s in body if not isinstance(s, Effect)}
    done = set()
    for item in items:
        for statement in (*item.inside, *item.selects) if isinstance(item, RareSide) else (item,):
            assert {n for n in operands(statement) if n in results} <= done
            if not isinstance(statement, Effect):
                done.add(statement.result)
    assert done == results


def test_what_all_lanes_share_is_left_before_the_branch():
    def scaled(x, k):
        return np.where(x > 1, costly_of(x) * np.tan(k), x)

    body = body_of(scaled, X, F32(0.3))
    shared = {s.result for s in body if getattr(s, "opcode", "") == "tan"}
    (side,) = sides(body, lambda number: number not in shared)
    assert "tan" not in opcodes(side)


def stored_and_chosen(first: Store, second: Load):
    """A body in which a store, or what it is made of, stands before a choice that has all that a side alone needs."""
    costly = [Map(n, dtypes.F32, "tanh", (n - 1,)) for n in range(3, 13)]
    return [
        Constant(0, dtypes.F32, 0.0),
        Constant(1, dtypes.BOOL, True),
        second,
        first,
        *costly,
        Map(20, dtypes.F32, "select", (1, 12, 0)),
        Store("y", ROW, 20),
    ]


def test_what_is_loaded_of_an_array_that_changes_is_loaded_where_it_was():
    body = stored_and_chosen(Store("state", of(Symbol("j", 40)), 0), Load(2, dtypes.F32, "state", ROW))
    items = with_rare_sides(body, lambda _: True)
    (side,) = [item for item in items if isinstance(item, RareSide)]
    assert opcodes(side) == ["tanh"] * 10
    assert items.index(body[2]) < items.index(body[3])


def test_what_is_loaded_is_loaded_before_a_store_that_may_replace_it():
    """The output `z` may have the memory of `x`."""
    body = stored_and_chosen(Store("z", ROW, 0), Load(2, dtypes.F32, "x", ROW))
    items = with_rare_sides(body, lambda _: True)
    assert any(isinstance(item, RareSide) for item in items)
    assert items.index(body[2]) < items.index(body[3])


def test_what_no_store_replaces_is_loaded_in_the_branch():
    body = stored_and_chosen(Store("z", of(Symbol("j", 40)), 0), Load(2, dtypes.F32, "x", ROW))
    (side,) = sides(body)
    assert side.inside[0] is body[2]


@pytest.mark.parametrize("seed", range(40))
def test_random_bodies_keep_every_statement_behind_what_it_needs(seed):
    rng = np.random.default_rng(seed)
    script = rng.integers(0, 1000, 14).tolist()

    def program(x, y):
        values = [x, y, x + y]
        masks = [x > y, x * y > 1]
        for n in script:
            a, b = values[n % len(values)], values[(n // 5) % len(values)]
            made = (costly_of(a) * np.sin(b), np.where(masks[n % 2], a, b), a - b, np.cos(a) * np.tanh(b) + a)[n % 4]
            values.append(made)
        return tuple(values[-4:])

    body = body_of(program, X, X[::-1].copy())
    items = with_rare_sides(body, lambda _: True)
    flat = [s for i in items for s in ((*i.inside, *i.selects) if isinstance(i, RareSide) else (i,))]
    assert sorted(map(repr, flat)) == sorted(map(repr, body))
    results = {s.result for s in body if not isinstance(s, Effect)}
    done, hidden = set(), set()
    for item in items:
        parts = (*item.inside, *item.selects) if isinstance(item, RareSide) else (item,)
        for statement in parts:
            read = {n for n in operands(statement) if n in results}
            assert read <= done
            assert isinstance(item, RareSide) or read.isdisjoint(hidden)
            if not isinstance(statement, Effect):
                done.add(statement.result)
        if isinstance(item, RareSide):
            hidden.update(s.result for s in item.inside)
