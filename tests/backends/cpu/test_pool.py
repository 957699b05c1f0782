"""The fork-join pool: every block runs exactly once whatever the threads, callers, nesting or forks."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from autofuse.backends.cpu import pool
from autofuse.backends.cpu.entry import NativeProgram
from autofuse.backends.cpu.nativeruntime import native_runtime, worker_count
from autofuse.backends.cpu.program import BufferRef, CpuProgram, KernelCall, KernelCode, PhaseCode
from autofuse.errors import ArgumentError
from autofuse.ir.types import parse_type

COUNT = """
define void @{name}(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {{
entry:
  %counts.at = getelementptr ptr, ptr %buffers, i64 {buffer}
  %counts = load ptr, ptr %counts.at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %one ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %at = getelementptr i64, ptr %counts, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}}
"""
"""Adds one to a counter per block."""

THREAD_OF_BLOCK = """
define void @{name}(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {{
entry:
  %to.at = getelementptr ptr, ptr %buffers, i64 {buffer}
  %to = load ptr, ptr %to.at
  %self = call i64 @pthread_self()
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %one ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %at = getelementptr i64, ptr %to, i64 %i
  store i64 %self, ptr %at
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}}
"""
"""Stores, for each block, the thread that ran it."""
PTHREAD_SELF = "declare i64 @pthread_self()"

CHUNK_OF_BLOCK = """
define void @{name}(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {{
entry:
  %to.at = getelementptr ptr, ptr %buffers, i64 {buffer}
  %to = load ptr, ptr %to.at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %one ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %at = getelementptr i64, ptr %to, i64 %i
  store i64 %begin, ptr %at
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}}
"""
"""Stores, for each block, the first block of the chunk it was in."""

LATE = """
define void @late(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
  %to = load ptr, ptr %buffers
  %last = getelementptr i64, ptr %to, i64 71
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %store ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %stuck = icmp eq i64 %i, 36
  br i1 %stuck, label %wait, label %store
wait:
  %tries = phi i64 [ 0, %one ], [ %tries.next, %wait ]
  %ran = load atomic i64, ptr %last acquire, align 8
  %free = icmp eq i64 %ran, 1
  %tries.next = add i64 %tries, 1
  %never = icmp eq i64 %tries.next, 10000000000
  %go = or i1 %free, %never
  br i1 %go, label %store, label %wait
store:
  %value = phi i64 [ 1, %one ], [ %ran, %wait ]
  %at = getelementptr i64, ptr %to, i64 %i
  store atomic i64 %value, ptr %at release, align 8
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}
"""
"""Stores 1 for each of 72 blocks; block 36 first waits, seconds at most, for the last one."""

HELD_UP = """
define void @held_up(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
  %to = load ptr, ptr %buffers
  %self = call i64 @pthread_self()
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %store ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  switch i64 %i, label %store [ i64 0, label %short
                                i64 6, label %long ]
short:
  %slept.short = call i32 @usleep(i32 1000)
  br label %store
long:
  %slept.long = call i32 @usleep(i32 20000)
  br label %store
store:
  %at = getelementptr i64, ptr %to, i64 %i
  store i64 %self, ptr %at
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}
"""
"""Stores the thread of each of 12 blocks; the first of each share takes long: 1 ms and 20 ms."""

SCRATCH_SUMS = """
define void @sums(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
  %to = load ptr, ptr %buffers
  %address = ptrtoint ptr %scratch to i64
  %offset = and i64 %address, 63
  br label %block
block:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %store ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %fill
fill:
  %j = phi i64 [ 0, %block ], [ %j.next, %fill ]
  %at = getelementptr i64, ptr %scratch, i64 %j
  %value = mul i64 %i, %j
  store volatile i64 %value, ptr %at
  %j.next = add i64 %j, 1
  %full = icmp eq i64 %j.next, 512
  br i1 %full, label %add, label %fill
add:
  %k = phi i64 [ 0, %fill ], [ %k.next, %add ]
  %sum = phi i64 [ %offset, %fill ], [ %sum.next, %add ]
  %from = getelementptr i64, ptr %scratch, i64 %k
  %part = load volatile i64, ptr %from
  %sum.next = add i64 %sum, %part
  %k.next = add i64 %k, 1
  %end.add = icmp eq i64 %k.next, 512
  br i1 %end.add, label %store, label %add
store:
  %to.at = getelementptr i64, ptr %to, i64 %i
  store i64 %sum.next, ptr %to.at
  %i.next = add i64 %i, 1
  br label %block
out:
  ret void
}
"""
"""Block i: i * (0 + 1 + ... + 511) by way of 4 KiB of scratch, plus the scratch's misalignment."""

NESTED = (
    COUNT.format(name="inner", buffer=0)
    + """
@inner.launch = internal constant { i64, i64, i64, i64, i64, [1 x { ptr, i64, i64, i64, i64 }] } {
  i64 1, i64 16, i64 16, i64 0, i64 16, [1 x { ptr, i64, i64, i64, i64 }] [
    { ptr, i64, i64, i64, i64 } { ptr @inner, i64 16, i64 1, i64 0, i64 0 }]}, align 64
define void @outer(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
  %to = load ptr, ptr %buffers
  %mine = alloca ptr
  %tables = alloca ptr
  store ptr %mine, ptr %tables
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %one ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %row = getelementptr [16 x i64], ptr %to, i64 %i
  store ptr %row, ptr %mine
  call void @af_parallel(ptr @inner.launch, ptr %tables, ptr null)
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}
"""
)
"""Block i of the outer phase runs an inner launch of 16 blocks over row i."""


two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a worker needs a CPU beside the caller's")


@pytest.fixture(autouse=True)
def eager_workers():
    """Workers are woken for any work at all; afterwards the settings are as before."""
    before = pool.get_num_threads()
    # an earlier test may have found a worker's CPU taken
    ctypes.c_int64.from_address(native_runtime()["af_alone_until"]).value = 0
    with waking_from(0):
        yield
    pool.set_num_threads(before)


@contextmanager
def waking_from(grains):
    """Sleeping workers are woken when so much work has been done without them."""
    native_runtime()
    setting = pool._setting.native_wake_work
    before, setting.value = setting.value, grains
    try:
        yield
    finally:
        setting.value = before


@contextmanager
def patience(*nanoseconds):
    """Workers and callers spin that long: between plans, during one, for workers at work."""
    native_runtime()
    setting = pool._setting.native_patience
    before = setting[:]
    setting[:] = nanoseconds
    try:
        yield
    finally:
        setting[:] = before


def one_launch(template, phases, declares=()):
    """A program with one launch of phases from `template`, one i64 output each; `phases` are (blocks, grain)."""
    text = "".join(template.format(name=f"phase{k}", buffer=k) for k in range(len(phases)))
    launch = tuple(PhaseCode(f"phase{k}", blocks, grain) for k, (blocks, grain) in enumerate(phases))
    kernel = KernelCode("kernel", text, declares, (launch,))
    call = KernelCall("kernel", tuple(BufferRef("output", k) for k in range(len(phases))))
    types = tuple(parse_type(f"i64[{blocks}]") for blocks, _ in phases)
    return NativeProgram(CpuProgram("program", (kernel,), (call,), (), types))


def counting(phases):
    return one_launch(COUNT, phases)


def counted(program):
    outs = [np.zeros(type_.shape, np.int64) for type_ in program.program.outputs]
    program.call_into(*outs)
    return outs


def single(name, text, blocks, *, scratch=0, declares=(), shape=None):
    """A program of one phase that writes one i64 output."""
    kernel = KernelCode(name, text, declares, ((PhaseCode(name, blocks, 1, scratch),),))
    type_ = parse_type(f"i64[{shape or blocks}]")
    return NativeProgram(CpuProgram(name, (kernel,), (KernelCall(name, (BufferRef("output", 0),)),), (), (type_,)))


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
    pool.set_num_threads(threads)
    program = counting(phases)
    for _ in range(5):
        assert all((count == 1).all() for count in counted(program))


@two_cpus
def test_shares_are_cut_into_shrinking_chunks():
    # 6 chunks of 36 units each: 36 - (6 - k)**2 is where chunk k starts
    pool.set_num_threads(2)
    begins = one_launch(CHUNK_OF_BLOCK, [(72, 1)]).call_one()
    starts = [36 - (6 - k) ** 2 for k in range(6)]
    assert sorted({*begins}) == [*starts, *(36 + start for start in starts)]


@two_cpus
def test_the_cut_weighs_phases_by_their_grain():
    # a block of the second phase is worth ten of the first: each is one share
    pool.set_num_threads(2)
    first, second = one_launch(CHUNK_OF_BLOCK, [(100, 10), (10, 1)]).call()
    assert sorted({*first}) == [0, 31, 56, 75, 89, 98]
    assert sorted({*second}) == [0, 4, 6, 8, 9]


def test_one_thread_runs_whole_phases():
    pool.set_num_threads(1)
    assert (one_launch(CHUNK_OF_BLOCK, [(72, 1)]).call_one() == 0).all()


@two_cpus
def test_nobody_waits_for_the_share_of_a_late_worker():
    # whoever runs block 36, the first of the second share, is stuck until someone else has run the last one
    pool.set_num_threads(2)
    program = single("late", LATE, 72)
    for _ in range(200):
        out = np.zeros(72, np.int64)
        program.call_into(out)
        assert (out == 1).all()


def owners(program):
    return {*program.call_one()}


@two_cpus
def test_sleeping_workers_are_woken_for_enough_work_only():
    pool.set_num_threads(2)
    who = one_launch(THREAD_OF_BLOCK, [(64, 1)], (PTHREAD_SELF,))
    with patience(0, 0, 0):
        who.call_one()
        with waking_from(1 << 40):
            # workers that still spin may help; once asleep they stay so
            assert any(len({*owners(who)}) == 1 for _ in range(10_000))
            assert all(owners(who) == {threading.get_ident()} for _ in range(100))
        assert (single("late", LATE, 72).call_one() == 1).all()


@two_cpus
def test_small_launches_add_up_to_enough_work():
    statements = (
        "pool.set_num_threads(2)\n"
        "program = counting([(10, 1)])\n"
        "with waking_from(35):\n"
        "    for _ in range(4): counted(program); print(worker_count())\n"
    )
    assert in_a_new_process(statements) == (0, "0\n0\n0\n1\n", "")


@two_cpus
def test_a_worker_that_does_not_get_to_run_is_left_out_for_a_while():
    pool.set_num_threads(2)
    slow = single("held_up", HELD_UP, 12, declares=("declare i64 @pthread_self()", "declare i32 @usleep(i32)"))
    who = one_launch(THREAD_OF_BLOCK, [(64, 1)], (PTHREAD_SELF,))
    me = threading.get_ident()
    # the caller works for 1 ms and then waits for 19 ms: the next 150 ms are its own
    assert any({*owners(slow)} > {me} and {*owners(who)} == {me} for _ in range(20))


def in_a_new_process(statements):
    """Run statements, with this module's names, in a fresh interpreter; returns (status, stdout, stderr)."""
    load = (
        f"import sys, runpy; sys.path[:0] = {sys.path!r}\n"
        f"globals().update({{k: v for k, v in runpy.run_path({__file__!r}).items() if not k.startswith('__')}})\n"
        "native_runtime(); pool._setting.native_wake_work.value = 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", load + statements], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@two_cpus
def test_no_more_workers_start_than_parts():
    statements = (
        "pool.set_num_threads(64)\n"
        "for phase in [(3, 1), (5, 1), (4, 4)]: counted(counting([phase])); print(worker_count())\n"
    )
    assert in_a_new_process(statements) == (0, "2\n4\n4\n", "")


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_scratch_is_private_and_aligned(threads):
    pool.set_num_threads(threads)
    program = single("sums", SCRATCH_SUMS, 200, scratch=4096)
    expected = np.arange(200) * (511 * 512 // 2)
    for _ in range(3):
        np.testing.assert_array_equal(program.call_one(), expected)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_launch_inside_a_phase_runs_inline(threads):
    pool.set_num_threads(threads)
    nested = single("outer", NESTED, 20, declares=("declare void @af_parallel(ptr, ptr, ptr)",), shape=320)
    out = np.zeros(320, np.int64)
    nested.call_into(out)
    assert (out == 1).all()


@pytest.mark.parametrize("threads", [2, 4])
def test_python_threads_that_call_at_once(threads):
    pool.set_num_threads(threads)
    program = counting([(400, 1), (30, 2)])
    sums = single("sums", SCRATCH_SUMS, 50, scratch=4096)
    expected = np.arange(50) * (511 * 512 // 2)
    wrong = []

    def work():
        for _ in range(200):
            if not all((count == 1).all() for count in counted(program)):
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
    pool.set_num_threads(2)
    program = counting([(64, 1)])
    with patience(0, 0, 0):
        for _ in range(300):
            assert all((count == 1).all() for count in counted(program))


def run_in_child(check):
    """Exit status of a forked child: 0 when `check()` holds there."""
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@two_cpus
def test_a_forked_child_computes_with_workers_of_its_own():
    pool.set_num_threads(3)
    program = counting([(100, 1)])
    sums = single("sums", SCRATCH_SUMS, 50, scratch=4096)
    assert all((count == 1).all() for count in counted(program))
    sums.call_one()
    assert worker_count() >= 2

    def check():
        fresh = worker_count() == 0
        right = all((count == 1).all() for count in counted(program))
        scratch = np.array_equal(sums.call_one(), np.arange(50) * (511 * 512 // 2))
        return fresh and right and scratch and worker_count() == 2

    assert run_in_child(check) == 0
    assert run_in_child(lambda: run_in_child(check) == 0) == 0
    assert all((count == 1).all() for count in counted(program))


def test_a_fork_while_another_thread_is_in_the_pool():
    pool.set_num_threads(2)
    program = counting([(200, 1)])
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            counted(program)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        statuses = [run_in_child(lambda: all((c == 1).all() for c in counted(program))) for _ in range(5)]
    finally:
        stop.set()
        busy.join()
    assert statuses == [0] * 5


@two_cpus
def test_processes_forked_by_multiprocessing():
    pool.set_num_threads(2)
    program = counting([(100, 1)])
    counted(program)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=check_counts, args=(program,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]


def check_counts(program):
    assert worker_count() == 0
    assert all((count == 1).all() for count in counted(program))
    assert worker_count() == 1


@two_cpus
def test_a_caller_bound_to_one_cpu_runs_alone():
    statements = (
        "import os; pool.set_num_threads(2); program = counting([(100, 1)])\n"
        "everywhere = os.sched_getaffinity(0)\n"
        "os.sched_setaffinity(0, {min(everywhere)}); counted(program); print(worker_count())\n"
        "os.sched_setaffinity(0, everywhere); counted(program); print(worker_count())\n"
    )
    assert in_a_new_process(statements) == (0, "0\n1\n", "")


def test_the_default_thread_count_follows_the_affinity_mask():
    statements = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from autofuse.backends.cpu import pool; print(pool.get_num_threads())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "AUTOFUSE_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", statements], capture_output=True, check=True, env=environment)
    assert done.stdout == b"1\n"


def test_the_interpreter_exits_while_workers_exist():
    statements = (
        "pool.set_num_threads(4); program = counting([(100, 1)])\nfor _ in range(20): counted(program)\nprint('done')\n"
    )
    assert in_a_new_process(statements) == (0, "done\n", "")


def test_the_thread_count_setting():
    pool.set_num_threads(3)
    assert pool.get_num_threads() == 3
    for count in (0, -1, pool.MAX_THREADS + 1):
        with pytest.raises(ArgumentError, match=f"got {count}"):
            pool.set_num_threads(count)
    assert pool.get_num_threads() == 3


def test_the_default_thread_count():
    assert pool.default_num_threads({"AUTOFUSE_NUM_THREADS": "5"}) == 5
    assert 1 <= pool.default_num_threads({}) <= len(os.sched_getaffinity(0))
    for text in ("zero", "0", "-2", "1e3"):
        with pytest.raises(ArgumentError, match="AUTOFUSE_NUM_THREADS must be a number"):
            pool.default_num_threads({"AUTOFUSE_NUM_THREADS": text})
