"""Loops that change what only Python has are unrolled, and the plan's notes say so."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(7)


def appended(x):
    rows = []
    for i in range(20):
        rows.append(x[i] * 2)
    return np.array(rows)


def table(x):
    seen = {}
    for i in range(20):
        seen[i % 3] = x[i]
    return seen[0], seen[1], seen[2]


def attribute(x):
    class Box:
        total = 0.0

    box = Box()
    for i in range(20):
        box.total = box.total + x[i]
    return box.total


def outer_variable(x):
    count = 0

    def step(i):
        nonlocal count
        count += i
        return x[i] * count

    s = 0.0
    for i in range(20):
        s = s + step(i)
    return s


def left_early(x):
    s = 0.0
    for i in range(20):
        s = s + x[i]
        if i == 7:
            break
    return s


def iterator(x):
    numbers = iter(range(100))
    s = 0.0
    for i in range(20):
        s = s + x[i] * next(numbers)
    return s


def pulled(x):
    numbers = (2.0 * k for k in range(100))
    s = 0.0
    for i in range(20):
        s = s + x[i] * sum(value for value, _ in zip(numbers, range(2), strict=False))
    return s


def caught(x):
    s = 0.0
    for i in range(20):
        try:
            s = s + x[i + 5]
        except IndexError:
            s = s + 1.0
    return s


def closures(x):
    functions = []
    for i in range(20):
        functions.append(lambda i=i: x[i] * i)
    return sum(function() for function in functions)


def chosen_from_a_list(x):
    weights = [1.0, 2.0, 3.0, 4.0] * 5
    s = 0.0
    for i in range(20):
        s = s + x[i] * weights[i]
    return s


@pytest.mark.parametrize(
    "program",
    [appended, table, attribute, outer_variable, left_early, iterator, pulled, caught, closures, chosen_from_a_list],
    ids=lambda program: program.__name__,
)
def test_python_state_that_changes_is_unrolled(program) -> None:
    assert loops(agree(program, RNG.random(20))) == []


def test_lists_made_in_an_iteration_may_grow_in_it() -> None:
    def local(x):
        out = np.zeros(20)
        for i in range(20):
            parts = []
            for k in range(3):
                parts.append(x[i] * k)
            out[i] = np.sum(np.array(parts))
        return out

    assert loops(agree(local, RNG.random(20))) == ["scan 20"]


def test_notes_say_what_became_of_loops_and_why() -> None:
    rolled = agree(appended, RNG.random(20))
    line = appended.__code__.co_firstlineno + 2
    assert f"test_unrolled_loops.py:{line} in appended: 20 iterations were traced one by one" in rolled.loops[0]
    assert "list.append" in rolled.loops[0]

    def steps(x):
        for _ in range(1000):
            x = np.cos(x)
        return x

    plan = af.compile(steps, np.ones(4))
    assert "1000 iterations became a loop" in plan.explain()
    off = af.compile(lambda x: steps_of(x, 20), np.ones(4), roll=False)
    assert "became a loop" not in off.explain()


def steps_of(x, n):
    for _ in range(n):
        x = np.cos(x)
    return x
