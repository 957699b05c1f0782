"""Loops and branches that a `break` or `return` leaves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(7)


def converged(a, v):
    found = 0.0
    for step in range(200):  # noqa: B007  # read behind the loop
        w = a @ v
        norm = np.sqrt(w @ w)
        v = w / norm
        if abs(norm - found) < 1e-9:
            break
        found = norm
    return v, norm, step


def newton(x):
    while True:
        change = (x * x - 2.0) / (2 * x)
        x = x - change
        if np.abs(change).max() < 1e-12:
            break
    return x


def found_first(x, limit):
    place = -1
    for i, value in enumerate(x):
        if value > limit:
            place = i
            break
    else:
        place = -2
    return place


def written_until(x, limit):
    for i in range(1, 20):
        if x[i] < 0.1:
            continue
        x[i] = x[i - 1] * 0.5 + x[i]
        if x[i] > limit:
            x[0] = 9.0
            break
        x[i] *= 2
    return x


def left_inside(x):
    counts = np.zeros(20)
    for i in range(20):
        for j in range(20):
            if x[i, j] > 0.9:
                break
            counts[i] += x[i, j]
    return counts


def left_on_either_side(x):
    s = 0.0
    for i in range(20):
        if x[i] > 0.5:
            s = s + x[i]
            if s > 4.0:
                break
        else:
            s = s - 0.1
            if s < -1.0:
                break
        s = s * 1.01
    return s, i


def left_iterator(x):
    s = 0.0
    for value in iter([1.0, 2.0, 3.0]):
        s = s + x[0] * value
        if value == 2.0:
            break
    return s


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (converged, (RNG.random((5, 5)) + np.eye(5), np.ones(5))),
        (newton, (RNG.random(5) + 1,)),
        (found_first, (np.linspace(0, 1, 20), np.float64(0.7))),
        (found_first, (np.linspace(0, 1, 20), np.float64(1.7))),
        (written_until, (RNG.random(20), np.float64(1.2))),
        (written_until, (RNG.random(20), np.float64(100.0))),
        (left_inside, (RNG.random((20, 20)),)),
        (left_on_either_side, (RNG.random(20),)),
    ],
)
def test_loops_that_a_traced_value_leaves(program, arguments) -> None:
    assert "while" in loops(agree(program, *arguments, unrolled=False))


def test_loops_that_python_leaves() -> None:
    assert loops(agree(left_iterator, RNG.random(3))) == []


# returns


def early(x):
    if x.sum() > 3.0:
        return x * 2
    y = x - 1
    if y.max() > 100:
        return y
    for i in range(20):
        y = y + x * i
    return y


def place_of(x, limit):
    for i in range(20):
        for j in range(20):
            if x[i, j] > limit:
                return x[i, j], i, j
    return x[0, 0], -1, -1


def settles(x, y):
    if x.sum() < 0:
        return
    for _ in range(40):
        y += x
        if y.max() > 5:
            return
    y[:] = 0


def endless(x):
    n = 0
    while True:
        x = x * 0.9
        n += 1
        if np.abs(x).max() < 0.01:
            return x, n


def helper(x):
    def clipped(v):
        if v < 0.3:
            return 0.3
        if v > 0.6:
            return 0.6
        return v

    out = np.zeros(30)
    for i in range(30):
        out[i] = clipped(x[i])
    return out


def otherwise(x):
    for i in range(30):
        if x[i] > 0.99:
            break
    else:
        return x.sum()
    return x[i]


def nested_branches(x):
    if x[0] > 0.5:
        if x[1] > 0.5:
            return x
        x = x + 1
    elif x[2] > 0.5:
        return -x
    return x * 2


def solved(a, b, steps):
    x = np.zeros_like(b)
    d = np.diag(a)
    rest = a - np.diagflat(d)
    for step in range(steps):
        new = (b - rest @ x) / d
        if np.max(np.abs(new - x)) < 1e-10:
            return new, step
        x = new
    return x, steps


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (early, (RNG.random(30),)),
        (early, (np.zeros(30),)),
        (place_of, (RNG.random((20, 20)), np.float64(0.97))),
        (place_of, (RNG.random((20, 20)), np.float64(7.0))),
        (settles, (RNG.random(5), np.zeros(5))),
        (settles, (RNG.random(5) * 0.01, np.zeros(5))),
        (endless, (RNG.random(5),)),
        (helper, (RNG.random(30),)),
        (otherwise, (RNG.random(30),)),
        (otherwise, (np.ones(30),)),
        (solved, (RNG.random((6, 6)) + 6 * np.eye(6), RNG.random(6), 50)),
        (solved, (RNG.random((6, 6)) + 6 * np.eye(6), RNG.random(6), 17)),
        *((nested_branches, (np.array(x),)) for x in ([0.6, 0.6, 0], [0.6, 0.1, 0], [0, 0, 0.6], [0, 0, 0.1])),
    ],
)
def test_returns_from_branches_and_loops(program, arguments) -> None:
    agree(program, *arguments, unrolled=False)


def test_returns_that_python_decides() -> None:
    def first(x, mode, items):
        if mode == 1:
            return x
        for item in items:
            if item == mode:
                return x + item
        with np.errstate(all="ignore"):
            x = x * 2
        if mode > 5:
            return None
        return x, mode

    for mode, items in ((1, ()), (2, (5, 2, 7)), (3, [1]), (9, [1, 2])):
        traced = trace(lambda x, mode=mode, items=items: first(x, mode, iter(items)), np.ones(3))
        assert loops(traced) == []
        assert not any(node.op == "if" for node in traced.graph.nodes)


# integers of the run as Python's


def searched(x, t):
    out = np.zeros(20, np.int64)
    for r in range(20):
        lo, hi = 0, 40
        while lo < hi:
            middle = (lo + hi) // 2
            if x[r, middle] < t[r]:
                lo = middle + 1
            else:
                hi = middle
        out[r] = lo
    return out


def in_bins(x):
    out = np.zeros(10)
    for v in x:
        out[min(int(v * 12), 9)] += float(v)
    return out


def of_math(x):
    s = 0.0
    for i in range(30):
        s += math.sqrt(i) * x[i] + math.exp(-0.1 * i) * math.cos(x[i]) + 0.9**i + (-1) ** i
        if math.floor(x[i] * 10) == 3:
            s += divmod(i, 7)[1] + 2**i
    return s


def sparse_product(starts, columns, values, x):
    y = np.empty(starts.size - 1, values.dtype)
    for i in range(starts.size - 1):
        own = columns[starts[i] : starts[i + 1]]
        y[i] = values[starts[i] : starts[i + 1]] @ x[own]
    return y


def sparse_loops(starts, columns, values, x):
    y = np.zeros(starts.size - 1)
    for i in range(starts.size - 1):
        for j in range(starts[i], starts[i + 1]):
            y[i] += values[j] * x[columns[j]]
    return y


def cut_as_numpy_does(starts, columns, values, x):
    out = np.zeros((20, 4))
    for i in range(20):
        a, b = starts[i] - 20, starts[19 - i]
        out[i] = x[a:b].sum(), x[b:a].sum(), x[a::2].sum(), x[:b:3].sum()
    return out


@pytest.mark.parametrize("program", [sparse_product, sparse_loops, cut_as_numpy_does])
def test_bounds_that_arrays_hold(program) -> None:
    counts = RNG.integers(0, 4, 20)
    starts = np.concatenate(([0], np.cumsum(counts)))
    columns = RNG.integers(0, 30, starts[-1])
    traced = agree(program, starts, columns, RNG.random(starts[-1]), RNG.random(30), unrolled=False)
    assert loops(traced)[0] == "scan 20"


def test_a_loop_as_long_as_an_array_says() -> None:
    def powers(n, x):
        for _ in range(n[0]):
            x = x * 1.1
        return x

    for length in (0, 1, 7):
        assert loops(agree(powers, np.array([length]), RNG.random(3), unrolled=False)) == ["while"]


def components(x):
    label, count = np.zeros((20, 20), dtype=np.int32), 0
    for i in range(20):
        for j in range(20):
            if x[i, j] > 0.5:
                up = label[i - 1, j] if i > 0 else 0
                left = label[i, j - 1] if j > 0 else 0
                if up == 0 and left == 0:
                    count += 1
                    label[i, j] = count
                else:
                    label[i, j] = max(up, left)
    return label, count


def test_a_count_that_data_decide_is_written_into_32_bits() -> None:
    assert loops(agree(components, RNG.random((20, 20)), unrolled=False))[-1].startswith("scan")


def test_integers_and_floats_of_the_run() -> None:
    assert "while" in loops(agree(searched, np.sort(RNG.random((20, 40)), 1), RNG.random(20), unrolled=False))
    assert loops(agree(in_bins, RNG.random(30), unrolled=False)) == ["scan 30"]
    assert loops(agree(of_math, RNG.random(30), unrolled=False)) == ["scan 30"]
