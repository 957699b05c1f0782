"""Saved plans of one program, each checked against NumPy, then timed in interleaved blocks in this process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from journal import Record
from rounds import time_right_ones

import autofuse as af
from autofuse.measurement.workloads import load

AGAIN = "again"
"""The name under which one of the plans is timed a second time, for the noise floor."""


def race(task: Record, plans: Mapping[str, str], again: str) -> Record:
    """Samples by name of the plans whose answers are right, and the faults of the others.

    `plans`: files by name; `again`: which of them is timed twice. The task gives the program's `file`, and the rest as
    for `time_right_ones`.
    """
    paths = {**plans, AGAIN: plans[again]}
    return time_right_ones(
        load(task["file"]), task, {name: partial(af.load, path) for name, path in paths.items()}, alike=True
    )
