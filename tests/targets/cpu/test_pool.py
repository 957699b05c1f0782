"""The fork-join pool: every block runs exactly once whatever the threads, their number and their timing."""

import os
import threading

import numpy as np
import pytest

from autofuse.errors import ArgumentError
from autofuse.targets.cpu.native import threadcount
from tests.fixtures.pools import (
    CHUNK_OF_BLOCK,
    HELD_UP,
    LATE,
    NESTED,
    PTHREAD_SELF,
    THREAD_OF_BLOCK,
    all_once,
    alone_until,
    counting,
    eager_workers,
    expected_sums,
    forgive,
    launches,
    one_launch,
    one_phase,
    patience,
    scratch_sums,
    waking_from,
    workers_sleep,
)

two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a worker needs a CPU beside the caller's")


@pytest.fixture(autouse=True)
def _eager_workers():
    with eager_workers():
        yield


PHASES = [
    [(1, 1)],
    [(1000, 1)],
    [(1000, 999)],
    [(7, 2)],
    [(5, 1), (3, 1)],
    [(100, 1), (1, 1), (50, 50)],
    [(1, 1), (1000, 300), (17, 4), (0, 1)],
    [(3, 7), (3, 7), (3, 7)],
]


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("phases", PHASES, ids=str)
def test_every_block_runs_exactly_once(phases, threads):
    threadcount.set_num_threads(threads)
    program = counting(phases)
    for _ in range(5):
        assert all_once(program)


@two_cpus
def test_shares_are_cut_into_shrinking_chunks():
    # 6 chunks of 36 units each: 36 - (6 - k)**2 is where chunk k starts
    threadcount.set_num_threads(2)
    begins = one_launch(CHUNK_OF_BLOCK, [(72, 1)]).call_one()
    starts = [36 - (6 - k) ** 2 for k in range(6)]
    assert sorted({*begins}) == [*starts, *(36 + start for start in starts)]


@two_cpus
def test_phases_are_weighed_by_their_task_size():
    # a block of the second phase is worth ten of the first: each is one share
    threadcount.set_num_threads(2)
    first, second = one_launch(CHUNK_OF_BLOCK, [(100, 10), (10, 1)]).call()
    assert sorted({*first}) == [0, 31, 56, 75, 89, 98]
    assert sorted({*second}) == [0, 4, 6, 8, 9]


def ordered(ticks: np.ndarray) -> np.ndarray:
    """The blocks in the order in which they ran."""
    return np.argsort(ticks)


def test_every_other_large_launch_goes_backward_in_pieces():
    threadcount.set_num_threads(1)
    forward = np.arange(64)
    backward = forward.reshape(16, 4)[::-1].ravel()
    program = launches(3, 64, 1)
    for _ in range(2):  # the first launch of each call goes forward
        first, second, third = program.call()
        np.testing.assert_array_equal(ordered(first), forward)
        np.testing.assert_array_equal(ordered(second), backward)
        np.testing.assert_array_equal(ordered(third), forward)
    for ticks in launches(3, 64, 32).call():  # too little work
        np.testing.assert_array_equal(ordered(ticks), forward)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("blocks", [16, 17, 64, 1000])
def test_every_block_runs_once_whichever_way_a_launch_goes(threads, blocks):
    threadcount.set_num_threads(threads)
    program = launches(4, blocks, 1)
    for _ in range(3):
        ticks = np.concatenate(program.call())
        np.testing.assert_array_equal(np.sort(ticks) - ticks.min(), np.arange(4 * blocks))
        assert (np.diff(ticks.reshape(4, -1).min(1)) == blocks).all()


@two_cpus
def test_a_part_of_a_launch_that_goes_backward_begins_at_its_end():
    # 6 chunks of 36 units: the first one is 25 to 35, the second one 16 to 24; in pieces of 2 from the end of each
    threadcount.set_num_threads(2)

    def is_backward():
        forgive()
        order = list(ordered(launches(2, 72, 1).call()[1]))
        pieces = [order.index(block) for block in (34, 32, 26)], [order.index(block) for block in (23, 21, 17)]
        return all(sorted(piece) == piece for piece in pieces) and order.index(35) > order.index(34)

    # whoever is held up has the other one take chunks of its part from the back
    assert any(is_backward() for _ in range(5000))


