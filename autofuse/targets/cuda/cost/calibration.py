"""Measuring the rates of a GPU by small kernels, which are generated, compiled and run as any others.

Each kernel is made so that one term of the model is the longest. The rate behind that term becomes what makes the model
right about the kernel. What cannot be measured so keeps its rate: where other terms were longer, or a kernel failed. No
kernel in strict arithmetic is bound by approximated functions alone, so their rate is the data sheet's, as are
latencies and the rate of matrix units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autofuse.cost_models.base import KernelFacts
from autofuse.errors import AutofuseError, MeasureError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.dtypes import F32
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.measurement.timer import Clock, TimingPolicy, measure
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.base import Target
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cost.rates import Rates
from autofuse.targets.cuda.cost.terms import Terms
from autofuse.targets.cuda.gpus import Gpu

Report = Callable[[float, str], None]
_ADDITIONS = 200
_STREAMED, _HELD = 4.0, 0.125
"""Sizes of arrays for memory and for the L2, in sizes of the L2."""
_RANGE, _EXACT = 64.0, 1.001
"""A rate is looked for within so many times the one to begin with, until it is known to so much."""
_DECIDES = 1.1
"""A kernel that takes little longer than at any rate does not tell the rate."""
_SEVERAL = 6
"""Launches in a row, which the host starts while the device is kept busy behind a reading of its clock."""
_LEAST_US = 0.1
"""Of a launch."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """A kernel, and the rate that it is for."""

    rate: str
    """A field of `Rates`."""
    what: str
    """For people."""
    kernel: KernelCandidate


def measured_rates(target: Target, start: Rates, seconds: float, report: Report, clock: Clock) -> Rates:
    """Rates of the target's device. `start`: kept where nothing can be measured. `clock`: nanoseconds, on the device.

    It takes about so many seconds. Raises MeasureError if even an empty launch cannot be measured.
    """
    gpu: Gpu = target.device
    probes = _probes(gpu)
    share_us = 0.5e6 * seconds / (len(probes) + 2)
    policy = TimingPolicy(warmup_us=min(2000.0, share_us / 10), time_cap_us=share_us)
    report(0.0, "launches")
    empty = _chain("negate", 1, 1)
    us, several_us = (_us(target, empty, policy, clock, times) for times in (1, _SEVERAL))
    if not math.isfinite(us):
        raise MeasureError(f"{gpu.name}: no kernel could be measured, so there are no rates to keep")
    (terms,) = _terms(target, empty, start)
    each_us = (several_us - us) / (_SEVERAL - 1)
    launch_us = max(each_us - (terms.us - terms.start), _LEAST_US)
    rates = replace(start, launch_us=launch_us, alone_us=max(us - each_us, _LEAST_US / 100), source="measured")
    for number, probe in enumerate(probes, 1):
        report(number / (len(probes) + 1), probe.what)
        rates = _corrected(target, probe, rates, _us(target, probe.kernel, policy, clock))
    report(1.0, "done")
    return rates


def _probes(gpu: Gpu) -> Sequence[_Probe]:
    streamed = max(1 << 12, int(_STREAMED * gpu.l2_bytes) // 4)
    held = max(1 << 12, int(_HELD * gpu.l2_bytes) // 4)
    return (
        _Probe("memory_bytes_per_s", "memory", _chain("negate", 1, streamed)),
        _Probe("l2_bytes_per_s", "L2", _chain("negate", 1, held)),
        _Probe("issues_per_s", "instructions", _chain("add", _ADDITIONS, held)),
        _Probe("product_flops", "products", _product(128 * max(1, math.isqrt(gpu.multiprocessors)))),
    )


def _chain(op: str, length: int, size: int) -> KernelCandidate:
    """An operation on an array, over and over."""
    build = GraphBuilder("probe")
    x = value = build.input(TensorType((size,), F32), "x")
    for _ in range(length):
        value = build.emit(op, [value, x] if op == "add" else [value])
    graph = build.finish([value])
    return candidate_of(graph, [node.name for node in graph.nodes], [value.name])


def _product(width: int) -> KernelCandidate:
    build = GraphBuilder("probe")
    kind = TensorType((width, width), F32)
    value = build.emit(
        "dot_general",
        [build.input(kind, "x"), build.input(kind, "y")],
        lhs_batching_dimensions=(),
        rhs_batching_dimensions=(),
        lhs_contracting_dimensions=(1,),
        rhs_contracting_dimensions=(0,),
    )
    graph = build.finish([value])
    return candidate_of(graph, [node.name for node in graph.nodes], [value.name])


def _us(target: Target, kernel: KernelCandidate, policy: TimingPolicy, clock: Clock, times: int = 1) -> float:
    """Of one call among many, or of so many that follow each other; infinite if it fails."""
    (runner,) = target.runners(kernel, [Schedule()])
    if isinstance(runner, AutofuseError):
        return math.inf
    inputs = [np.linspace(1, 2, v.type.size, dtype=np.float32).reshape(v.type.shape) for v in kernel.inputs]
    outs = [np.empty(value.type.shape, np.float32) for value in kernel.outputs]
    try:
        call = runner.bound(inputs, outs)
        return measure(lambda: [call() for _ in range(times)], policy, clock).median_us
    except AutofuseError:
        return math.inf


def _corrected(target: Target, probe: _Probe, rates: Rates, us: float) -> Rates:
    """Rates with which the model is right about a probe that took so long."""
    left = us - rates.launch_us - rates.alone_us
    if not math.isfinite(us) or left <= 0:
        return rates

    def longest(factor: float) -> tuple[Rates, float]:
        """Rates with that one times a factor, and what the model then says that the kernel takes after its start."""
        tried = replace(rates, **{probe.rate: factor * getattr(rates, probe.rate)})
        (terms,) = _terms(target, probe.kernel, tried)
        return tried, terms.us - terms.start

    low, high = 1.0 / _RANGE, _RANGE
    if not longest(high)[1] * _DECIDES < left < longest(low)[1]:
        return rates
    while high / low > _EXACT:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if longest(middle)[1] > left else (low, middle)
    return longest(high)[0]


def _terms(target: Target, kernel: KernelCandidate, rates: Rates) -> tuple[Terms, ...]:
    program = lower(kernel, Schedule(), "probe", target.limits)
    (facts,) = target.compiled([program])
    return GpuModel(target.device, rates).launches(KernelFacts(program, facts))
