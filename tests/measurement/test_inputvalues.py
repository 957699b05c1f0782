"""Which values a kernel's time may depend on, and digests that tell them apart."""

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.frontend.traced import trace
from autofuse.fusion.candidate import KernelCandidate
from autofuse.measurement.inputvalues import InputValues, is_unusual
from autofuse.passes.pipeline import clean
from autofuse.testing.fusions import whole_kernel

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((50, 8)).astype(np.float32)
PLACES = np.array([3, 1, 4, 1, 5], np.int32)
ROUNDS = np.int32(7)


def looped(x, rounds):
    return af.fori_loop(0, rounds, lambda _, state: state * np.float32(0.5) + x, x)


def digests(fn, *arrays):
    """Digests of what the whole program, as one kernel, may depend on, and of all that it reads."""
    graph = clean(trace(fn, *arrays).graph)
    kernel = whole_kernel(graph) if len(graph.nodes) > 1 else KernelCandidate(graph, graph.nodes, graph.outputs)
    values = InputValues(graph, arrays)
    return values.of_deciding(kernel), values.of_all(kernel)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: np.tanh(x) * y.sum(axis=0),
        lambda x, y: np.where(x > 0, x, y),
        lambda x, y: np.concatenate([x[3:], y[:3]]),
        lambda x, y: (x @ y.T).max(axis=-1),
    ],
)
def test_most_kernels_take_as_long_whatever_they_read(fn):
    mine, theirs = digests(fn, TABLE, TABLE), digests(fn, -TABLE, TABLE)
    assert mine[0] == theirs[0] == ""
    assert mine[1] != theirs[1]


def test_the_indices_of_a_gather_decide_and_the_table_does_not():
    def rows(table, places):
        return np.take(table, places, axis=0) * np.float32(2)

    usual, _ = digests(rows, TABLE, PLACES)
    assert usual == digests(rows, -TABLE, PLACES)[0] != ""
    assert usual != digests(rows, TABLE, PLACES + 1)[0]


def test_what_indices_are_computed_from_inside_the_kernel_decides():
    def rows(table, places, shift):
        return np.take(table, np.minimum(places + shift, 40), axis=0)

    usual, _ = digests(rows, TABLE, PLACES, np.int32(1))
    assert usual == digests(rows, -TABLE, PLACES, np.int32(1))[0]
    assert usual != digests(rows, TABLE, PLACES, np.int32(2))[0]


@pytest.mark.parametrize(
    ("fn", "arrays", "others"),
    [
        (looped, (TABLE, ROUNDS), (TABLE, np.int32(700))),
        (np.sort, (TABLE,), (np.sort(TABLE),)),
        (lambda x: np.power(x, x), (TABLE,), (np.abs(TABLE),)),
        (
            lambda x, at: x[at : at + 1] if isinstance(at, int) else np.take(x, at, axis=0),
            (TABLE, ROUNDS),
            (TABLE, np.int32(8)),
        ),
    ],
    ids=["trip count", "sort", "negative bases", "where a slice begins"],
)
def test_what_else_decides(fn, arrays, others):
    assert digests(fn, *arrays)[0] not in ("", digests(fn, *others)[0])


def test_values_inside_a_program_are_told_apart_by_what_they_are_computed_from():
    def second(x, y):
        return np.sort(np.tanh(x)), y * np.float32(2)

    def digest(x, y):
        graph = clean(trace(second, x, y).graph)
        sort = next(node for node in graph.nodes if node.op == "sort")
        kernel = KernelCandidate(graph, (sort,), sort.outputs)
        return InputValues(graph, (x, y)).of_deciding(kernel)

    assert digest(TABLE, TABLE) == digest(TABLE, -TABLE) != digest(-TABLE, TABLE)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_numbers_that_arithmetic_may_be_slow_with(dtype):
    tiny = float(ml_dtypes.finfo(dtype).smallest_normal)
    usual = np.array([0.0, -0.0, 1.0, -60_000.0, tiny, -tiny] * 10_000, dtype)
    assert not is_unusual(usual)
    assert not is_unusual(usual[:0])
    for number in (tiny / 2, -tiny / 4, np.nan, -np.inf, np.inf if dtype == np.float16 else 70_000.0):
        usual[-7] = number
        assert is_unusual(usual)
    assert not is_unusual(np.array([1 << 30]))
