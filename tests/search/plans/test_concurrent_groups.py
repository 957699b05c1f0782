"""Small independent kernels share a launch; everything else keeps its order."""

from __future__ import annotations

import math

from autofuse.lower.limits import Limits
from autofuse.search.plans.concurrent_groups import Work, list_schedule


def test_small_independent_kernels_run_side_by_side():
    kernels = [Work((), ("a",), 1.0), Work((), ("b",), 1.0), Work(("a", "b"), ("c",), 1.0)]
    assert list_schedule(kernels) == [(0, 0), (1, 1), (2, 0)]


def test_large_kernels_and_kernels_of_unknown_time_run_alone():
    kernels = [Work((), ("a",), 1e6), Work((), ("b",), math.inf), Work((), ("c",), 1.0)]
    assert [lane for _, lane in list_schedule(kernels)] == [0, 0, 0]


def test_no_kernel_runs_beside_one_it_waits_for():
    kernels = [Work((f"v{n}",), (f"v{n + 1}",), 1.0) for n in range(5)]
    assert list_schedule(kernels) == [(n, 0) for n in range(5)]


def test_a_launch_holds_a_bounded_number_of_kernels():
    order = list_schedule([Work((), (f"v{n}",), 1.0) for n in range(21)], Limits(most_together=10))
    assert sorted(number for number, _ in order) == list(range(21))
    assert max(place for _, place in order) == 9


def test_the_target_says_what_is_small():
    kernels = [Work((), ("a",), 50.0), Work((), ("b",), 50.0)]
    assert [place for _, place in list_schedule(kernels)] == [0, 0]
    assert [place for _, place in list_schedule(kernels, Limits(small_us=60.0))] == [0, 1]


def test_what_replaces_a_value_runs_after_its_readers():
    kernels = [Work("x", "y", 1.0, "x"), Work("x", "z", 1.0), Work("yz", "w", 1.0)]
    assert [number for number, _ in list_schedule(kernels)] == [1, 0, 2]


def test_a_reader_that_waits_for_what_replaces_its_value_runs_after_that():
    kernels = [Work("x", "y", 1.0, "x"), Work("xy", "z", 1.0)]
    assert list_schedule(kernels) == [(0, 0), (1, 0)]
