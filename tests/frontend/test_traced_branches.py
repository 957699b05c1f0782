"""`if`, `while` and `continue` on traced values."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(7)


def test_ifs_on_traced_values_are_branches() -> None:
    def branches(x):
        s, low = 0.0, x[0]
        for value in x:
            if value > 0.5 and value < 0.8:
                s += value
            elif not value > 0.2:
                s -= 1.0 if value < 0.1 else value
            low = min(low, value)
        return s, low, max(x[0], 0.3)

    assert loops(agree(branches, RNG.random(60), unrolled=False)) == ["scan 60"]


def test_a_branch_writes_into_arrays_of_the_function() -> None:
    def written(x, y):
        if np.sum(x) > np.sum(y):
            x[:] = y
            z = x + 1
        else:
            z = y * 2
            y[0] = -1
        return z

    for _ in range(4):
        agree(written, RNG.random(5), RNG.random(5), unrolled=False)


def test_continue_is_the_other_side() -> None:
    def skipping(x):
        s = 0.0
        for i in range(30):
            if x[i] < 0.5:
                continue
            s += x[i]
            x[i] = 0
        return s

    assert loops(agree(skipping, RNG.random(30), unrolled=False)) == ["scan 30"]


def test_whiles_on_traced_values_are_loops() -> None:
    def halved(x):
        steps, y = 0, x * 1.0
        while np.sum(y * y) > 0.01:
            y = y * 0.5
            steps += 1
        return y, steps

    assert loops(agree(halved, RNG.random(10), unrolled=False)) == ["while"]
    assert loops(agree(halved, np.zeros(10), unrolled=False)) == ["while"]


def test_a_while_that_python_decides_is_pythons() -> None:
    def counted(x):
        n = 0
        while n < 3:
            x = x * 2
            n += 1
        return x, n

    assert loops(agree(counted, RNG.random(3))) == []


def other_results(x):
    if x[0] > 0:
        return x, 1
    return x


def other_kinds(x):
    if x[0] > 0:
        mode = "up"
    else:
        mode = None
    return x, mode


def other_shapes(x):
    y = x
    while np.sum(y) > 0:
        y = y[1:]
    return y


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (other_results, "what is returned is a tuple on one side"),
        (other_kinds, "mode is a str on one side and a NoneType on the other"),
        (other_shapes, "cannot become one of the graph"),
    ],
)
def test_what_no_graph_can_say_is_refused_with_what_to_write(program, reason) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        trace(program, RNG.random(5))
    assert caught.match(r"test_traced_branches\.py:\d+ in " + program.__name__)
    assert caught.match("instead: np.where")


def test_an_array_that_is_one_of_two_must_not_be_written() -> None:
    def chosen(x, y):
        if x[0] > y[0]:
            z = x
        else:
            z = y
        z[0] = 1.0
        return z

    with pytest.raises(TraceError, match="the same as another one or not, as a condition"):
        trace(chosen, np.ones(3), np.ones(3))


def one_side(x, z):
    y = x if x[0] > 0 else z
    x[1] = 7.0
    return y


def side_of_a_side(x, z):
    if x[0] > 0:
        y = x if x[1] > 0 else z * 2
    else:
        y = z * 3
    x[1] = 7.0
    return y


def returned_by_one(x, z):
    def large(a):
        if a[0] > 0:
            return a
        return a * 2

    y = large(x)
    x += 1
    return y


def no_iteration(x, z):
    v = x
    while v.sum() > 1:
        v = v * 0.5
    x[0] = 7.0
    return v + z


def written_behind(x, z):
    v = x
    while v.sum() > 1:
        v = v * 0.5
    v[0] = 7.0
    return v


def one_iteration(x, z):
    v, w = x * 1, z
    while v.sum() > 1:
        w, v = v, v * 0.5
    w += 1
    return v


@pytest.mark.parametrize(
    "program",
    [one_side, side_of_a_side, returned_by_one, no_iteration, written_behind, one_iteration],
)
def test_arrays_that_data_may_make_one_are_not_written_and_read(program) -> None:
    with pytest.raises(TraceError, match=r"same as another one or not.*\n.*\n.*x = x.copy\(\)") as caught:
        trace(program, np.ones(4), np.ones(4))
    assert caught.match(r"test_traced_branches\.py:\d+ in " + program.__name__)


def own_memory(x, z):
    v, kept, y = x, x.copy() if x[0] > 0 else z * 2, z
    while v.sum() > 1:
        y, v = v * 2, v * 0.5
    w = v.copy()
    x += kept + w
    for i in range(20):
        y = y * 0.5 if y[0] > 1 else y + 1
        z[0] = i
    y[1] = 9.0
    kept += 1
    w[0] = 1.0
    return kept, w, x.sum()


def chosen_in_a_loop(x, z):
    y = z
    for i in range(20):
        z = z + y
        x[0] = i
        y = x if x[1] > 0 else z
    return y


@pytest.mark.parametrize("program", [own_memory, chosen_in_a_loop])
def test_arrays_are_written_where_none_of_those_is_read(program) -> None:
    for values in (RNG.random(6), -RNG.random(6)):
        agree(program, values, RNG.random(6), unrolled=False)
