"""Python loops and branches become loops and branches of the graph, and compute what Python does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import TraceError
from autofuse.frontend.traced import Traced, trace
from autofuse.ir.interpreter import interpret
from tests.frontend.python_loops import KERNELS, arrays

RNG = np.random.default_rng(7)


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def run(traced: Traced, args: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """What the interpreter returns, and what it leaves in the arguments."""
    outputs = interpret(traced.graph, *(np.asarray(leaf) for leaf in traced.flatten(args)))
    left = [a for a in args if isinstance(a, np.ndarray | np.generic)]
    for number, output in traced.writebacks:
        left[number] = outputs[output]
    return traced.unflatten(list(outputs)), left


def agree(function: Callable[..., Any], *args: Any, rtol: float = 1e-9, unrolled: bool = True) -> Traced:
    """Rolled, unrolled and NumPy's own give the same results, and write the same into arguments."""
    own = copied(args)
    with np.errstate(all="ignore"):
        expected = function(*own)
    arguments = [a for a in own if isinstance(a, np.ndarray | np.generic)]
    ways = [trace(function, *copied(args), roll=roll) for roll in ((True, False) if unrolled else (True,))]
    for traced in ways:
        with np.errstate(all="ignore"):
            returned, left = run(traced, args)
        for got, wanted in zip(_flat(returned), _flat(expected), strict=True):
            assert got.dtype == wanted.dtype
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
        for got, wanted in zip(left, arguments, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
    return ways[0]


def _flat(value: Any) -> list[Any]:
    parts = value if isinstance(value, tuple | list) else [] if value is None else [value]
    return [np.asarray(part) for part in parts]


def loops(traced: Traced) -> list[str]:
    """The loops of the graph, of all depths, by op and length."""

    def within(graph: Any) -> list[str]:
        found: list[str] = []
        for node in graph.nodes:
            if node.op in ("scan", "while"):
                found.append(f"{node.op} {node.attrs.get('length', '')}".strip())
            for region in node.regions:
                found += within(region)
        return found

    return within(traced.graph)


LONG = {"adi", "jacobi_1d", "seidel_2d", "symm"}
"""Those that take seconds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in KERNELS]
)
def test_kernels_of_benchmark_suites_trace_unmodified(name: str) -> None:
    kernel = KERNELS[name]
    rolled = agree(kernel.function, *arrays(name), rtol=kernel.rtol)
    assert loops(rolled) == list(kernel.loops)


# what lives from one iteration to the next


def test_a_python_number_becomes_the_scalar_that_it_is_added_to() -> None:
    def total(x):
        s = 0
        for value in x:
            s = s + value * 2
        return s

    for dtype in (np.float32, np.float64, np.int32):
        assert loops(agree(total, RNG.random(40).astype(dtype), rtol=1e-5)) == ["scan 40"]


def test_a_python_number_that_is_also_used_as_one_is_not_rounded_early() -> None:
    def total(x):
        s = 0.1
        out = np.zeros(30, np.float64)
        for i in range(30):
            out[i] = s * 1.0  # a Python float in the first iteration, of 64 bits
            s = s + x[i]
        return out, s

    assert loops(agree(total, RNG.random(30).astype(np.float32), rtol=1e-12)) == ["scan 29"]


def test_arrays_that_change_their_names_are_taken_in_pairs() -> None:
    def swapped(u, v):
        for _ in range(41):
            v[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
            u, v = v, u
        return u

    rolled = agree(swapped, RNG.random(20), RNG.random(20))
    assert loops(rolled) == ["scan 20"]
    assert "40 iterations became a loop, 1 stand alone" in rolled.loops[0]


def test_arrays_that_are_bound_anew_are_values() -> None:
    def wave(u):
        before = u.copy()
        for _ in range(20):
            u, before = 2 * u - before + 0.1 * np.roll(u, 1), u
        return u, before

    assert loops(agree(wave, RNG.random(20))) == ["scan 20"]


def test_two_names_of_one_array_are_told_apart_from_the_first_iteration_on() -> None:
    def aliased(a):
        b = a
        for i in range(20):
            a[i] = 1.5 + b[i - 1]
            b = b + a
        return b

    assert loops(agree(aliased, RNG.random(20))) == ["scan 19"]


def test_writing_into_an_array_that_others_see_in_the_first_iteration_only_is_unrolled() -> None:
    def aliased(a):
        b = a
        for i in range(20):
            b[i] = 1.5 + b[i - 1]
            b = b * a[i]
        return b

    assert loops(agree(aliased, RNG.random(20))) == []


def test_what_the_last_iteration_left_is_read_behind_the_loop() -> None:
    def behind(x):
        for i in range(20):
            y = x[i] * 2
            z = x * i
            k = 2 * i + 1
        return y, z, i, k

    assert loops(agree(behind, RNG.random(20))) == ["scan 20"]


def test_counters_of_ones_own_and_of_conditions() -> None:
    def counted(x):
        k, above = 3, 0
        out = np.zeros(100)
        for value in x:
            out[k] = value
            if value > 0.5:
                above += 1
            k += 2
        return out, k, above

    assert loops(agree(counted, RNG.random(40), unrolled=False)) == ["scan 40"]


def test_an_array_known_while_tracing_is_not_known_any_more_once_it_is_written() -> None:
    def known(x):
        index = np.zeros(3, np.int64)
        out = np.zeros(20)
        for i in range(20):
            out[i] = x[index[0]]
            index[0] = (index[0] + 7) % 20
        return out

    assert loops(agree(known, RNG.random(20))) == ["scan 20"]


# what may be walked over


def test_enumerate_zip_reversed_and_arrays() -> None:
    def walked(x, y):
        out = np.zeros((20, 3))
        for i, (a, b) in enumerate(zip(x, y, strict=False), 2):
            out[i - 2] = a * b + i
        for row in reversed(x):
            row[0] += 1.0
        for k in range(19, -1, -1):
            out[k, 1] += out[19 - k, 2] + x[k][0]
        for k in range(0, 40, 2):
            out[k // 2, 0] -= k / 3
        return out

    assert loops(agree(walked, RNG.random((20, 3)), RNG.random((20, 3)))) == ["scan 20"] * 4


def test_few_iterations_are_unrolled_and_many_are_one_body() -> None:
    def steps(x, n):
        for _ in range(n):
            x = np.tanh(x)
        return x

    assert loops(agree(steps, RNG.random(4), 15)) == []
    assert loops(agree(steps, RNG.random(4), 16)) == ["scan 16"]
    assert loops(agree(steps, RNG.random(4), 0)) == []


def test_nested_loops_are_traced_once_each() -> None:
    traces = 0

    def nested(x):
        for i in range(30):
            for j in range(40):
                nonlocal_free(x, i, j)

    def nonlocal_free(x, i, j):
        x[i, j] = x[i, j - 1] * 0.5 + i

    assert loops(agree(nested, RNG.random((30, 40)))) == ["scan 30", "scan 40"]
    assert traces == 0


def test_inner_loops_whose_length_the_outer_one_decides() -> None:
    def triangle(x):
        out = np.zeros((20, 20))
        for i in range(20):
            for j in range(i):
                out[i, j] = x[i] * x[j] + out[i, j - 1]
            for j in range(i, 20):
                out[i, j] -= j
            for j in range(i + 3, i - 1, -1):
                out[i, min(j, 19)] += 1.0
        return out

    assert loops(agree(triangle, RNG.random(20))) == ["scan 20", "while", "while"]


def test_ends_that_differ_are_traced_alone() -> None:
    def edges(x):
        out = np.zeros(20)
        for i in range(20):
            if i == 0:
                out[i] = x[i]
            elif i < 19:
                out[i] = x[i] + out[i - 1] + x[i + 1]
            else:
                out[i] = -1
        return out

    rolled = agree(edges, RNG.random(20))
    assert loops(rolled)[0].startswith("scan 1")
    assert "stand alone" in "".join(rolled.loops)


# slices whose length changes


def test_reductions_of_slices_whose_length_changes() -> None:
    def reduced(x, ints):
        out = np.zeros((6, 20))
        for i in range(1, 20):
            out[0, i] = x[:i].sum()
            out[1, i] = np.max(x[:i])
            out[2, i] = x[i:].mean()
            out[3, i] = np.min(np.abs(x[i - 1 :]))
            out[4, i] = np.prod(ints[i - 1 : 2 * i]) + np.sum(np.outer(x[:i], x[20 - i :])[::-1])
            out[5, i] = x[:i][::-1] @ x[20 - i :] + x[:i].shape[0]
        return out

    data = RNG.random(20) - 0.5
    data[3] = np.nan  # not among the elements of every slice
    assert loops(agree(reduced, data, np.arange(60) % 3 + 1)) == ["scan 19"]


def test_a_slice_whose_length_changes_is_a_view() -> None:
    def viewed(x):
        for i in range(20):
            row = x[i, :i]
            x[i, 0] = 5.0
            row *= 2
            row[:] = row + 1

    assert loops(agree(viewed, RNG.random((20, 20)))) == ["scan 20"]


def turned_parts(x, y):
    for k in range(1, 20):
        x[:k] += 0.1 * x[k - 1 :: -1][:k]
        y[k] = y[:k] @ x[k:0:-1] + y[k : k - 2 if k > 1 else None : -1][0]


def elements_of_parts(x):
    found = np.zeros((20, 4))
    for k in range(20):
        part = x[k:, : k + 1]
        found[k] = part[0, 0], part[-1, k], part[0][-1], len(part[0])
        part[:, 0] *= 0.5
        part[-1] += 1.0
    return found


def parts_of_parts(x):
    sums = np.zeros(20)
    for k in range(2, 18):
        part = x[k - 2 :]
        sums[k] = part[1:].sum() + part[:2].prod() + part[-1:].sum() + part[: k - 20].sum()
        part[1:-1] *= 0.9
    return sums


@pytest.mark.parametrize(
    ("program", "shapes"),
    [(turned_parts, ((20,), (20,))), (elements_of_parts, ((20, 20),)), (parts_of_parts, ((20,),))],
)
def test_slices_whose_length_changes_are_indexed_and_turned(program, shapes) -> None:
    assert len(loops(agree(program, *(RNG.random(shape) for shape in shapes)))) == 1


def test_an_index_that_such_a_slice_may_not_have_is_numpys_error() -> None:
    def beyond(x):
        out = np.zeros(20)
        for k in range(20):
            out[k] = x[k:][1]
        return out

    with pytest.raises(IndexError, match="index 1 is out of bounds"):
        trace(beyond, RNG.random(20))


def sorted_part(x):
    out = np.zeros(20)
    for i in range(1, 20):
        out[i] = np.sort(x[:i])[0]
    return out


def other_length(x):
    for i in range(1, 20):
        x[:i] = x[:i] + x[20 - i :]
        x[:2] = x[1:3:1]
    return np.concatenate((x[:3], x[3:]))


def kept_part(x):
    part = x[:0]
    for i in range(20):
        part = x[:i]
    return part


def strided_part(x):
    out = np.zeros(20)
    for i in range(20):
        out[i] = np.sum(x[i::2])
    return out


@pytest.mark.parametrize(
    ("program", "rolled"), [(sorted_part, 0), (other_length, 1), (kept_part, 0), (strided_part, 0)]
)
def test_other_uses_of_such_slices_are_unrolled(program, rolled) -> None:
    assert len(loops(agree(program, RNG.random(20)))) == rolled


# loops that are left


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


# what only Python does


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
    assert f"test_python_loops.py:{line} in appended: 20 iterations were traced one by one" in rolled.loops[0]
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


# branches and conditions


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


def returns(x):
    if x[0] > 0:
        return x
    return -x


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
        (returns, "truth test"),
        (other_kinds, "mode is a str on one side and a NoneType on the other"),
        (other_shapes, "cannot become one of the graph"),
    ],
)
def test_what_no_graph_can_say_is_refused_with_what_to_write(program, reason) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        trace(program, RNG.random(5))
    assert caught.match(r"test_python_loops\.py:\d+ in " + program.__name__)
    assert caught.match("instead: np.where")


def test_an_array_that_is_one_of_two_must_not_be_written() -> None:
    def chosen(x, y):
        if x[0] > y[0]:
            z = x
        else:
            z = y
        z[0] = 1.0
        return z

    with pytest.raises(TraceError, match="one of two arrays"):
        trace(chosen, np.ones(3), np.ones(3))


def test_checked_indices_in_rolled_loops() -> None:
    def gathered(x, index):
        s = 0.0
        for i in range(20):
            s = s + x[index[i]]
        return s

    plan = af.compile(gathered, np.ones(5), np.zeros(20, np.int64), check_bounds=True)
    assert plan(np.ones(5), np.zeros(20, np.int64)) == 20.0
    with pytest.raises(af.AutofuseError, match="index 7 is out of bounds"):
        plan(np.ones(5), np.full(20, 7))


def test_an_index_out_of_bounds_in_some_iteration_is_numpys_error() -> None:
    def beyond(x):
        for i in range(25):
            x[i] = 0.0

    with pytest.raises(IndexError, match="index 20 is out of bounds"):
        trace(beyond, np.ones(20))


def test_plans_run_rolled_loops_and_write_into_arguments() -> None:
    name = "jacobi_1d"
    args = arrays(name)
    own = copied(args)
    KERNELS[name].function(*own)
    plan = af.compile(KERNELS[name].function, *args)
    plan(*args)
    for got, wanted in zip(args, own, strict=True):
        np.testing.assert_allclose(got, wanted)


@pytest.mark.parametrize("make", [np.empty, np.zeros, np.ndarray])
def test_arrays_are_made_by_every_name(make) -> None:
    def filled(x):
        out = make((2, 3), np.float32)
        out[0] = x
        out[1] = 2.0
        return out

    agree(filled, RNG.random(3).astype(np.float32))
