"""Numbers that only the run knows, wherever Python asks for them: as divisors, places of lists, cases, None or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from tests.frontend.rolled import run, serves_all_values

N = 20
RNG = np.random.default_rng(6)


def divisions(x):
    p, q = float(x[0]) - 0.5, float(x[1]) + 0.25
    k, n = int(x[2] * 20) - 9, int(x[3] * 9) - 10
    return p / q, p // q, p % q, divmod(-p, q), p // -0.3, p % -0.3, k // n, k % n, k / n, k // -3, k % -3, 7 // n


def means(x):
    n, total = 0, 0.0
    for value in x:
        if value > 0.25:
            n += 1
            total += float(value)
    return total / n if n else 0.0


def elements(x):
    flags = x > 0.5
    return x[0].item() * 2, x.item(3), flags[1].item(), np.argmax(x).item() + 1


def lists_of_elements(x):
    values, table = x.tolist(), x.reshape(4, 5).tolist()
    return values[0] + values[1], table[1][2] * 2, np.array(values), sum(table[3])


def extremes(x):
    y = x * 1.0
    y[3] = math.nan
    z = x * 1.0
    z[0] = math.nan
    return max(x), min(x[:3]), max(y), min(z), max([x[0], 0.5]), max((v for v in x), default=0.0), min([], default=1)


def comparisons_with_nothing(x):
    return x[0] == None, (x == None)[0], x[0] != "x", (x != "x")[1]  # noqa: E711  # as users write it


def conversions(x):
    whole = np.int32(x[0] * 5), np.float64(int(x[2] * 5))
    return np.float32(x[0]), np.float32(float(x[1])), np.bool_(x[3] > 0.5), whole


def lists_at_places_of_data(x):
    k = int(x[0] * 4)
    counts, weights, flags = [0] * 4, [1.0, 2.0, 3.0, 4.0], [False] * 4
    for i in range(5):
        counts[int(x[i] * 4)] += 1
    weights[k] = 0.5
    weights[-k - 1] += 1.0
    flags[k] = True
    if x[1] > 0.5:
        counts[k] = 9
    return counts, weights[k] + weights[-1 - k], flags, [5, 6, 7, 8][k], weights


def cases(x):
    s = 0.0
    for i in range(N):
        match int(x[i] * 4):
            case 0:
                s += 1.0
            case 1 | -1:
                s *= 0.5
            case k if k > 2:
                s -= k
            case _:
                s += x[i]
    return s


def variables_of_a_function_around(x):
    n, s = 0, 0.0

    def add(value):
        nonlocal n, s
        n += 1
        s = 0.5 * s + value
        return s > 0.7

    for i in range(N):
        add(x[i])
        if x[i] > 0.5 and add(1.0):
            x[i] = n
    return n, s, x


def variables_of_a_function_in_a_loop(x):
    def total(value):
        kept = 0.0

        def add(more):
            nonlocal kept
            kept += more

        for k in range(N):
            add(value * k)
        return kept

    s = 0.0
    for i in range(N):

        def note(value):
            nonlocal s
            s = 0.5 * s + value

        note(total(x[i]))
    return s


def lists_on_either_side(x):
    if x[0] > 0.5:
        pair = [x[1], 2.0]
    else:
        pair = [0.5, x[2]]
    pair[0] += 1.0
    return pair


def sums_of_unknown_length(x):
    out = np.zeros(N)
    for i in range(N - 1):
        s = 0.0
        for j in range(int(x[i] * 4)):
            s += x[j] * 0.5
        out[i] = s
    return out


def behind_loops_of_unknown_length(x):
    for i in range(int(x[0] * 4) + 2):
        half, pair = i // 2, (i, x[i])
        if i % 2 == 0:
            q = 1
        else:
            q = 3
        x[i] += q
    y = x[1] * 0.1
    while y < 3.0:
        y, before = y + 0.5, y
    return i, half, pair, y, before, q


def iterators_of_the_loop(x):
    s = 0.0
    for i in range(N):
        them = iter([x[i], 1.0, 2.0])
        s += next(them) * next(them)
    return s


def iterators_from_outside(x):
    pairs, n = zip(x, x, strict=True), 0
    for _ in range(N):
        n += len(list(pairs))
    return n, x


def attributes_that_numpy_has(x):
    y = float(x[0])
    found = hasattr(y, "shape"), hasattr(x[0], "__len__"), hasattr(x, "__len__"), hasattr(x[0], "shape")
    return found, getattr(y, "ndim", -1), getattr(x[0], "ndim", -1), x.__class__.__name__


def conditions_of_one_element(x):
    return 1.0 if x[:1] > 0.5 else 2.0


def _first_above(x, limit):
    for i in range(len(x)):
        if x[i] > limit:
            return i
    return None


def floats_of_data(x):
    most, n = 0.0, 0
    for value in x:
        v = float(value)
        if v > most:
            most = v
            n += 1
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if middle * middle < float(x[0]):
            low = middle
        else:
            high = middle
    return most, n, low, 1.0 if x[1].item() > x[2].item() else 0.5


def nothing_found(x):
    k = _first_above(x, 0.95)
    return x[k] if k is not None else -1.0


def nothing_yet(x):
    best, last, n, total = None, None, None, 0.0
    for i in range(N):
        if x[i] > 0.5 and (best is None or x[i] < best):
            best = x[i]
        if last is not None:
            total += last * 0.5
        last = x[i] if x[i] > 0.3 else None
        if x[i] > 0.6:
            n = 1 if n is None else n + 1
    if best is None:
        best = 2.0
    return best, total, n or 0


def nothing_in_a_loop_of_unknown_length(x):
    best, seen, votes = None, {"last": None}, 0
    for i in range(int(x[0] * 15)):
        if best is None or x[i] < best:
            best = x[i]
        if seen["last"] is None:
            votes += 1
        elif seen["last"]:
            votes += 10
        if x[i] > 0.8:
            seen["last"] = True
        elif x[i] < 0.2:
            seen["last"] = False
    return (0.0 if best is None else best), votes


def flags_in_loops_of_unknown_length(x):
    found, was, n, vote = False, True, 0, None
    for i in range(int(x[0] * N)):
        if x[i] > 0.7:
            found, vote = True, True
        elif x[i] < 0.1:
            was, vote = not was, False
        if found and was:
            n += 1
    return found, was, n, -1 if vote is None else (1 if vote else 0)


def left_loops_of_unknown_length(x):
    y = x[0]
    while y < 2:
        y = y * 2 + 0.1
        if y > 1.9:
            break
    else:
        y = -1.0
    for i in range(int(x[1] * N)):
        if x[i] > 0.7:
            break
    else:
        return -2.0, y
    return x[i], y


PROGRAMS = [
    flags_in_loops_of_unknown_length,
    left_loops_of_unknown_length,
    floats_of_data,
    nothing_found,
    nothing_yet,
    sums_of_unknown_length,
    behind_loops_of_unknown_length,
    iterators_of_the_loop,
    iterators_from_outside,
    attributes_that_numpy_has,
    conditions_of_one_element,
    divisions,
    means,
    elements,
    lists_of_elements,
    extremes,
    comparisons_with_nothing,
    conversions,
    lists_at_places_of_data,
    cases,
    variables_of_a_function_around,
    variables_of_a_function_in_a_loop,
    lists_on_either_side,
    nothing_in_a_loop_of_unknown_length,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_trace_serves_all_values(program: Callable[..., Any]) -> None:
    serves_all_values(program, RNG, N)


@pytest.mark.parametrize("program", [cases, variables_of_a_function_around])
def test_these_are_rolled(program: Callable[..., Any]) -> None:
    assert "iterations became a loop" in str(trace(program, RNG.random(N)).loops)


def test_lists_of_elements_are_the_array_that_they_came_from() -> None:
    def function(x):
        return np.array(x.tolist())

    assert not trace(function, RNG.random(N)).graph.nodes


def test_divisions_by_0_of_the_run_are_checked_on_wish() -> None:
    def function(x):
        return float(x[0]) / float(x[1])

    assert run(trace(function, np.ones(2)), (np.array([1.0, 0.0]),))[0] == np.inf
    with pytest.raises(ValueError, match="division by zero"):
        run(trace(function, np.ones(2), check_bounds=True), (np.array([1.0, 0.0]),))

    def by_nothing(x):
        return float(x[0]) / 0

    with pytest.raises(ZeroDivisionError):
        trace(by_nothing, np.ones(2))


def test_results_that_may_be_none_are_refused() -> None:
    def function(x):
        return _first_above(x, 0.5)

    with pytest.raises(TraceError, match="what is returned may be None, as data decide"):
        trace(function, RNG.random(N))
