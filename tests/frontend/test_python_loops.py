"""Python loops become loops of the graph, and compute what Python does."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.frontend.traced import trace
from tests.frontend.python_loops import KERNELS, arrays
from tests.frontend.rolled import agree, copied, loops

RNG = np.random.default_rng(7)


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


def test_the_iteration_that_writes_into_an_array_that_others_see_stands_alone() -> None:
    def aliased(a):
        b = a
        for i in range(20):
            b[i] = 1.5 + b[i - 1]
            b = b * a[i]
        return b

    assert loops(agree(aliased, RNG.random(20))) == ["scan 19"]


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

    def windows(x, n):
        out = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                out[i, j] = x[i : i + 2, j : j + 2].max()
        return out

    assert loops(agree(windows, RNG.random((5, 5)), 3)) == []
    assert loops(agree(windows, RNG.random((5, 5)), 4)) == ["scan 4"]


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
