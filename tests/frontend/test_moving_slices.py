"""Slices whose place, length or step changes with a loop's counter, read and written."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from tests.frontend.rolled import agree, loops

RNG = np.random.default_rng(7)


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


def unknown_step(x):
    for i in range(20):
        x[:: i - 10 if i != 10 else 1] *= 0.5
    return x


@pytest.mark.parametrize(
    ("program", "rolled"), [(sorted_part, 0), (other_length, 1), (kept_part, 0), (unknown_step, 0)]
)
def test_other_uses_of_such_slices_are_unrolled(program, rolled) -> None:
    assert len(loops(agree(program, RNG.random(20)))) == rolled


# steps


def strided_reads(x, m):
    out = np.zeros((40, 8))
    for i in range(3, 40):
        back, ahead = x[i:0:-3], x[1:i:3]
        out[i, 0] = x[i - 3 : i + 1 : 2][1] + back.sum() + back[0] + back[-1] + len(back)
        out[i, 1] = np.sum(ahead) + ahead[::2].sum() + ahead[::-2].sum()
        out[i, 2] = x[i % 3 :: 3][0] + x[-i::2].sum() + x[i::i].sum() + x[::-i].sum()
        out[i, 3] = m[i, i::-2].sum() + m[:i:2, ::2].sum()
        out[i, 4] = x[2 * (i // 2) :: 2].sum() + x[i : i + 1 : 5].sum()
    return out


def strided_writes(x):
    for i in range(3, 40):
        x[i::3] *= 0.9
        x[i % 4 :: 4] += 0.1
        x[:i:2] = x[:i:2][::-1]
        x[i:1:-2] -= 0.01
        x[::i] += 1
        x[i::-i] = 0.5
    return x


def strided_planes(x):
    for i in range(20):
        x[i % 2 :: 2, i:, i::7] += x[1, i, 3]
        x[:, 2:4, i : i + 9 : 4] *= 0.5
    return x


@pytest.mark.parametrize(
    ("program", "shapes"),
    [(strided_reads, [(40,), (40, 40)]), (strided_writes, [(40,)]), (strided_planes, [(4, 20, 30)])],
)
def test_slices_that_move_have_steps(program, shapes) -> None:
    assert len(loops(agree(program, *(RNG.random(shape) for shape in shapes)))) == 1


def sieve(x):
    for i in range(2, 30):
        x[i * i :: i] = 0.5
        x[i:90:i] = x[0]
        x[80:3:-i] += x[i]
        x[i::i][1:3] *= 0.5
    return x


def counted_sieve(x):
    for i in range(2, 30):
        for k in range(i * i, len(x), i):
            x[k] = 0.0
        for k in range(len(x) - 1, 50, -i):
            x[k] += i
    return x


@pytest.mark.parametrize("program", [sieve, counted_sieve])
def test_what_is_written_with_a_step_that_moves_is_counted(program) -> None:
    graph = agree(program, RNG.random(900))
    assert sum(loop.startswith("scan") for loop in loops(graph)) == 1
    assert "while" in loops(graph)


# functions of slices whose length changes


def functions(x, m):
    out = np.zeros((30, 20))
    for i in range(3, 30):
        p, r, v = x[:i], x[i::-1], m[:i, i // 2]
        out[i, :4] = p.std(), np.var(r, ddof=1), np.linalg.norm(p), np.linalg.norm(v, 1)
        out[i, 4:8] = p.argmax(), np.argmin(r), np.cumsum(p)[-1], np.cumprod(r)[0]
        out[i, 8:11] = np.diff(p).sum(), np.where(p > 0.5, p, 0).sum(), np.clip(p, 0.2, 0.8).sum()
        out[i, 11:14] = np.ptp(p), np.count_nonzero(p > 0.5), np.vdot(p, p[::-1])
        out[i, 14:16] = np.linalg.norm(m[:i, :i]), np.average(v)
        own = np.zeros_like(p)
        own[:] = 2
        own[::2] += p[::2]
        out[i, 16] = own.sum()
    return out


def test_functions_of_slices_whose_length_changes() -> None:
    assert loops(agree(functions, RNG.random(30), RNG.random((30, 30)))) == ["scan 27"]
    assert loops(agree(functions, np.full(30, -np.inf), RNG.random((30, 30)))) == ["scan 27"]


def test_arrays_whose_length_changes_are_made() -> None:
    def made(x):
        out = np.zeros(20)
        for i in range(1, 20):
            t = np.zeros(i)
            t[:] = x[:i]
            t[0] = 1
            e = np.empty(20 - i, np.float32)
            e[:] = x[i:]
            out[i] = t @ np.arange(i) + np.ones((i, 3)).sum() + np.full(i, 2.0).mean() + e.sum()
            out[i] += np.arange(i, 20).sum() + np.arange(1, i + 1)[-1] + np.arange(0, i, 3).sum()
        return out

    assert loops(agree(made, RNG.random(20), rtol=1e-6)) == ["scan 19"]


def antidiagonals(a, b):
    """Alignment of two sequences (Smith and Waterman 1981), by diagonals that grow, stay and shrink."""
    n, m = len(a), len(b)
    turned = b[::-1]
    before, last, best = np.zeros(n + 1, np.int32), np.zeros(n + 1, np.int32), np.int32(0)
    for d in range(2, n + m + 1):
        now = np.zeros(n + 1, np.int32)
        lo, hi = max(1, d - m), min(n, d - 1)
        score = np.where(a[lo - 1 : hi] == turned[m - d + lo : m - d + hi + 1], 2, -1).astype(np.int32)
        gap = np.maximum(last[lo - 1 : hi], last[lo : hi + 1]) - 1
        now[lo : hi + 1] = np.maximum(0, np.maximum(before[lo - 1 : hi] + score, gap))
        best = np.maximum(best, now.max())
        before, last = last, now
    return best, last


@pytest.mark.parametrize("lengths", [(20, 23), (23, 20), (16, 16), (2, 19), (19, 1)])
def test_bounds_that_are_the_least_or_the_greatest_of_numbers_are_known_case_by_case(lengths) -> None:
    found = loops(agree(antidiagonals, *(RNG.integers(0, 3, length) for length in lengths), unrolled=False))
    (loop,) = found
    assert loop in (f"scan {sum(lengths) - 1}", f"scan {sum(lengths) - 2}", f"scan {sum(lengths) - 3}")


def bounded(seed: int) -> list[str]:
    """A slice between the greatest and the least of some sums of the counter, read and written."""
    rng = np.random.default_rng(seed)
    steps, size = int(rng.integers(16, 24)), int(rng.integers(16, 40))
    first, second, third, fourth, back = (int(each) for each in rng.integers(0, 9, 5))
    slope = int(rng.integers(1, 3))

    def program(x, y):
        sums = np.zeros(steps)
        for d in range(steps):
            lo = min(max(first, slope * d - second, 0), size - third)
            hi = max(lo, min(size - third, slope * d + fourth + 1, size))
            sums[d] = x[lo:hi].sum() + x[lo:hi] @ y[size - hi : size - lo]
            end = max(lo, hi - back)
            y[lo:end] += x[lo:end][::-1] + x[size - end : size - lo]
        return sums

    return loops(agree(program, rng.random(size), rng.random(size), unrolled=False))


@pytest.mark.parametrize("seed", range(8))
def test_random_bounds_of_cases(seed) -> None:
    bounded(seed)


@pytest.mark.slow
def test_many_random_bounds_of_cases() -> None:
    for seed in range(8, 300):
        bounded(seed)
