"""Lists and deques that loops change and bind anew: rolled, unrolled and NumPy's own agree."""

from __future__ import annotations

from collections import deque, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(17)
State = namedtuple("State", "x v")  # as users write it


def codes(x):
    return [int(v * 4) for v in x]


# deques


def moving_average(x):
    window, out = deque(maxlen=5), []
    for v in x:
        window.append(v)
        out.append(sum(window) / len(window))
    return np.array(out)


def echo(x):
    line, out = deque([0.0] * 20, maxlen=20), []
    for v in x:
        y = v + 0.5 * line[0]
        line.append(y)
        out.append(y)
    return np.array(out), line[3], len(line)


def plucked_string(x):
    line, out = deque(x[:30]), []
    for _ in range(60):
        first = line.popleft()
        line.append(0.498 * (first + line[0]))
        out.append(first)
    return np.array(out), np.array(line)


def filtered(x):
    taps, window, out = [0.1, 0.2, 0.4, 0.2, 0.1], deque([0.0] * 5, maxlen=5), []
    for v in x:
        window.appendleft(v)
        out.append(sum(a * b for a, b in zip(taps, window, strict=True)))
    return np.array(out)


def rotated(x):
    line, s = deque(x[:10]), 0.0
    for _ in range(33):
        line.rotate(3)
        s = s * 0.9 + line[0]
    return s, line[1], line[-1]


def medians(x):
    window, out = deque(x[:5], maxlen=5), []
    for v in x[5:]:
        window.append(v)
        out.append(sorted(window)[2] + max(window) - min(window))
    return np.array(out)


def frames(x):
    history = deque([x[:5] * 1.0, x[5:10] * 1.0], maxlen=2)
    for i in range(30):
        history.append(0.5 * history[-1] - 0.3 * history[0] + 0.01 * x[i])
    return history[0], history[1]


def filled_inside(x):
    line, out = deque([0.0] * 4, maxlen=4), []
    for i in range(20):
        for j in range(5):
            line.append(x[i] * j)
        out.append(sum(line))
    return np.array(out)


def ended_by_data(x):
    line, n = deque([x[0] + 1, x[1], x[2] + 1]), 0
    while line[0] < 3.0:
        line.append(line[0] + line[-1] * 0.5)
        line.popleft()
        n += 1
    return n, line[0], line[1], line[2]


# lists


def distance_of_texts(x):
    a, b = codes(x[:20]), codes(x[20:40])
    before = list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        row = [i]
        for j in range(1, len(b) + 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1])))
        before = row
    return before[-1], before[3]


def distance_in_two_rows(x):
    a, b = codes(x[:20]), codes(x[20:40])
    before, row = list(range(len(b) + 1)), [0] * (len(b) + 1)
    for i in range(1, len(a) + 1):
        row[0] = i
        for j in range(1, len(b) + 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (0 if a[i - 1] == b[j - 1] else 1))
        before, row = row, before
    return before[-1]


def longest_in_common(x):
    a, b = codes(x[:20]), codes(x[20:40])
    before = [0] * (len(b) + 1)
    for u in a:
        row = [0]
        for j, v in enumerate(b):
            row.append(before[j] + 1 if u == v else max(before[j + 1], row[j]))
        before = row
    return before[-1]


def copied_rows(x):
    weights, values, best = codes(x[:20]), x[20:40], [0.0] * 31
    for i in range(20):
        row = best[:]
        for c in range(31):
            if c > weights[i]:
                row[c] = max(best[c], best[c - weights[i] - 1] + values[i])
        best = row
    return best[30], np.array(best)


def shifted(x):
    short, long = [0.0] * 5, [0.0] * 25
    for i in range(40):
        short = [x[i], *short[:-1]]
        long.append(x[i] + long.pop(0) * 0.5)
    return short[2], np.array(long)


def grids(x):
    g = [[x[i * 6 + j] for j in range(6)] for i in range(6)]
    for _ in range(20):
        g = [[0.5 * (g[i - 1][j] + g[i][(j + 1) % 6]) for j in range(6)] for i in range(6)]
    return np.array(g), g[2][3]


def states(x):
    bodies = [State(x[i], x[i + 10]) for i in range(10)]
    for _ in range(20):
        bodies = [State(b.x + 0.01 * b.v, b.v - 0.01 * b.x) for b in bodies]
    return bodies[3].x, sum(b.v for b in bodies)


def attributes(x):
    body = SimpleNamespace(past=[x[0], x[1], 0.0])
    for i in range(30):
        body.past = [*body.past[1:], 0.5 * body.past[0] + x[i]]
    return body.past[0], body.past[2]


def three_in_turn(x):
    a, b, c = [x[0]] * 20, [x[1]] * 20, [0.0] * 20
    for _ in range(17):
        for j in range(20):
            c[j] = 0.5 * a[j] + 0.25 * b[j] + x[j]
        a, b, c = b, c, a
    return np.array(a), np.array(b), np.array(c)


def wider(x):
    line = deque([0] * 4, maxlen=4)
    for i in range(30):
        line.append(float(x[i]))
    return line[0], sum(line)


ROLLED = [
    *(moving_average, echo, plucked_string, filtered, rotated, medians, frames, filled_inside),
    *(distance_of_texts, distance_in_two_rows, longest_in_common, copied_rows, shifted, grids, states, attributes),
    *(three_in_turn, wider),
]


@pytest.mark.parametrize("program", ROLLED)
def test_lists_and_deques_are_state(program) -> None:
    dear = program in (
        distance_of_texts,
        distance_in_two_rows,
        longest_in_common,
        copied_rows,
        three_in_turn,
        medians,
        wider,
    )
    traced = agree(program, RNG.random(60), unrolled=not dear)
    assert loops(traced)
    assert len(traced.graph.nodes) < 160


