"""How many threads kernels use: the setting, its default, and its hand-over to the native pool (`pool.ll`)."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping

from autofuse.device.cpu import detect
from autofuse.device.describe import CpuDescription
from autofuse.errors import ArgumentError

MAX_THREADS = 512
"""Most participants of one fork-join; the size of the native team's table."""

_SPINS = 2000
_SPINS_OVERSUBSCRIBED = 20


class _Setting:
    """The chosen thread count, and where the native pool reads it once it is loaded."""

    def __init__(self) -> None:
        self.threads: int | None = None
        self.native_threads: ctypes.c_int32 | None = None
        self.native_spins: ctypes.c_int32 | None = None


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
        raise ArgumentError(f"AUTOFUSE_NUM_THREADS must be a number between 1 and {MAX_THREADS}, got {text!r}")
    return int(text)


def attach_native(threads_address: int, spins_address: int) -> None:
    """Tell the native pool the settings, now and at every change; the addresses are those of two 32-bit words."""
    _setting.native_threads = ctypes.c_int32.from_address(threads_address)
    _setting.native_spins = ctypes.c_int32.from_address(spins_address)
    _publish()


def _publish() -> None:
    if _setting.native_threads is not None and _setting.native_spins is not None:
        count = get_num_threads()
        # with more threads than CPUs a spinning one keeps the very thread that it waits for from running
        machine = _machine()
        cpus = machine.logical if machine.quota_cores is None else min(machine.logical, machine.quota_cores)
        _setting.native_spins.value = _SPINS if count <= max(cpus, 1) else _SPINS_OVERSUBSCRIBED
        _setting.native_threads.value = count


@functools.cache
def _machine() -> CpuDescription:
    return detect()
