"""Loops after clean-up: what they compute is what they computed, and less of it is state."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.graphtext import print_graph
from autofuse.ir.interpreter import interpret
from autofuse.passes.pipeline import clean


def _traced(function, *arrays):
    return af.trace(function, *arrays)


def _cleaned(function, *arrays):
    """The graph before and after; both compute the same bits, and cleaning again changes nothing."""
    graph = _traced(function, *arrays)
    after = clean(graph)
    for before, now in zip(interpret(graph, *arrays), interpret(after, *arrays), strict=True):
        np.testing.assert_array_equal(before, now, strict=True)
    assert print_graph(clean(after)) == print_graph(after)
    return after


def _loops(graph):
    return [node for node in graph.nodes if node.regions]


def _only_loop(graph):
    (node,) = _loops(graph)
    return node


def _ops(graph):
    return [node.op for node in graph.nodes]


X = np.random.default_rng(3).standard_normal((10, 4)).astype(np.float32)


def _counted(start, holds, step, dtype=np.int32):
    """A `while` with a counter; its sum and its last counter."""

    def loop(x):
        def body(state):
            i, total = state
            return i + dtype(step), total + x[i % dtype(10)] * i.astype(np.float32)

        return af.while_loop(lambda state: holds(state[0]), body, (dtype(start), np.zeros(4, np.float32)))

    return loop


@pytest.mark.parametrize(
    ("start", "holds", "step", "length"),
    [
        (0, lambda i: i < 10, 1, 10),
        (0, lambda i: np.int32(10) > i, 3, 4),
        (2, lambda i: i <= 9, 1, 8),
        (9, lambda i: i > 0, -1, 9),
        (9, lambda i: i >= 0, -4, 3),
        (0, lambda i: i != 9, 3, 3),
        (8, lambda i: i != -1, -3, 3),
    ],
)
def test_a_while_that_a_counter_ends_is_a_scan(start, holds, step, length):
    after = _cleaned(_counted(start, holds, step), X)
    loop = _only_loop(after)
    assert loop.op == "scan"
    assert loop.attrs["length"] == length
    assert loop.attrs["carries"] == 1, "the counter is no state"


def test_a_while_that_never_runs_is_gone():
    after = _cleaned(_counted(5, lambda i: i < 5, 1), X)
    assert not _loops(after)


@pytest.mark.parametrize(
    ("start", "holds", "step"),
    [
        (0, lambda i: i != 10, 3),  # wraps around before it stops
        (120, lambda i: i < 127, 3),  # 126 + 3 is no int8
        (0, lambda i: i == 0, 1),  # once; no order says so
    ],
)
def test_a_counter_that_wraps_around_stays_a_while(start, holds, step):
    def loop(x):
        return af.while_loop(
            lambda s: (s[0] < np.int8(100)) & holds(s[0]) if start == 0 else holds(s[0]),
            lambda s: (s[0] + np.int8(step), s[1] + x[0]),
            (np.int8(start), np.zeros(4, np.float32)),
        )

    graph = clean(_traced(loop, X))
    assert _only_loop(graph).op == "while"


def test_a_while_that_data_end_stays():
    def loop(x):
        return af.while_loop(lambda s: np.sum(s) < 100, lambda s: s + np.abs(x[1]), np.zeros(4, np.float32))

    after = _cleaned(loop, X)
    assert _only_loop(after).op == "while"


def test_what_is_handed_on_as_it_came_leaves_the_state():
    def loop(x):
        def body(state):
            i, total, scale = state
            return i + 1, total * scale, scale

        return af.while_loop(lambda s: np.sum(s[1]) < 1e6, body, (np.int32(0), np.abs(x[0]) + 1, np.abs(x[1]) + 2))

    after = _cleaned(loop, X)
    assert len(_only_loop(after).inputs) == 2


def test_what_no_result_needs_leaves_the_state():
    def loop(x):
        def step(carry, row):
            total, waste, more = carry
            return (total + row, waste * more, more + waste), (row * 2, waste)

        (total, _, _), (rows, _) = af.scan(step, (x[0], x[1], x[2]), x)
        return total, rows

    loop_ = _only_loop(_cleaned(loop, X))
    assert (loop_.attrs["carries"], len(loop_.outputs)) == (1, 2)


def test_state_that_another_part_needs_stays():
    def loop(x):
        return af.scan(lambda c, row: ((c[0] + c[1], c[1] + row), None), (x[0], x[1]), x)[0][0]

    assert _only_loop(_cleaned(loop, X)).attrs["carries"] == 2


def test_what_is_the_same_in_all_iterations_is_computed_before():
    def loop(x):
        def body(i, total):
            weights = np.sin(x[0] + np.arange(4, dtype=np.float32) * 2) @ np.exp(x[1])
            return total + weights * x[i]

        return af.fori_loop(0, 10, body, np.zeros(4, np.float32))

    after = _cleaned(loop, X)
    inside = _ops(_only_loop(after).regions[0])
    assert not {"sin", "exp", "dot_general", "iota"} & set(inside)
    assert {"sin", "exp"} <= set(_ops(after))


def test_constants_and_views_stay_inside():
    def loop(x, y):
        return af.fori_loop(
            0, 10, lambda i, total: total + np.broadcast_to(y, (4, 4)) * 3, np.zeros((4, 4), np.float32)
        )

    after = _cleaned(loop, X, X[0])
    assert _only_loop(after).regions[0].captures


def test_a_slice_at_the_counter_is_a_row():
    def loop(x):
        return af.fori_loop(0, 10, lambda i, total: total * x[i] + x[9 - i], np.ones(4, np.float32))

    body = _only_loop(_cleaned(loop, X)).regions[0]
    assert "dynamic_slice" not in _ops(body)
    assert not body.captures


def test_columns_and_every_other_row_are_rows():
    def loop(x):
        def body(i, total):
            return total + x[:, i][:3] * x[2 * i, 1] - x[i + 1, 3]

        return af.fori_loop(0, 4, body, np.zeros(3, np.float32))

    assert not _only_loop(_cleaned(loop, X)).regions[0].captures


def test_a_slice_that_would_be_clamped_stays():
    def loop(x):
        return af.fori_loop(5, 12, lambda i, total: total + x[i], np.zeros(4, np.float32))

    body = _only_loop(_cleaned(loop, X)).regions[0]
    assert "dynamic_slice" in _ops(body)


def test_equal_rows_are_read_as_one():
    def loop(x):
        return af.scan(lambda c, row: (c * row, None), x[0], np.broadcast_to(x[1], (7, 4)))[0]

    loop_ = _only_loop(_cleaned(loop, X))
    assert len(loop_.inputs) == 1


def _written(update, lower, upper):
    def loop(x):
        def body(i, a):
            a = a.copy()
            update(a, i)
            return a

        return af.fori_loop(lower, upper, body, x)

    return loop


def _set(a, at, value):
    a[at] = value


@pytest.mark.parametrize(
    ("name", "update", "lower", "upper", "carries"),
    [
        ("here", lambda a, i: _set(a, i, a[i] * 2 + 1), 0, 10, 0),
        ("ahead", lambda a, i: _set(a, i, a[i + 1] - a[i + 2]), 1, 8, 0),
        ("one behind", lambda a, i: _set(a, i, a[i - 1] * 0.5 + a[i]), 1, 10, 1),
        ("two behind", lambda a, i: _set(a, i, a[i - 2] - a[i - 1] * a[i + 1]), 2, 9, 2),
        ("downwards", lambda a, i: _set(a, 9 - i, a[9 - i + 1] + a[9 - i]), 1, 10, 1),
        ("downwards ahead", lambda a, i: _set(a, 9 - i, a[9 - i - 1] + 1), 0, 9, 0),
        ("a column", lambda a, i: _set(a, (slice(None), i), a[:, i - 1] + a[:, i]), 1, 4, 1),
        ("a part of a row", lambda a, i: _set(a, (i, slice(1, 3)), a[i - 1, 1:3] + a[i, 0]), 1, 10, 1),
        ("a row that is never written", lambda a, i: _set(a, i, a[9] + a[i]), 1, 9, 0),
    ],
)
def test_what_is_written_position_by_position_is_a_stack(name, update, lower, upper, carries):
    loop = _only_loop(_cleaned(_written(update, lower, upper), X))
    inside = _ops(loop.regions[0])
    assert "dynamic_update_slice" not in inside
    assert loop.attrs["carries"] >= carries


@pytest.mark.parametrize(
    ("name", "update", "lower", "upper"),
    [
        ("far behind", lambda a, i: _set(a, i, a[i - 9] + 1), 9, 10 + 9),
        ("a row that is written", lambda a, i: _set(a, i, a[5] + a[i]), 1, 9),
        ("all of it", lambda a, i: _set(a, i, a.sum(0)), 1, 9),
        ("another part of the row before", lambda a, i: _set(a, (i, slice(0, 2)), a[i - 1, 1:3]), 1, 9),
        ("turned around in the middle", lambda a, i: _set(a, i, a[9 - i]), 0, 10),
    ],
)
def test_an_array_that_is_read_otherwise_stays(name, update, lower, upper):
    x = np.concatenate([X, X]) if upper > 10 else X
    loop = _only_loop(_cleaned(_written(update, lower, upper), x))
    assert "dynamic_update_slice" in _ops(loop.regions[0])


def test_counters_of_a_reversed_scan_count_iterations():
    def loop(x):
        def step(carry, row):
            i, total = carry
            return (i + 2, total + row * i.astype(np.float32)), i

        return af.scan(step, (np.int32(3), x[0]), x, reverse=True)

    assert _only_loop(_cleaned(loop, X)).attrs["carries"] == 1


def test_a_counter_from_a_traced_number_is_no_state():
    def loop(x, first):
        def step(carry, row):
            i, total = carry
            return (i + np.uint8(3), total + row * i.astype(np.float32)), None

        return af.scan(step, (first, x[0]), x)[0]

    assert _only_loop(_cleaned(loop, X, np.array(250, np.uint8))).attrs["carries"] == 1


def test_nested_loops_are_simplified_from_the_inside():
    def loop(x):
        def outer(i, total):
            return af.fori_loop(0, 4, lambda j, t: t + x[i, j] * x[0, j], total)

        return af.fori_loop(0, 10, outer, np.float32(0))

    after = _cleaned(loop, X)
    inner = _only_loop(_only_loop(after).regions[0])
    assert "dynamic_slice" not in _ops(inner.regions[0])
    assert not _only_loop(after).regions[0].captures or "dynamic_slice" not in _ops(_only_loop(after).regions[0])


def _random_loop(rng):
    """A loop with a random counter, reads and writes at random distances, and state that may be of no use."""
    count, start = int(rng.integers(1, 9)), int(rng.integers(-2, 4))
    step = int(rng.choice([-2, -1, 1, 2]))
    offsets = rng.integers(-3, 4, 3).tolist()
    write, scale = int(rng.integers(-1, 2)), int(rng.choice([-1, 1, 2]))
    reads_written, reverse, data = bool(rng.integers(2)), bool(rng.integers(2)), bool(rng.integers(4))

    def loop(x, y):
        def step_(carry, row):
            i, a, total, same = carry
            source = a if reads_written else x
            value = source[i + offsets[0]] * np.float32(0.5) + x[i * scale + offsets[1]] + row - same
            if data:
                a = a.copy()
                a[i + write] = value
            total = total + a[i + write] + x[(count + offsets[2]) % 10]
            return (i + step, a, total, same), value * total

        state = (np.int64(start), y, np.zeros(4, np.float32), x[1])
        return af.scan(step_, state, x[:count], reverse=reverse)

    return loop


@pytest.mark.parametrize("seed", range(60))
def test_random_loops_compute_the_same(seed):
    rng = np.random.default_rng(seed)
    _cleaned(_random_loop(rng), X, X[::-1].copy())
