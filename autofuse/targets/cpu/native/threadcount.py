"""How many threads kernels use: the setting, its default, and its hand-over to the native pool (`pool.ll`)."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping

from autofuse.errors import ArgumentError
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cpu.device.detect import detect

MAX_THREADS = 512
"""Most participants of one fork-join; the size of the native team's table."""

CHUNKS_PER_PART = 6
"""Pieces that each participant's share of a launch is cut into, for others to take when it is late."""

PIECES_PER_PART = 16
"""Pieces that a share is walked in, where a launch goes backward: each is walked forward, and pushes out of a cache
what comes next in it."""

TURNING_WORK = 4
"""Work, in tasks of about 5 us, from which on launches go forward and backward by turns. Those of less leave what large
ones touched in the caches, and find it there."""

WAKE_WORK = 24
"""Work, in tasks of about 5 us, done without a sleeping worker until it is woken. Waking costs the caller 15 us and
comes 50 us late on a virtual machine, so a single kernel gains from it when it takes 75 us or more."""

_PATIENCE_NS = (40_000, 1_000_000, 20_000)
"""How long a worker spins after a plan, how long during one, and how long a caller spins for workers."""
_PATIENCE_OVERSUBSCRIBED_NS = (0, 0, 0)


class _Setting:
    """The chosen thread count, and where the native pool reads it once it is loaded."""

    def __init__(self) -> None:
        self.threads: int | None = None
        self.native_threads: ctypes.c_int32 | None = None
        self.native_wake_work: ctypes.c_int64 | None = None
        self.native_patience: ctypes.Array[ctypes.c_int64] | None = None


_setting = _Setting()


def get_num_threads() -> int:
    """Threads that one fork-join uses at most, the calling thread included."""
    if _setting.threads is None:
        _setting.threads = default_num_threads()
    return _setting.threads


def set_num_threads(count: int) -> None:
    """Use at most `count` threads from the next call of a plan on; 1 runs plans on the calling thread alone.

    Raises ArgumentError unless 1 <= count <= MAX_THREADS.
    """
    if not 1 <= count <= MAX_THREADS:
        raise ArgumentError(f"set_num_threads: count must be between 1 and {MAX_THREADS}, got {count}")
    _setting.threads = count
    _publish()


def default_num_threads(environment: Mapping[str, str] | None = None) -> int:
    """`AUTOFUSE_NUM_THREADS` if set, else what `device.cpu.detect` recommends for this machine and control group.

    Raises ArgumentError for a value that is no count.
    """
    env = os.environ if environment is None else environment
    text = env.get("AUTOFUSE_NUM_THREADS", "")
    if not text:
        return min(_machine().threads, MAX_THREADS)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise ArgumentError(f"AUTOFUSE_NUM_THREADS must be a number between 1 and {MAX_THREADS}, got {text!r:.80}")
    return int(text)


def attach_native(threads_address: int, wake_work_address: int, patience_address: int) -> None:
    """Tell the native pool the settings, now and at every change; the addresses are those of its variables."""
    _setting.native_threads = ctypes.c_int32.from_address(threads_address)
    _setting.native_wake_work = ctypes.c_int64.from_address(wake_work_address)
    _setting.native_wake_work.value = WAKE_WORK
    _setting.native_patience = (ctypes.c_int64 * 3).from_address(patience_address)
    _publish()


def _publish() -> None:
    if _setting.native_threads is not None and _setting.native_patience is not None:
        count = get_num_threads()
        # with more threads than CPUs a spinning one keeps the very thread that it waits for from running
        machine = _machine()
        cpus = machine.logical if machine.quota_cores is None else min(machine.logical, machine.quota_cores)
        _setting.native_patience[:] = _PATIENCE_NS if count <= max(cpus, 1) else _PATIENCE_OVERSUBSCRIBED_NS
        _setting.native_threads.value = count


@functools.cache
def _machine() -> CpuDescription:
    return detect()
