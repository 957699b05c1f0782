"""Selections of kernels: their order, what they wait for, and what they must write."""

from autofuse.ir.dtypes import F32
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.search.solve.topological_order import Run, completed, in_topological_order, trimmed

A, B, C, D = (Value(name, TensorType((4,), F32)) for name in "abcd")


def numbers(runs):
    return [run.number for run in runs]


def test_kernels_run_by_rank_as_soon_as_they_can():
    runs = [Run(0, (B,), (C,)), Run(1, (), (A,)), Run(2, (A,), (B,)), Run(3, (), (D,))]
    order, stuck = in_topological_order(runs, [2, 0, 1, 3])
    assert numbers(order) == [1, 2, 0, 3]
    assert stuck == []


def test_kernels_that_wait_for_one_another_name_what_they_wait_for():
    runs = [Run(0, (A,), (B,)), Run(1, (B,), (A,)), Run(2, (), (C,)), Run(3, (B, C), (D,))]
    order, stuck = in_topological_order(runs, [0, 1, 2, 3])
    assert numbers(order) == [2]
    assert set(stuck) == {A, B}


def test_only_what_is_needed_is_written_and_by_the_first_that_can():
    order = [Run(0, (), (A, B)), Run(1, (), (B, C)), Run(2, (A,), (D,)), Run(3, (), (A,))]
    assert trimmed(order, [B, D]) == [Run(0, (), (A, B)), Run(2, (A,), (D,))]
    assert trimmed(order, [C]) == [Run(1, (), (C,))]


def test_a_selection_is_completed_by_the_best_kernel_that_can_run():
    writers = {A: [Run(7, (C,), (A,)), Run(8, (), (A,))], B: [Run(9, (A,), (B,))], C: []}
    assert numbers(completed([], [A, B, C], writers)) == [8, 9]
    assert numbers(completed([Run(0, (), (A,))], [A, B, C], writers)) == [0, 9]


def test_a_selection_is_completed_in_whatever_order_its_kernels_can_run():
    writers = {A: [Run(1, (B,), (A,))], B: [Run(2, (), (B,))]}
    assert numbers(completed([], [A, B], writers)) == [2, 1]
