"""What the cores of this machine have done so far, and how many of them others kept busy meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since some start, summed over all cores."""

    busy: float
    """Somebody computed."""
    stolen: float
    """The host ran something else."""
    own: float
    """This process computed."""
    total: float


def cpu_times(stat: Path = Path("/proc/stat")) -> CpuTimes | None:
    """What the cores have done so far; None where the system does not say."""
    try:
        fields = [int(text) for text in stat.read_text().splitlines()[0].split()[1:9]]
        user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = fields
    except (OSError, ValueError, IndexError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    times = os.times()
    busy = user + nice + system + interrupts + soft_interrupts
    return CpuTimes(busy / tick, stolen / tick, times.user + times.system, (busy + idle + waiting + stolen) / tick)


def others_between(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Cores that others kept busy from one look to a later one, the host of a virtual machine included.

    None where that is not known.
    """
    if before is None or after is None or after.total <= before.total:
        return None
    others = after.busy - before.busy - (after.own - before.own) + after.stolen - before.stolen
    return max(0.0, others * (os.cpu_count() or 1) / (after.total - before.total))
