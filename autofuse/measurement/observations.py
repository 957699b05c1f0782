"""Records put together to what was seen of each kernel under each schedule, in several passes: what models learn from.

A pass is the time of a kernel at one moment, in one process. The collector makes several, each with a policy of its
own; the tuner's second times are passes too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.measurement.exported import Exported
from autofuse.measurement.kernelrecords import AGAIN, PRUNED
from autofuse.measurement.records import Status
from autofuse.measurement.sources import KernelSource, ProgramSource
from autofuse.plan.identity import Identity

COLLECTED_POLICY = "collected-fastest/1"
"""Of the collector's passes: few samples, at two moments of a round over the kernels of a program."""
_PASS = "+pass"


def pass_policy(number: int) -> str:
    """The policy of the collector's records of a pass; the first one is 1."""
    return f"{COLLECTED_POLICY}{_PASS}{number}"


@dataclass(frozen=True, slots=True)
class Pass:
    """The time of a kernel at one moment, in one process."""

    samples_us: tuple[float, ...]
    load: float | None
    """Cores that others kept busy meanwhile; None: not known."""
    created_ns: int
    """Unix time in nanoseconds."""

    @property
    def us(self) -> float:
        """The fastest sample."""
        return min(self.samples_us)


@dataclass(frozen=True, slots=True)
class Observation:
    """A kernel under a schedule on a machine."""

    kernel: str
    """Structural digest."""
    schedule: Schedule
    signature: str
    """Types of inputs and outputs."""
    status: Status
    """`ok`, or how the first pass that failed ended."""
    message: str
    passes: tuple[Pass, ...]
    """Those that did not fail, in their order."""
    identity: Identity
    """Of the machine and its toolchain."""
    source: KernelSource
    """Its graph and its kind."""
    program: ProgramSource
    """That it was first measured in: what data are split by."""
    description: str
    """Of the device, its calibration included; empty: not known."""
    compiled: CompiledFacts | None
    """What its compiler said; None: not known."""

    @property
    def us(self) -> float:
        """The fastest sample of all passes; infinite if the kernel failed."""
        return math.inf if self.status != "ok" else min(made.us for made in self.passes)

    @property
    def threads(self) -> int | None:
        """Workers that the kernel could use; None where the target has no such number."""
        return getattr(cast("Any", self.identity), "threads", None)


def observations(records: Iterable[Exported]) -> list[Observation]:
    """What was seen, in the order in which it was first seen.

    Records of which the kernel or its program is not known are left out, as are times of kernels that were given up.
    """
    found: dict[tuple[object, ...], list[Exported]] = {}
    for one in records:
        m = one.record.measurement
        base, _, suffix = m.policy.partition("+")
        if one.kernel is not None and one.program is not None and f"+{suffix}" != PRUNED:
            about = (m.kernel, m.schedule, one.record.device, m.described, m.code_version, m.input_values, base)
            found.setdefault(about, []).append(one)
    return [_observation(together) for together in found.values()]


def _observation(together: list[Exported]) -> Observation:
    first = together[0]
    m = first.record.measurement
    assert first.kernel is not None
    assert first.program is not None
    measured = sorted((one.record for one in together), key=lambda record: pass_number(record.measurement.policy))
    failed = next((record.measurement for record in measured if record.measurement.status != "ok"), None)
    passes = [
        Pass(record.measurement.samples_us, record.measurement.load, record.created_ns)
        for record in measured
        if record.measurement.status == "ok"
    ]
    return Observation(
        kernel=m.kernel,
        schedule=m.schedule,
        signature=m.signature,
        status="ok" if failed is None else failed.status,
        message="" if failed is None else failed.message,
        passes=tuple(passes),
        identity=first.identity,
        source=first.kernel,
        program=first.program,
        description=first.description,
        compiled=next((one.record.measurement.compiled for one in together if one.record.measurement.compiled), None),
    )


def pass_number(policy: str) -> int:
    """Of the pass that a record of a policy is of; the first one is 1."""
    _, _, suffix = policy.partition("+")
    if f"+{suffix}" == AGAIN:
        return 2
    number = f"+{suffix}".removeprefix(_PASS)
    return int(number) if number.isdecimal() else 1
