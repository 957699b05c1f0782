"""Lists in loops that are traced: they grow, are read as they grow, and have elements set at places that move."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(11)


def both_sides(x):
    chain, pairs, v = [], [x[0]], 0.5
    for i in range(20):
        if x[i] < 0.5:
            v = v + x[i]
            chain.append((v, i))
            pairs.extend([v, x[i]])
        else:
            chain.append((v * 2, 0))
            pairs.extend((x[i], v))
    if x[0] > 0.3:
        chain.append((x[0], 1))
    else:
        chain.append((x[1], 2))
    return np.array(chain), np.array(pairs), sum(c for c, _ in chain)


def tables(x):
    rows = [[x[i] * x[j] for j in range(20)] for i in range(20)]
    pairs = []
    for i in range(20):
        pairs.append([x[i], x[i : i + 3] * 2])
    return np.array(rows), rows[3][4] + np.array(rows[-1]).sum(), pairs[2][1] + pairs[5][0]


@pytest.mark.parametrize("program", [both_sides, tables])
def test_lists_grow(program) -> None:
    traced = agree(program, RNG.random(40), unrolled=program is tables)
    assert all(one.startswith("scan") for one in loops(traced)[:2])


def read_as_they_grow(x):
    t, y, pairs, rows = [0.0], [x[0]], [x[0]], [x[:3] * 1.0]
    for i in range(20):
        t.append(t[-1] + 0.1)
        y.append(y[-1] + 0.1 * (-2 * y[i] + np.sin(t[i])))
        pairs.append(pairs[-1] * x[i])
        pairs.append(pairs[len(pairs) - 2] + 1)
        rows.append(rows[-1] * 0.9 + x[i])
    return np.array(t), np.array(y), np.array(pairs), np.array(rows), rows[3], y[-1] + y[0]


def empty_at_first(x):
    a, b = [], [0.0]
    for i in range(20):
        a.append(x[i] if i == 0 else a[-1] * 0.5 + x[i])
        inner = [x[i]]
        for j in range(20):
            inner.append(inner[-1] * 0.5 + x[j])
        b.append(inner[-1] + inner[3])
    return np.array(a), np.array(b)


def at_places_that_move(x):
    weights, places, s = [1.0, 2.0, 3.0, 4.0] * 5, (3, 1, 2, 0) * 5, 0.0
    steps = [x[i + 1] - x[i] for i in range(20)]
    for i in range(20):
        s = s + x[places[i]] * weights[i] + steps[i] * steps[-1 - i]
    return s


@pytest.mark.parametrize("program", [read_as_they_grow, empty_at_first, at_places_that_move])
def test_lists_are_read_as_they_grow(program) -> None:
    assert set(loops(agree(program, RNG.random(40)))) <= {"scan 20", "scan 19"}


def tables_of_distances(x):
    a, b = x[:20], x[20:]
    d = [[0] * 21 for _ in range(21)]
    for i in range(1, 21):
        for j in range(1, 21):
            if abs(a[i - 1] - b[j - 1]) < 0.1:
                d[i][j] = d[i - 1][j - 1] + 1
            else:
                d[i][j] = max(d[i - 1][j], d[i][j - 1])
    return d[20][20], np.array(d), d[3][4] + 1


def best_of_each(x):
    best, u, counts = [0.0] * 31, [0.0] * 20, [0] * 10
    for i in range(20):
        w = 1 + i % 5
        for c in range(30, -1, -1):
            if w <= c:
                best[c] = max(best[c], best[c - w] + x[i])
        counts[int(x[i] * 10)] += 1
    for i in range(18, -1, -1):
        u[i] = x[i] - x[i + 1] * u[i + 1]
    return best[30], np.array(best), np.array(counts), sum(counts), u[0], len(u)


def spanning_tree(x):
    p = x[:20]
    seen, best, total = [False] * 20, [9.0] * 20, 0.0
    best[0] = 0.0
    for _ in range(20):
        u = -1
        for i in range(20):
            if not seen[i] and (u < 0 or best[i] < best[u]):
                u = i
        seen[u] = True
        total += best[u]
        for v in range(20):
            d = abs(p[u] - p[v])
            if not seen[v] and d < best[v]:
                best[v] = d
    return total, seen[3], np.array(seen)


@pytest.mark.parametrize("program", [tables_of_distances, best_of_each, spanning_tree])
def test_elements_of_lists_are_set_at_places_that_move(program) -> None:
    for _ in range(2):
        traced = agree(program, RNG.random(40), unrolled=False)
        assert loops(traced)[0].startswith("scan")
        assert not any("its sides" in note for note in traced.loops)


def rows_that_are_one(x):
    d = [[0.0] * 20] * 20
    for i in range(20):
        for j in range(20):
            d[i][j] = x[i] * x[j]
    return np.array(d)


def a_row_held_elsewhere(x):
    d = [[0.0] * 20 for _ in range(20)]
    r = d[3]
    for i in range(20):
        d[i][i] = x[i] + r[3]
    return np.array(d)


def a_list_held_elsewhere(x):
    d = [0.0] * 20
    held = (d,)
    for i in range(20):
        d[i] = x[i] + held[0][3]
    return np.array(d)


@pytest.mark.parametrize("program", [rows_that_are_one, a_row_held_elsewhere, a_list_held_elsewhere])
def test_lists_that_something_else_holds_are_pythons(program) -> None:
    assert loops(agree(program, RNG.random(20))) == []


def test_indices_of_moving_length_are_written() -> None:
    def ranks(ptr, cols, x):
        new = np.zeros(20)
        for i in range(20):
            mine = cols[ptr[i] : ptr[i + 1]]
            if len(mine) > 0:
                new[mine] += x[i] / len(mine)
                np.add.at(new, mine, x[i])
            else:
                new += x[i]
        return new

    def votes(x):
        out = np.zeros(30, np.int64)
        for i in range(20):
            out[int(round(x[i] * 20)) + 2] += 1  # noqa: RUF046
        return out, round(x[0] * 3), round(x[1], 2)

    ptr = np.sort(np.r_[0, RNG.integers(0, 60, 19), 60])
    assert loops(agree(ranks, ptr, RNG.integers(0, 20, 60), RNG.random(20), unrolled=False)) == ["scan 20"]
    assert loops(agree(votes, RNG.random(20), unrolled=False)) == ["scan 20"]


def bound_by_conditions(x):
    v, it, s = x[0] + 2, 0, 0.0
    while (err := abs(v * v - 2)) > 1e-12:
        v = 0.5 * (v + 2 / v)
    while it < 50 and (d := abs(v - x[1])) > 1e-3:
        v = v - 0.5 * (v - x[1])
        it += 1
    for i in range(20):
        if (y := x[i] * 2) > 1.0 and (z := y * y) < 3:
            s = s + y + z
        elif y < 0.2 or (q := x[i] + 1) > 1.5:
            s = s - y - (q if y >= 0.2 else 0.0)
    return v, err < 1e-11, d, it, s


def test_conditions_bind_variables() -> None:
    for _ in range(2):
        assert loops(agree(bound_by_conditions, RNG.random(20), unrolled=False)) == ["while", "while", "scan 19"]


def bound_by_an_earlier_iteration(x):
    s, x[0] = 0.0, 0.9
    for i in range(20):
        if x[i] > 0.5:
            y = x[i]
        s = s * 0.5 + y
    for i in range(20):
        if x[i] > 0.7:
            z = x[i] * 2
            s = s + z
    return s, y


def test_variables_live_from_one_iteration_to_another() -> None:
    for _ in range(2):
        assert loops(agree(bound_by_an_earlier_iteration, RNG.random(20), unrolled=False))[0] == "scan 19"


def longest_run(x):
    inside, longest, run = False, 0, 0
    for v in x:
        if v > 0.4 and not inside:
            inside = True
            run = 0
        elif v <= 0.4:
            inside = False
        if inside:
            run += 1
            if run > longest:
                longest = run
    return longest, run


def test_numbers_that_data_decide_may_be_compared() -> None:
    agree(longest_run, RNG.random(40), unrolled=False)


def seen_twice(x):
    a, v = [x[:3] * 1], x[:3] * 2
    for _ in range(20):
        v = v * 0.5 + a[-1]
        a.append(v)
    v += 100
    return np.array(a), v


def written_later(x):
    a = [x[:3] * 1]
    for i in range(20):
        v = a[-1] * 0.5
        a.append(v)
        v += x[i]
    return np.array(a)


def grown_in_a_branch(x):
    a = [x[0]]
    for i in range(20):
        if i % 3:
            a.append(a[-1] * 0.5)
        a[0] = x[i]
    return np.array(a)


@pytest.mark.parametrize("program", [seen_twice, written_later, grown_in_a_branch])
def test_lists_whose_arrays_something_else_sees_are_unrolled(program) -> None:
    assert loops(agree(program, RNG.random(40))) == []


def test_a_list_that_one_side_appends_to_has_no_length() -> None:
    def positive(x):
        found = []
        for i in range(20):
            if x[i] > 0.5:
                found.append(x[i])
        return np.array(found)

    with pytest.raises(TraceError, match="no array is as long"):
        trace(positive, RNG.random(20))


def test_a_list_of_integers_grows() -> None:
    """Edit distance (Levenshtein 1966), a row of integers after the other."""

    def distance(a, b):
        before = list(range(len(b) + 1))
        for i in range(4):
            now = [i + 1]
            for j in range(len(b)):
                cost = 0 if a[i] == b[j] else 1
                now.append(min(before[j + 1] + 1, now[j] + 1, before[j] + cost))
            before = now
        return np.array(before), before[-1] - before[3]

    rng = np.random.default_rng(5)
    for length in (16, 21):
        traced = agree(distance, rng.integers(0, 3, 4), rng.integers(0, 3, length), unrolled=False)
        assert loops(traced) == ["scan 4", f"scan {length}"]


def test_integers_of_a_list_are_pythons() -> None:
    def steps(x):
        counts = [0]
        for i in range(20):
            counts.append(counts[-1] + (1 if x[i] > 0 else 2))
        return counts[-1], x.astype(np.float32) * counts[5], np.array(counts)

    traced = agree(steps, RNG.random(20) - 0.5, unrolled=False)
    assert loops(traced) == ["scan 20"]


def test_integers_of_a_list_that_outgrow_64_bits_are_pythons() -> None:
    def doubling(x):
        numbers = [1, 2]
        for _ in range(100):
            numbers.append(numbers[-1] + numbers[-2])
        return x * (numbers[-1] / numbers[-2])

    assert loops(agree(doubling, RNG.random(3), unrolled=False)) == []