def test_data_may_end_a_loop_that_changes_a_deque() -> None:
    assert loops(agree(ended_by_data, RNG.random(3), unrolled=False)) == ["while"]


# branches


def pushed_where_large(x):
    line, values, s = deque([0.0] * 5, maxlen=5), [x[0], x[1], 0.5], 0.0
    for v in x:
        if v > 0.5:
            line.append(v)
            values[0], values[2] = values[2] + v, values[0] * 0.5
        else:
            values.insert(0, values.pop() * 0.5)
        s += line[0] + values[1]
    if s > 3.0:
        line.rotate(1)
    return s, np.array(line), values[0], values[1], values[2]


def test_sides_may_change_lists_and_deques_of_one_length() -> None:
    for _ in range(4):
        agree(pushed_where_large, RNG.random(24), unrolled=False)


def test_sides_that_leave_lists_of_different_lengths_are_refused() -> None:
    def pushed(x):
        line = deque([0.0])
        if x[0] > 0.5:
            line.append(x[1])
        return sum(line)

    with pytest.raises(TraceError, match="line has 2 elements on one side and 1 on the other"):
        trace(pushed, RNG.random(2))


# one list by two names


def two_names(x):
    a = [0.0] * 20
    b = a
    for i in range(40):
        a.append(x[i])
        a.pop(0)
    return a[3], b[3]


def kept_rows(x):
    rows, row = [], [0.0] * 20
    for i in range(20):
        row[0] = x[i]
        row = row[1:] + row[:1]
        rows.append(row)
    return np.array(rows), np.array(row)


def bound_twice(x):
    a = [0.0] * 20
    for i in range(40):
        b = [*a[1:], x[i]]
        a = b
        b[0] = 5.0
    return a[0], b[0], a[19], a is b


def longer(x):
    line = deque([x[0]])
    for i in range(20):
        line.append(x[i])
    return len(line), sum(line)


def names_of_two_lengths(x):
    a, b = [*x[:20]], [0.0]
    for _ in range(22):
        a, b = b, a
        b.reverse()
    return a[0], len(a), b[0], len(b)


@pytest.mark.parametrize("program", [names_of_two_lengths, two_names, kept_rows, bound_twice, longer])
def test_lists_that_others_hold_are_as_pythons(program) -> None:
    agree(program, RNG.random(40))


def test_a_list_from_outside_is_left_as_it_was_where_a_loop_is_unrolled() -> None:
    def uneven(x):
        line, s = deque([0.0] * 3), 0.0
        for i in range(20):
            line.append(x[i])
            if i % 2:
                line.popleft()
            s = s + line[0]
        return s, len(line)

    assert loops(agree(uneven, RNG.random(20))) == []


def walked_and_changed(x):
    line, s, n = [*x[:20]], 0.0, 0
    for v in line:
        s = s * 0.5 + v
        if len(line) < 30:
            line.append(0.25)
    for k, v in enumerate(line):
        if k % 2:
            line.pop()
        s, n = s + v, n + 1
    for k, (v, w) in enumerate(zip(line, x, strict=False)):
        line[(k + 3) % len(line)] = w
        s = s - v
    return s, n, len(line)


def set_ahead(x):
    line, s = [*x[:20]], 0.0
    for v in line:
        line[7] = v * 2.0
        s = s * 0.5 + v
    return s, line[7]


def shrinks_at_once(x):
    line, s = [*x[:30]], 0.0
    for k, v in enumerate(line):
        if k == 0:
            line.pop()
        s = s + v
    return s, len(line)


@pytest.mark.parametrize("program", [walked_and_changed, set_ahead, shrinks_at_once])
def test_lists_may_change_while_a_loop_walks_them(program) -> None:
    agree(program, RNG.random(40))


def test_lists_of_known_numbers_are_walked_by_loops() -> None:
    taps = [0.01 * k for k in range(20)]

    def filtered(x):
        s = 0.0
        for tap, v in zip(taps, x, strict=False):
            s = s * 0.5 + tap * v
        return s

    assert loops(agree(filtered, RNG.random(20))) == ["scan 19"]


# Python's functions of what it holds


def test_extremes_and_orders_of_numbers_of_the_run() -> None:
    def asked(x):
        held = {"a": x[0], "b": x[1]}
        pair = sorted([x[2], 0.5], reverse=True)
        return (
            *(max(held.values()), min(deque(x[:3])), max(iter(x[:4])), pair[0], pair[1]),
            *sorted(x[:5]),
            *sorted([int(v * 9) for v in x], reverse=True),
            *sorted([float(x[0]), 0.25, float(x[1]), 0.75]),
            np.mean(deque(x[:4])),
            np.sqrt(deque([x[0], 2.0])),
        )

    for _ in range(3):
        agree(asked, RNG.random(6), unrolled=False)


def test_two_numbers_are_sorted_as_python_does() -> None:
    def both(x):
        return (*sorted([x[0], x[1]]), *sorted([x[0], x[1]], reverse=True))

    traced = trace(both, RNG.random(2))
    for pair in ([np.nan, 1.0], [1.0, np.nan], [0.0, -0.0], [-0.0, 0.0]):
        x = np.array(pair)
        np.testing.assert_equal(np.copysign(1.0, interpret(traced.graph, x)), np.copysign(1.0, both(x)))
        np.testing.assert_equal(interpret(traced.graph, x), list(both(x)))