def test_one_thread_runs_whole_phases():
    threadcount.set_num_threads(1)
    assert (one_launch(CHUNK_OF_BLOCK, [(72, 1)]).call_one() == 0).all()


@two_cpus
def test_nobody_waits_for_the_share_of_a_late_worker():
    # whoever runs block 36, the first of the second share, is stuck until someone else has run the last one
    threadcount.set_num_threads(2)
    program = one_phase("late", LATE, 72)
    for _ in range(200):
        forgive()  # on its own, the caller would wait for itself
        out = np.zeros(72, np.int64)
        program.call_into(out)
        assert (out == 1).all()


def owners(program):
    return {*program.call_one()}


@two_cpus
def test_sleeping_workers_are_woken_for_enough_work_only():
    threadcount.set_num_threads(2)
    who = one_launch(THREAD_OF_BLOCK, [(64, 1)], (PTHREAD_SELF,))
    with patience(0, 0, 0):
        who.call_one()
        with waking_from(1 << 40):
            # workers that do not sleep yet may help; once asleep they stay so
            assert any(workers_sleep() for _ in range(1_000_000))
            assert all(owners(who) == {threading.get_ident()} for _ in range(100))
        forgive()
        assert (one_phase("late", LATE, 72).call_one() == 1).all()


@two_cpus
def test_a_worker_that_does_not_get_to_run_is_left_out_for_a_while():
    threadcount.set_num_threads(2)
    slow = one_phase("held_up", HELD_UP, 12, declares=("declare i64 @pthread_self()", "declare i32 @usleep(i32)"))
    chunks = one_launch(CHUNK_OF_BLOCK, [(72, 1)])

    def is_left_out():
        forgive()
        slow.call_one()
        return alone_until().value > 0

    # the caller works for 1 ms and then waits for 19 ms, unless it takes the worker's share before that comes
    assert any(is_left_out() for _ in range(1000))
    alone_until().value = 1 << 62
    assert not chunks.call_one().any()
    alone_until().value = 1
    assert chunks.call_one().any()
    assert alone_until().value != 1


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_scratch_is_private_and_aligned(threads):
    threadcount.set_num_threads(threads)
    program = scratch_sums(200)
    expected = expected_sums(200)
    for _ in range(3):
        np.testing.assert_array_equal(program.call_one(), expected)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_launch_inside_a_phase_runs_inline(threads):
    threadcount.set_num_threads(threads)
    nested = one_phase("outer", NESTED, 20, declares=("declare void @af_parallel(ptr, ptr, ptr)",), size=320)
    out = np.zeros(320, np.int64)
    nested.call_into(out)
    assert (out == 1).all()


@pytest.mark.parametrize("threads", [2, 4])
def test_python_threads_that_call_at_once(threads):
    threadcount.set_num_threads(threads)
    program = counting([(400, 1), (30, 2)])
    sums = scratch_sums(50)
    expected = expected_sums(50)
    wrong = []

    def work():
        for _ in range(200):
            if not all_once(program):
                wrong.append("count")
            if not np.array_equal(sums.call_one(), expected):
                wrong.append("sums")

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_workers_that_fell_asleep_wake_up():
    threadcount.set_num_threads(2)
    program = counting([(64, 1)])
    with patience(0, 0, 0):
        for _ in range(300):
            assert all_once(program)


def test_the_thread_count_setting():
    threadcount.set_num_threads(3)
    assert threadcount.get_num_threads() == 3
    for count in (0, -1, threadcount.MAX_THREADS + 1):
        with pytest.raises(ArgumentError, match=f"got {count}"):
            threadcount.set_num_threads(count)
    assert threadcount.get_num_threads() == 3


def test_the_default_thread_count():
    assert threadcount.default_num_threads({"AUTOFUSE_NUM_THREADS": "5"}) == 5
    assert 1 <= threadcount.default_num_threads({}) <= len(os.sched_getaffinity(0))
    for text in ("zero", "0", "-2", "1e3"):
        with pytest.raises(ArgumentError, match="AUTOFUSE_NUM_THREADS must be a number"):
            threadcount.default_num_threads({"AUTOFUSE_NUM_THREADS": text})
