"""Loops that change what only Python has are unrolled, and the plan's notes say so."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(7)


def stacked(z):
    x, p, out = 0.0, 1.0, []
    for k in range(z.shape[0]):
        p = p + 0.01
        x = x + p * (z[k] - x)
        out.append(x)
    return np.array(out)


def states(x):
    h = np.zeros(4)
    all_of_them, norms = [h], []
    for row in x.reshape(-1, 4):
        h = np.tanh(h + row)
        all_of_them.append(h)
        norms.append(np.sqrt(h @ h))
    return np.stack(all_of_them), np.array(norms), all_of_them[-1] + all_of_them[3], sum(norms)


def in_turns(x):
    out = [0.0]
    for i in range(20):
        out.append(x[i] * 2)
        out.append(i * 0.5)
    out[3] = 7.0
    return np.array(out)


def lists_of_lists(x):
    rows = []
    for i in range(20):
        row = []
        for j in range(20):
            row.append(x[i] * j)
        rows.append(np.array(row).sum())
    return np.array(rows)


def rows_written(x):
    rows = []
    for row in x.reshape(-1, 4):
        rows.append(row * 2)
    rows[3][:] = 1
    for row in rows:
        row += 1
    return np.array(rows)


@pytest.mark.parametrize("program", [stacked, states, in_turns, lists_of_lists, rows_written])
def test_what_iterations_append_is_stacked(program) -> None:
    assert loops(agree(program, RNG.random(80)))
    x = RNG.random(80)
    plan, own = af.compile(program, x), program(x)
    both = zip(plan(x), own, strict=True) if isinstance(own, tuple) else [(plan(x), own)]
    for got, wanted in both:
        np.testing.assert_allclose(got, wanted)


def written_behind(x):
    rows, before, a, b = [], [], [], []
    h = x[:4]
    for i in range(20):
        before.append(h)
        h = np.tanh(h + x[i])
        rows.append(h)
        t = x[i : i + 4] * 2
        a.append(t)
        b.append(t)
    rows[3][0] = before[7][1] = 5
    rows[-1][2], h[0], before[0][1], a[4][:] = 9, 4, 8, 7
    t += 1
    return np.array(rows), np.array(before), np.array(a), np.array(b), h, t, x


def test_objects_of_several_names_stay_one() -> None:
    assert loops(agree(written_behind, RNG.random(80))) == ["scan 20"]


def test_states_in_turn_are_their_stack() -> None:
    def trajectory(x):
        states, h = [], x[0] * 2
        for i in range(20):
            states.append(h)
            h = np.tanh(h + x[i])
        return np.array(states)

    graph = agree(trajectory, RNG.random((20, 4))).graph
    assert "concatenate" not in {node.op for node in graph.nodes}


def views(x):
    rows = []
    for row in x.reshape(20, -1):
        rows.append(row)
    x[:] = 0
    return np.array(rows)


def one_array(x):
    rows, y = [], x[:3] * 2
    for _ in range(20):
        rows.append(y)
    y += 5
    return np.array(rows)


def view_of_another(x):
    a, b = [], []
    for i in range(20):
        t = x[i : i + 3] * 2
        a.append(t)
        b.append(t[::-1])
    a[3][:] = x[:3]
    return np.array(b)


def the_state_itself(x):
    rows, s = [], np.zeros(3)
    for i in range(20):
        s += x[i]
        rows.append(s)
    return np.array(rows)


@pytest.mark.parametrize("program", [views, one_array, view_of_another, the_state_itself])
def test_appended_arrays_that_others_see_are_written_through(program) -> None:
    agree(program, RNG.random(80))


def two_names(x):
    out = [x[0]]
    other = out
    for i in range(20):
        out.append(x[i] + len(other))
    return np.array(out)


def seen_by_a_function(x):
    out = [x[0]]

    def count():
        return len(out)

    for i in range(20):
        out.append(x[i] + count())
    return np.array(out)


def in_another_list(x):
    out = [x[0]]
    held = [out]
    for i in range(20):
        out.append(x[i] + len(held[0]))
    return np.array(out)


@pytest.mark.parametrize("program", [two_names, seen_by_a_function, in_another_list])
def test_lists_that_something_else_may_read_are_pythons(program) -> None:
    assert loops(agree(program, RNG.random(20))) == []


def inserted(x):
    rows = []
    for i in range(20):
        rows.insert(0, x[i] * 2)
        x[i] = len(rows)
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
    weights = [1.0, "2", 3.0, 4] * 5
    s = 0.0
    for i in range(20):
        s = s + x[i] * float(weights[i])
    return s


@pytest.mark.parametrize(
    "program",
    [inserted, table, left_early, iterator, pulled, caught, closures, chosen_from_a_list],
    ids=lambda program: program.__name__,
)
def test_python_state_that_changes_is_unrolled(program) -> None:
    assert loops(agree(program, RNG.random(20))) == []


def test_attributes_that_the_first_iteration_adds_are_state_behind_it() -> None:
    assert loops(agree(attribute, RNG.random(20))) == ["scan 19"]


def test_variables_that_an_inner_function_binds_are_state() -> None:
    assert loops(agree(outer_variable, RNG.random(20))) == ["scan 20"]


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
    rolled = agree(inserted, RNG.random(20))
    line = inserted.__code__.co_firstlineno + 2
    assert f"test_unrolled_loops.py:{line} in inserted: 20 iterations were traced one by one" in rolled.loops[0]
    assert "rows has another length" in rolled.loops[0]

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
