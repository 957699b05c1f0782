"""Forks while other threads compile."""

import os
import signal
import threading

from autofuse.host.objectcache import ObjectCache
from autofuse.targets.cpu.native.engine import Engine
from autofuse.targets.cpu.native.forkgate import ForkGate


def text(name, length):
    steps = "\n".join(f"  %v{n + 1} = mul i64 %v{n}, {n + 3}" for n in range(length))
    return f"define i64 @f{name}(i64 %v0) {{\n{steps}\n  ret i64 %v{length}\n}}\n"


def test_a_child_that_is_forked_while_other_threads_compile_can_compile():
    engine, done = Engine(cache=ObjectCache(None)), threading.Event()

    def compile_on(thread):
        number = 0
        while not done.is_set():
            engine.compile(text(f"{thread}_{number}", 1000))
            number += 1

    threads = [threading.Thread(target=compile_on, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    try:
        codes = (_code_of_child(lambda n=number: engine.compile(text(f"child_{n}", 10))) for number in range(8))
        assert all(code == 0 for code in codes)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _code_of_child(work):
    """How a child ends that works and is killed by a timer if that does not end, however busy the machine is."""
    child = os.fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, 120.0)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_waits_for_threads_inside_and_keeps_others_out():
    gate, order = ForkGate(), []
    inside, leave = threading.Event(), threading.Event()

    @gate
    def first():
        inside.set()
        leave.wait()
        order.append("first")

    def fork():
        gate.before_fork()
        order.append("fork")
        gate.after_fork()

    threads = [threading.Thread(target=work) for work in (first, fork)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join()
    with gate, gate:
        order.append("later")
    assert order == ["first", "fork", "later"]


def test_a_thread_that_is_inside_itself_may_fork():
    gate = ForkGate()
    with gate:
        gate.before_fork()
        gate.after_fork_in_child()
        with gate:
            pass
    gate.before_fork()
    gate.after_fork()
