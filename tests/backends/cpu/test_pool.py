"""The fork-join pool: every block runs exactly once whatever the threads, callers, nesting or forks."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from autofuse.backends.cpu import pool
from autofuse.backends.cpu.entry import NativeProgram
from autofuse.backends.cpu.nativeruntime import worker_count
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
@inner.launch = internal constant { i64, i64, i64, i64, [1 x { ptr, i64, i64, i64, i64 }] } {
  i64 1, i64 16, i64 16, i64 0, [1 x { ptr, i64, i64, i64, i64 }] [
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


@pytest.fixture(autouse=True)
def restore_threads():
    before = pool.get_num_threads()
    yield
    pool.set_num_threads(before)


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


def test_blocks_are_split_into_contiguous_even_ranges():
    who = one_launch(THREAD_OF_BLOCK, [(10, 1)], (PTHREAD_SELF,))
    pool.set_num_threads(4)
    (owners,) = who.call()
    changes = np.flatnonzero(np.diff(owners)) + 1
    assert changes.tolist() == [3, 6, 8]
    pool.set_num_threads(1)
    assert len(np.unique(who.call_one())) == 1


def test_the_split_weighs_phases_by_their_grain():
    # a block of the second phase is worth ten of the first: each of two workers gets one phase
    pool.set_num_threads(2)
    first, second = one_launch(THREAD_OF_BLOCK, [(100, 10), (10, 1)], (PTHREAD_SELF,)).call()
    assert len(np.unique(first)) == 1
    assert len(np.unique(second)) == 1
    assert first[0] != second[0]


def in_a_new_process(statements):
    """Run statements, with this module's names, in a fresh interpreter; returns (status, stdout, stderr)."""
    load = (
        f"import sys, runpy; sys.path[:0] = {sys.path!r}\n"
        f"globals().update({{k: v for k, v in runpy.run_path({__file__!r}).items() if not k.startswith('__')}})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", load + statements], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


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
    native = pool._setting.native_spins
    before = native.value
    native.value = 0
    try:
        for _ in range(300):
            assert all((count == 1).all() for count in counted(program))
    finally:
        native.value = before


def run_in_child(check):
    """Exit status of a forked child: 0 when `check()` holds there."""
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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
