"""Whether other work disturbed a measurement of the machine: what its cores did beside, how far samples lie apart."""

from __future__ import annotations

import os
from collections.abc import Mapping

from autofuse.host.cputimes import CpuTimes
from autofuse.targets.cpu.cost.probes import Estimate

_MOST_OTHERS = 0.15
"""Cores that others may keep busy: the system's own work takes a few hundredths."""
_MOST_STOLEN = 0.05
"""Of the time of all cores: what the host of a virtual machine may take."""
_WIDE = 0.25
"""Half of a number's 95 % interval, over the number, from which on it is not known."""
_MOST_WIDE = 0.25
"""Of all numbers: how many may be so wide."""


def disturbance(
    before: CpuTimes | None, after: CpuTimes | None, estimates: Mapping[str, Estimate], contended: bool
) -> str:
    """What shows that other work disturbed a measurement, for people; "" if nothing does.

    `before`, `after`: what the cores had done when it began and when it ended.
    """
    signs: list[str] = []
    if before is not None and after is not None and after.total > before.total:
        cores = (os.cpu_count() or 1) / (after.total - before.total)
        others = (after.busy - before.busy - (after.own - before.own)) * cores
        stolen = (after.stolen - before.stolen) / (after.total - before.total)
        if others > _MOST_OTHERS:
            signs.append(f"other processes kept {others:.1f} of {os.cpu_count()} cores busy")
        if stolen > _MOST_STOLEN:
            signs.append(f"the host of this virtual machine took {stolen:.0%} of its cores' time")
    wide = [name for name, found in estimates.items() if found.high - found.low > 2 * _WIDE * found.value]
    if len(wide) > _MOST_WIDE * len(estimates):
        signs.append(f"{len(wide)} of {len(estimates)} numbers are known to no better than {_WIDE:.0%}")
    if contended:
        signs.append("not all threads got a core of their own")
    return "; ".join(signs)
