"""Kernels, programs and settings to test the fork-join pool with."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.types import parse_type
from autofuse.targets.cpu.native import pool
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeruntime import native_runtime
from autofuse.targets.cpu.native.program import BufferRef, CpuProgram, KernelCall, KernelCode, PhaseCode

_PER_BLOCK = """
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
  {lines}
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}}
"""

COUNT = ("%old = load i64, ptr %at", "%new = add i64 %old, 1", "store i64 %new, ptr %at")
"""Adds one to a counter per block."""
CHUNK_OF_BLOCK = ("store i64 %begin, ptr %at",)
"""Stores, for each block, the first block of the chunk it was in."""
THREAD_OF_BLOCK = ("%self = call i64 @pthread_self()", "store i64 %self, ptr %at")
"""Stores, for each block, the thread that ran it."""
PTHREAD_SELF = "declare i64 @pthread_self()"


def per_block(name: str, buffer: int, *lines: str) -> str:
    """A phase that does `lines` for each block %i, with %at at element i of a buffer."""
    return _PER_BLOCK.format(name=name, buffer=buffer, lines="\n  ".join(lines))


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
    per_block("inner", 0, *COUNT)
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


def one_launch(lines: Sequence[str], phases: Sequence[tuple[int, int]], declares: Sequence[str] = ()) -> NativeProgram:
    """A program with one launch of phases that do `lines`, one i64 output each; `phases` are (blocks, grain)."""
    text = "".join(per_block(f"phase{k}", k, *lines) for k in range(len(phases)))
    launch = tuple(PhaseCode(f"phase{k}", blocks, grain) for k, (blocks, grain) in enumerate(phases))
    kernel = KernelCode("kernel", text, tuple(declares), (launch,))
    call = KernelCall("kernel", tuple(BufferRef("output", k) for k in range(len(phases))))
    types = tuple(parse_type(f"i64[{blocks}]") for blocks, _ in phases)
    return NativeProgram(CpuProgram("program", (kernel,), (call,), (), types))


def one_phase(
    name: str, text: str, blocks: int, *, scratch: int = 0, declares: Sequence[str] = (), size: int | None = None
) -> NativeProgram:
    """A program of one phase, given as LLVM IR, that writes one i64 output of `size` or `blocks` elements."""
    kernel = KernelCode(name, text, tuple(declares), ((PhaseCode(name, blocks, 1, scratch),),))
    type_ = parse_type(f"i64[{size or blocks}]")
    return NativeProgram(CpuProgram(name, (kernel,), (KernelCall(name, (BufferRef("output", 0),)),), (), (type_,)))


def counting(phases: Sequence[tuple[int, int]]) -> NativeProgram:
    """A program that counts how often each block runs."""
    return one_launch(COUNT, phases)


def counted(program: NativeProgram) -> list[NDArray[np.int64]]:
    """The counters after one call, from zero."""
    outs: list[NDArray[np.int64]] = [np.zeros(type_.shape, np.int64) for type_ in program.program.outputs]
    program.call_into(*outs)
    return outs


def all_once(program: NativeProgram) -> bool:
    """Whether one call runs every block exactly once."""
    return all((count == 1).all() for count in counted(program))


def scratch_sums(blocks: int) -> NativeProgram:
    """The program of `SCRATCH_SUMS`."""
    return one_phase("sums", SCRATCH_SUMS, blocks, scratch=4096)


def expected_sums(blocks: int) -> NDArray[np.int64]:
    """Its right result."""
    return np.arange(blocks, dtype=np.int64) * (511 * 512 // 2)


@contextmanager
def waking_from(grains: int) -> Generator[None]:
    """Sleeping workers are woken when so much work, in grains, has been done without them."""
    with _changed("af_wake_work", grains):
        yield


@contextmanager
def patience(*nanoseconds: int) -> Generator[None]:
    """Workers and callers spin that long: between plans, during one, for workers at work."""
    with _changed("af_patience", *nanoseconds):
        yield


@contextmanager
def eager_workers() -> Generator[None]:
    """Workers are woken for any work at all; afterwards the thread count is as before."""
    before = pool.get_num_threads()
    # whoever ran before may have found a worker's CPU taken
    with _changed("af_alone_until", 0), waking_from(0):
        yield
    pool.set_num_threads(before)


@contextmanager
def _changed(name: str, *values: int) -> Generator[None]:
    """Settings of the native runtime, 64-bit integers one after another."""
    setting = (ctypes.c_int64 * len(values)).from_address(native_runtime()[name])
    before = setting[:]
    setting[:] = values
    try:
        yield
    finally:
        setting[:] = before


def in_a_new_process(statements: str) -> tuple[int, str, str]:
    """Run statements, with this module's names, in a fresh interpreter where workers are woken for any work.

    Returns (status, stdout, stderr).
    """
    load = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from autofuse.targets.cpu.native import pool\n"
        "from autofuse.targets.cpu.native.nativeruntime import worker_count\n"
        "from autofuse.testing.pools import *\n"
        "with eager_workers():\n"
    )
    command = [sys.executable, "-c", load + textwrap.indent(statements, "    ")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr
