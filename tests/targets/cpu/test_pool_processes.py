"""The fork-join pool and processes: workers started late, forks, affinity masks, exits."""

import multiprocessing
import os
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest

from autofuse.targets.cpu.native import threadcount
from tests.fixtures.pools import (
    all_once,
    counted,
    counting,
    eager_workers,
    expected_sums,
    in_a_new_process,
    scratch_sums,
    worker_count,
)

two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a worker needs a CPU beside the caller's")


@pytest.fixture(autouse=True)
def _eager_workers():
    with eager_workers():
        yield


@two_cpus
def test_small_launches_add_up_to_enough_work():
    # only launches within half a millisecond of one another add up, and a busy machine may come between them
    statements = (
        "threadcount.set_num_threads(2)\n"
        "program, launches = counting([(10, 1)]), 0\n"
        "with waking_from(35):\n"
        "    while not worker_count() and launches < 100_000: counted(program); launches += 1\n"
        "print(worker_count(), launches >= 4)\n"
    )
    assert in_a_new_process(statements) == (0, "1 True\n", "")


@two_cpus
def test_no_more_workers_start_than_parts():
    statements = (
        "threadcount.set_num_threads(64)\n"
        "for phase in [(3, 1), (5, 1), (4, 4)]: forgive(); counted(counting([phase])); print(worker_count())\n"
    )
    assert in_a_new_process(statements) == (0, "2\n4\n4\n", "")


def run_in_child(check):
    """Exit status of a forked child: 0 when `check()` holds there."""
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@two_cpus
def test_a_forked_child_computes_with_workers_of_its_own():
    threadcount.set_num_threads(3)
    program = counting([(100, 1)])
    sums = scratch_sums(50)
    assert all_once(program)
    sums.call_one()
    assert worker_count() >= 2

    def check():
        fresh = worker_count() == 0
        right = all_once(program)
        scratch = np.array_equal(sums.call_one(), expected_sums(50))
        return fresh and right and scratch and worker_count() == 2

    assert run_in_child(check) == 0
    assert run_in_child(lambda: run_in_child(check) == 0) == 0
    assert all_once(program)


def test_a_fork_while_another_thread_is_in_the_pool():
    threadcount.set_num_threads(2)
    program = counting([(200, 1)])
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            counted(program)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        statuses = [run_in_child(lambda: all_once(program)) for _ in range(5)]
    finally:
        stop.set()
        busy.join()
    assert statuses == [0] * 5


def check_counts(program):
    assert worker_count() == 0
    assert all_once(program)
    assert worker_count() == 1


@two_cpus
def test_processes_forked_by_multiprocessing():
    threadcount.set_num_threads(2)
    program = counting([(100, 1)])
    counted(program)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=check_counts, args=(program,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]


@two_cpus
def test_a_caller_bound_to_one_cpu_runs_alone():
    statements = (
        "import os; threadcount.set_num_threads(2); program = counting([(100, 1)])\n"
        "everywhere = os.sched_getaffinity(0)\n"
        "os.sched_setaffinity(0, {min(everywhere)}); counted(program); print(worker_count())\n"
        "os.sched_setaffinity(0, everywhere); counted(program); print(worker_count())\n"
    )
    assert in_a_new_process(statements) == (0, "0\n1\n", "")


def test_the_default_thread_count_follows_the_affinity_mask():
    statements = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from autofuse.targets.cpu.native import threadcount; print(threadcount.get_num_threads())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "AUTOFUSE_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", statements], capture_output=True, check=True, env=environment)
    assert done.stdout == b"1\n"


def test_the_interpreter_exits_while_workers_exist():
    statements = (
        "threadcount.set_num_threads(4); program = counting([(100, 1)])\n"
        "for _ in range(20): counted(program)\n"
        "print('done')\n"
    )
    assert in_a_new_process(statements) == (0, "done\n", "")


FLUSHING = """
import ctypes
import llvmlite.binding as llvm
import numpy as np
import autofuse as af
from autofuse.targets.cpu.native import threadcount

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
text = (
    "declare void @llvm.x86.sse.ldmxcsr(ptr)\\n"
    "define void @set(i32 %v) {\\n %p = alloca i32\\n store i32 %v, ptr %p\\n"
    " call void @llvm.x86.sse.ldmxcsr(ptr %p)\\n ret void\\n}"
)
machine = llvm.Target.from_default_triple().create_target_machine()
engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
control = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(engine.get_function_address("set"))
threadcount.set_num_threads(2)
x = np.full((1000, 1000), 1e-39, np.float32)
plan = af.compile(lambda x: x * np.float32(1.5), x)
control(0x9FC0)  # as XLA's threads: results that are subnormal become zeros, and so do operands
while not worker_count():
    plan(x)
control(0x1F80)
print([int((plan(x) == 0).sum()) for _ in range(50)] == [0] * 50)
"""


@two_cpus
@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the control word of x86")
def test_workers_keep_subnormal_numbers_whatever_the_thread_that_made_them_does():
    assert in_a_new_process(FLUSHING) == (0, "True\n", "")
