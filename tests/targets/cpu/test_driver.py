"""The driver: what it makes of a program's calls, launches, groups and buffers."""

import dataclasses

import numpy as np
import pytest

from autofuse.errors import BackendError
from autofuse.ir.types import parse_type
from autofuse.targets.cpu.native import driver, threadcount
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import (
    BufferRef,
    CpuProgram,
    KernelCall,
    KernelCode,
    OutputAlias,
    PhaseCode,
)

ADD_ONE = """
define void @{name}(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {{
entry:
  %from = load ptr, ptr %buffers
  %to.at = getelementptr ptr, ptr %buffers, i64 1
  %to = load ptr, ptr %to.at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %one ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %x.at = getelementptr float, ptr %from, i64 %i
  %x = load float, ptr %x.at
  %y = fadd float %x, {amount}
  %y.at = getelementptr float, ptr %to, i64 %i
  store float %y, ptr %y.at
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}}
"""


@pytest.fixture(autouse=True)
def two_threads():
    before = threadcount.get_num_threads()
    threadcount.set_num_threads(2)
    yield
    threadcount.set_num_threads(before)


def adder(name="add_one", amount="1.0", blocks=8, task_blocks=1):
    """A kernel that adds a constant to `blocks` floats, one block each."""
    phase = PhaseCode(name, blocks=blocks, task_blocks=task_blocks)
    return KernelCode(name, ADD_ONE.format(name=name, amount=amount), (), ((phase,),))


def given(index):
    return BufferRef("input", index)


def result(index):
    return BufferRef("output", index)


def arena(offset):
    return BufferRef("arena", offset)


F8 = parse_type("f32[8]")
X = np.arange(8, dtype=np.float32)


def test_calls_run_in_order_through_the_arena():
    calls = (
        KernelCall("add_one", (given(0), arena(0))),
        KernelCall("add_one", (arena(0), arena(64))),
        KernelCall("add_one", (arena(64), result(0))),
    )
    program = NativeProgram(CpuProgram("three", (adder(),), calls, (F8,), (F8,), arena_bytes=128))
    np.testing.assert_array_equal(program.call(X)[0], X + 3)


def test_constants_reach_kernels_aligned_and_dense():
    constant = np.arange(17, dtype=np.float32)[1::2]
    calls = (KernelCall("add_one", (BufferRef("constant", 0), result(0))),)
    program = NativeProgram(CpuProgram("constant", (adder(),), calls, (), (F8,), constants=(constant,)))
    np.testing.assert_array_equal(program.call()[0], constant + 1)


def test_launches_of_a_kernel_run_one_after_another():
    text = ADD_ONE.format(name="first", amount="1.0") + ADD_ONE.format(name="second", amount="2.0")
    kernel = KernelCode("two", text, (), ((PhaseCode("first", 8),), (PhaseCode("second", 8),)))
    calls = (KernelCall("two", (given(0), result(0))),)
    program = CpuProgram("ordered", (kernel,), calls, (F8,), (F8,))
    # both write the same output: the last one wins
    np.testing.assert_array_equal(NativeProgram(program).call(X)[0], X + 2)


def test_phases_of_a_launch_are_one_description():
    low, high = PhaseCode("low", blocks=8, task_blocks=1), PhaseCode("high", blocks=6, task_blocks=4, scratch_bytes=100)
    words = driver.launch_words([(low, 0), (high, 1)], {"low": 1000, "high": 2000})
    # a block of `low` weighs as much as four of `high`; 8 / 1 + 6 / 4 tasks of work, as many parts at most
    assert words[:5] == (2, 9, 8 * 256 + 6 * 64, 128, 9)
    assert words[5:] == (1000, 8, 256, 0, 0, 2000, 6, 64, 8 * 256, 1)


def test_a_launch_worth_one_worker_has_one_part():
    assert driver.launch_words([(PhaseCode("f", blocks=8, task_blocks=8), 0)], {"f": 1})[1] == 1
    assert driver.launch_words([(PhaseCode("f", blocks=8, task_blocks=5), 0)], {"f": 1})[1] == 1
    assert driver.launch_words([(PhaseCode("f", blocks=8, task_blocks=4), 0)], {"f": 1})[1] == 2


def test_a_launch_has_no_more_parts_than_the_program_may_use_threads():
    phase = PhaseCode("f", blocks=8, task_blocks=1)
    words = [driver.launch_words([(phase, 0)], {"f": 1}, threads) for threads in (None, 4, 1)]
    assert [(parts, work) for _, parts, _, _, work, *_ in words] == [(8, 8), (4, 8), (1, 8)]


