"""Reuse of the memory of large outputs: never while anything still sees it."""

import gc
import os
import resource
import threading
from collections import deque

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.targets.cpu.blocks import BlockPool

F32 = np.dtype(np.float32)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_reused_once_its_array_is_gone():
    pool = BlockPool()
    first = pool.empty((1000, 3), F32)
    where = address(first)
    second = pool.empty((1000, 3), F32)
    assert address(second) != where
    del first
    assert pool.retained_bytes == 12000
    # the same size in another shape and dtype
    third = pool.empty((1500,), np.dtype(np.float64))
    assert address(third) == where
    assert pool.retained_bytes == 0


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[10:20],
        lambda array: array[::2],
        lambda array: array.view(np.int32),
        lambda array: array.reshape(10, 100).T[1:],
        lambda array: array[10:20][3:4],
        memoryview,
    ],
    ids=["slice", "strided", "dtype", "transposed", "slice of a slice", "export"],
)
def test_whatever_views_the_memory_keeps_it(view):
    pool = BlockPool()
    kept = view(pool.empty((1000,), F32))
    gc.collect()
    assert pool.retained_bytes == 0
    del kept
    gc.collect()
    assert pool.retained_bytes == 4000


def test_arrays_are_like_those_of_numpy_empty():
    for dtype in (F32, np.dtype(ml_dtypes.bfloat16), np.dtype(np.bool_)):
        array = BlockPool().empty((3, 5), dtype)
        assert type(array) is np.ndarray
        assert array.dtype is dtype
        assert array.shape == (3, 5)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert address(array) % 64 == 0


def test_no_more_is_kept_than_allowed():
    pool = BlockPool(retained_bytes=10000)
    arrays = [pool.empty((1000,), F32) for _ in range(4)]
    arrays.clear()
    assert pool.retained_bytes == 8000
    pool.clear()
    assert pool.retained_bytes == 0


def test_threads_never_share_a_block():
    pool = BlockPool()
    wrong = []

    def work(seed):
        for _ in range(300):
            array = pool.empty((512,), F32)
            array.fill(seed)
            if not (array == seed).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.retained_bytes % 2048 == 0


def test_a_forked_child_can_allocate_though_the_lock_was_held():
    pool = BlockPool()
    held, finish = threading.Event(), threading.Event()

    def hold():
        with pool._lock:
            held.set()
            finish.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        pool.after_fork()
        os._exit(0 if pool.empty((4,), F32).shape == (4,) else 1)
    status = os.waitpid(child, 0)[1]
    finish.set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("held", [0, 3])
@pytest.mark.parametrize("megabytes", [1, 8, 64])
def test_results_in_a_loop_need_no_fresh_pages(megabytes, held):
    x = np.zeros(megabytes << 18, np.float32)
    plan = af.compile(lambda x: x + 1, x)
    results = deque((plan(x) for _ in range(10)), maxlen=held)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        results.append(plan(x))
    # a fresh result would be a fault per huge page at least, and 256 per megabyte of small ones
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 20 * max(megabytes // 2, 1)
