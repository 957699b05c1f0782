"""What Python does beside arrays, in loops and conditions: it is as without a trace, or an error says why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from tests.fixtures.pythonprograms import difference
from tests.frontend.rolled import agree, run

N = 20
RNG = np.random.default_rng(5)


def _bump(x):
    x[0] += 1.0
    return x[0] > 1.2


def and_in_a_condition(x):
    n = 0
    if x[1] > 0.5 and _bump(x):
        n = 1
    return x, n


def or_in_a_condition(x):
    n = 0
    if x[1] > 0.5 or not _bump(x):
        n = 1
    return x, n


def and_as_a_value(x):
    held = x[1] > 0.5 and _bump(x)
    return x, held


def or_as_a_value(x):
    held = x[1] > 0.5 or _bump(x)
    return x, held


def a_chain(x):
    held = 0.9 < x[1] < (_bump(x) + 0.5)
    return x, held


def nested_conditions(x):
    def inner(y):
        return y[2] > 0.5 and _bump(y)

    n = 0
    if x[1] > 0.5 and inner(x):
        n = 1
    return x, n


def conditions_that_write_what_they_made(x):
    def inner(y):
        mine = y * 1.0
        return (y[2] > 0.5 and _bump(mine)) or mine[0] > 0.6

    n = 0
    if x[1] > 0.5 and inner(x):
        n = 1
    return x, n


def a_list_in_a_loop(x):
    values = [0.0]
    for _ in range(N):
        values += [0.5]
    return len(values), x


def a_list_in_a_dict(x):
    held: dict[str, Any] = {"values": [0.0]}
    for _ in range(N):
        held["values"] += [0.5]
    return len(held["values"]), x


def a_list_that_doubles(x):
    values = [0.0]
    for i in range(N):
        if i < 3:
            values *= 2
    return len(values), x


def a_set_in_a_loop(x):
    seen = {0}
    for _ in range(N):
        seen |= {len(seen)}
    return len(seen), x


def a_dict_in_a_loop(x):
    held: dict[int, float] = {}
    for _ in range(N):
        held |= {len(held): 0.5}
    return len(held), x


def identity_of_bools(x):
    n = 0
    for i in range(N):
        flag = bool(x[i] > 0.5)
        if flag is True:
            n += 1
        if flag is not False:
            n += 2
    return n


def classes(x):
    n = 0
    for i in range(N):
        if type(i) is int and type(x[i]) is np.float64 and type(float(x[i])) is float:
            n += 1
    return n, type(x[0])(0.5)


def text(x):
    n = 0
    for i in range(N):
        n += len(f"{i}") + (f"{i % 3}" == "2")
    return n, x


def remainders_behind_a_loop(x):
    for i in range(N):
        third = i // 3
    return third, x[third]


def zeros_with_a_sign(x):
    s = 0.0
    for _ in range(N):
        s = -0.0
    return math.copysign(1.0, s), x


def _halved(value, depth):
    return value if depth == 0 else _halved(value * 0.5, depth - 1)


def recursion(x):
    for i in range(N):
        x[i] = _halved(x[i], 3)
    return x


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


PROGRAMS = [
    floats_of_data,
    nothing_found,
    nothing_yet,
    nothing_in_a_loop_of_unknown_length,
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
    and_in_a_condition,
    or_in_a_condition,
    and_as_a_value,
    or_as_a_value,
    a_chain,
    nested_conditions,
    conditions_that_write_what_they_made,
    a_list_in_a_loop,
    a_list_in_a_dict,
    a_list_that_doubles,
    a_set_in_a_loop,
    a_dict_in_a_loop,
    identity_of_bools,
    classes,
    text,
    remainders_behind_a_loop,
    zeros_with_a_sign,
    recursion,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_trace_serves_all_values(program: Callable[..., Any]) -> None:
    traced = trace(program, RNG.random(N))
    for _ in range(6):
        x = RNG.random(N)
        own = x.copy()
        wanted = program(own)
        got, (left,) = run(traced, (x,))
        assert not difference(wanted, got, "result", rounded=False)
        np.testing.assert_equal(left, own)


@pytest.mark.parametrize("program", [recursion, cases, variables_of_a_function_around])
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


def caught_root(x):
    try:
        return math.sqrt(x[0] - 2.0)
    except ValueError:
        return -1.0


def caught_index(x):
    k = np.argmax(x) + N
    try:
        s = x[k]
    except (KeyError, LookupError):
        s = -1.0
    return s


def caught_integer(x):
    n = -1
    try:
        n = int(x[0] * math.nan)
    except Exception:  # noqa: BLE001  # as users write it
        x[0] = 0.0
    return n, x


def popped_in_a_condition(x):
    values = [1.0, 2.0]
    if x[0] > 0.5 and values.pop() > 1:
        x[0] = 0.0
    return x, len(values)


def text_of_an_element(x):
    return f"{x[0]}", x


def text_as_a_key(x):
    held = {}
    for i in range(3):
        held[str(x[i])] = i
    return held


def formatted(x):
    return "{}".format(x[0]), x  # noqa: UP032  # as users write it


def text_that_is_told(x):
    print(f"{x[0]}", str(x[1]))
    assert x.size > 1, f"{x}"
    if x.size < 1:
        raise ValueError(f"{x} is empty")
    return x * 2.0


def caught_division(x):
    try:
        return float(x[0]) / float(x[1])
    except ZeroDivisionError:
        return 0.0


def a_key_of_the_run(x):
    return {x[0]: 1.0}


def perhaps_nothing(x):
    return _first_above(x, 0.5)


REFUSALS = {
    "what is returned may be None, as data decide": perhaps_nothing,
    'a ZeroDivisionError of "division by zero" is caught': caught_division,
    "a key of a dict": a_key_of_the_run,
    "the text of a traced value is made here": text_of_an_element,
    "the text of a traced value is made": text_as_a_key,
    "the text of a traced value": formatted,
    "a ValueError of math.sqrt() is caught": caught_root,
    "an IndexError of an index for axis 0 with size 20 is caught": caught_index,
    "a ValueError of int() of NaN or infinity is caught": caught_integer,
    "it calls list.pop": popped_in_a_condition,
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_a_plan_cannot_follow_is_refused(what: str) -> None:
    with pytest.raises(TraceError) as caught:
        trace(REFUSALS[what], RNG.random(N))
    assert what in str(caught.value)
    assert "instead" in str(caught.value)


def test_text_of_traced_values_may_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    agree(text_that_is_told, RNG.random(N))
    assert "TracerArray" in capsys.readouterr().out


def test_errors_that_are_raised_again_are_no_reason_to_refuse() -> None:
    def function(x):
        try:
            s = math.sqrt(x[0])
        except ValueError as error:
            raise RuntimeError("no root") from error
        return s

    agree(function, RNG.random(N), unrolled=False)