def test_places_that_increase_run_together():
    calls = tuple(KernelCall("add_one", (given(0), result(k)), group_place=k) for k in range(3))
    assert driver.groups(calls) == [calls]
    program = CpuProgram("lanes", (adder(blocks=8, task_blocks=8),), calls, (F8,), (F8, F8, F8))
    for output in NativeProgram(program).call(X):
        np.testing.assert_array_equal(output, X + 1)


def test_a_lane_that_does_not_increase_waits_for_what_came_before():
    calls = (
        KernelCall("add_one", (given(0), arena(0)), group_place=0),
        KernelCall("add_one", (given(0), arena(64)), group_place=1),
        KernelCall("add_two", (arena(0), result(0)), group_place=0),
        KernelCall("add_two", (arena(64), result(1)), group_place=1),
    )
    assert driver.groups(calls) == [calls[:2], calls[2:]]
    kernels = (adder(), adder("add_two", "2.0"))
    program = NativeProgram(CpuProgram("joined", kernels, calls, (F8,), (F8, F8), arena_bytes=128))
    for output in program.call(X):
        np.testing.assert_array_equal(output, X + 3)


def test_empty_phases_and_empty_programs_run():
    empty = parse_type("f32[0]")
    calls = (KernelCall("add_one", (given(0), result(0))),)
    program = NativeProgram(CpuProgram("nothing", (adder(blocks=0),), calls, (empty,), (empty,)))
    assert program.call(np.empty(0, np.float32))[0].shape == (0,)
    assert NativeProgram(CpuProgram("no_calls", (), (), (F8,), ())).call(X) == ()


def test_profile_times_every_call():
    calls = (KernelCall("add_one", (given(0), arena(0))), KernelCall("add_one", (arena(0), result(0)), group_place=1))
    program = NativeProgram(CpuProgram("timed", (adder(),), calls, (F8,), (F8,), arena_bytes=64))
    (output,), times = program.profile([X])
    np.testing.assert_array_equal(output, X + 2)
    assert len(times) == 2
    assert all(time >= 0 for time in times)


def test_an_output_written_back_to_an_input():
    calls = (KernelCall("add_one", (given(0), result(1))), KernelCall("add_one", (given(1), result(0))))
    program = NativeProgram(
        CpuProgram("back", (adder(),), calls, (F8, F8), (F8, F8), output_aliases=(OutputAlias(output=1, input=0),))
    )
    x, y = X.copy(), X * 10
    first, second = program.call(x, y)
    assert second is x
    np.testing.assert_array_equal(x, X + 1)
    np.testing.assert_array_equal(first, y + 1)
    # the array written to must be writeable, and no other argument may see the write
    assert program.call(x, x) is NotImplemented
    x.flags.writeable = False
    assert program.call(x, y) is NotImplemented


def test_duplicate_declarations_of_one_kernel_are_merged():
    line = "declare float @llvm.fabs.f32(float)"
    unit = driver.kernel_unit(dataclasses.replace(adder(), declares=(line, line)))
    assert unit.count(line) == 1


CALL = KernelCall("add_one", (given(0), result(0)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": (adder(), adder())}, "unique"),
        ({"calls": (KernelCall("other", ()),)}, "unknown kernel 'other'"),
        ({"calls": (KernelCall("add_one", (given(1),)),)}, "outside the program"),
        ({"calls": (KernelCall("add_one", (arena(128),)),), "arena_bytes": 64}, "outside the program"),
        ({"calls": (KernelCall("add_one", (arena(32),)),), "arena_bytes": 64}, "outside the program"),
        ({"kernels": (adder(task_blocks=0),)}, "task_blocks >= 1"),
        ({"inputs": (parse_type("f32[9]"),), "output_aliases": (OutputAlias(0, 0),)}, "another type"),
    ],
)
def test_a_program_that_contradicts_itself_is_refused(change, message):
    good = CpuProgram("p", (adder(),), (CALL,), (F8,), (F8,))
    with pytest.raises(BackendError, match=message):
        NativeProgram(dataclasses.replace(good, **change))


def test_declares_must_be_declarations():
    with pytest.raises(BackendError, match="not a function declaration"):
        driver.kernel_unit(dataclasses.replace(adder(), declares=("define void @f()",)))
