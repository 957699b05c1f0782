"""What Python does beside arrays, in loops and conditions: it is as without a trace, or an error says why not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from tests.frontend.rolled import agree, serves_all_values

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


PROGRAMS = [
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
    serves_all_values(program, RNG, N)


def test_functions_that_call_themselves_are_rolled() -> None:
    assert "20 iterations became a loop" in str(trace(recursion, RNG.random(N)).loops)


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


REFUSALS = {
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
