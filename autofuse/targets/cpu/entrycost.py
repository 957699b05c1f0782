"""What a call of a kernel that is timed alone takes beside the kernel: entering native code, and looking at arrays.

A plan enters native code once for all its kernels. So what is known of a kernel's time is without this. It is a matter
of the process, its interpreter and its clock, and so is measured in each: a line through what programs of no kernels
take that look at few and at many arrays.
"""

from __future__ import annotations

from functools import cache
from time import perf_counter_ns

import numpy as np

from autofuse.ir import dtypes
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import CpuProgram

_FEW, _MANY = 2, 18
_CALLS, _MOMENTS = 500, 9
"""Calls of one moment, a tenth of a millisecond; the fastest of all moments counts."""


@dataclass(frozen=True, slots=True)
class EntryCost:
    """A line; microseconds."""

    call_us: float
    array_us: float

    def of(self, arrays: int) -> float:
        """What a call takes that is given so many arrays."""
        return self.call_us + arrays * self.array_us

    @staticmethod
    def through(few: tuple[int, float], many: tuple[int, float]) -> EntryCost:
        """The line through two points (arrays, microseconds); it never falls, and takes time with no arrays or none."""
        slope = max((many[1] - few[1]) / (many[0] - few[0]), 0.0)
        return EntryCost(max(few[1] - slope * few[0], 0.0), slope)


@cache
def entry_cost() -> EntryCost:
    """Of this process, measured when it is first asked for: some milliseconds."""
    few, many = _empty_call_us(_FEW), _empty_call_us(_MANY)
    return EntryCost.through((_FEW, few), (_MANY, many))


def _empty_call_us(arrays: int) -> float:
    """A call of a program of no kernels, which looks at all its arguments first."""
    type_ = TensorType((1,), dtypes.F32)
    program = NativeProgram(CpuProgram(f"nothing_{arrays}", (), (), (type_,) * (arrays - 1), (type_,)))
    given = [np.zeros(1, np.float32) for _ in range(arrays)]
    call, best = program.call_into, float("inf")
    for _ in range(_MOMENTS):
        start = perf_counter_ns()
        for _ in range(_CALLS):
            call(*given)
        best = min(best, (perf_counter_ns() - start) / 1e3 / _CALLS)
    return best
