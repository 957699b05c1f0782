"""Measuring the numbers of a `CpuDescription` on this machine, and finding them again.

Every number comes from a kernel that the CPU backend compiles as it compiles any other. What cannot be measured keeps
its default.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import accumulate

from autofuse.cost_models.features import DotFeatures
from autofuse.errors import ArgumentError, MeasureError
from autofuse.host.cputimes import cpu_times
from autofuse.lazydataclass import dataclass, replace
from autofuse.measurement.timer import median
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.cost.disturbance import disturbance
from autofuse.targets.cpu.cost.farsteps import PAGE_BYTES
from autofuse.targets.cpu.cost.probes import (
    FORKS,
    THIN_COLUMNS,
    THIN_DEPTH,
    THIN_ROWS,
    Estimate,
    Probe,
    cache_probes,
    far_probes,
    fork_probes,
    instruction_probes,
    narrow,
    overlap_probe,
    product_probes,
    run_probes,
    stream_probes,
    thin_probe,
)
from autofuse.targets.cpu.device.calibrationstore import CalibrationStore
from autofuse.targets.cpu.device.describe import (
    DTYPES,
    OP_CLASSES,
    Calibration,
    CpuDescription,
    FarStep,
    Rate,
    narrow_of,
)
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.native.threadcount import get_num_threads, set_num_threads

Progress = Callable[[float, str], None]
"""Called with the share of the work done, 0..1, and what comes next."""
_Run = Callable[[float, str, float, int, list[Probe]], None]
"""(share of the time, what it is, share done before, threads, probes): measures."""

_LEAST_SHARE = 0.85
"""Of the CPU time that all threads could use while products are measured; with less, something else ran."""
_LARGEST_STREAM, _BEYOND_CACHE = 128 << 20, 2
"""A working set that main memory serves: bytes, and last-level caches, as virtual machines see those of whole hosts."""
_FAR_PAGES = (64, 512, 1024, 2048, 4096, 32768)
"""Numbers of pages that are walked in turns; the first are remembered by any processor, and their lines by its first
cache."""
_LEAST_FORK_US, _FORK_TRIES = 0.05, 3
"""Less than the two cache lines take that threads hand to one another: the difference of two disturbed times."""
_LEAST_BITS = 128
"""Of vectors: no narrower ones are worth using."""
_LEAST_PACKING = 0.05
"""Of the time of a thin product: least part of it that lays out its factors."""
_MEMORY_SHARE = 16
"""Streams use at most this part of main memory."""


class BusyError(MeasureError):
    """Other work disturbed a calibration."""


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibration and how well its numbers are known."""

    description: CpuDescription
    """With the measured numbers."""
    estimates: Mapping[str, Estimate]
    """What was measured: `exp/f32` and the like in elements, `l1`, `stream_8388608` in bytes, `blas/f32`, `fma/f32` in
    flops, per microsecond; with `/narrow` behind it, by vectors half as wide; with `@all`, by all threads."""
    contended: bool
    """Other work took the cores while all threads were measured: their numbers are one thread's, scaled as usual."""
    busy: str = ""
    """What shows that other work disturbed the measurement, for people; "" for a machine that was idle."""


def calibrate(
    seconds: float = 6.0,
    progress: Progress | None = None,
    threads: int | None = None,
    store: CalibrationStore | None = None,
    force: bool = False,
) -> CpuDescription:
    """Measure this machine in about `seconds`, keep the numbers in `store` (by default the user's), and return them.

    The machine must be idle, or `force` given. Raises BusyError, with nothing kept, if it was not; MeasureError if the
    numbers cannot be kept; ArgumentError for a time that is not positive or a bad thread count.
    """
    report = measured_calibration(seconds, progress, threads)
    if report.busy and not force:
        raise BusyError(
            f"the machine was busy while it was measured: {report.busy}; no numbers are kept. Calibrate again when it "
            "is idle, or keep what was measured all the same with force (autofuse calibrate --force)"
        )
    description = report.description
    (store or CalibrationStore()).save(description, description.calibration)
    return description


def measured_calibration(
    seconds: float = 6.0, progress: Progress | None = None, threads: int | None = None
) -> CalibrationReport:
    """Measure, and keep nothing. Raises ArgumentError for a time that is not positive or a bad thread count."""
    if not seconds > 0:
        raise ArgumentError(f"seconds={seconds}: give a positive time, e.g. 6.0")
    description = detect(threads)
    before = cpu_times()
    tell: Progress = progress or (lambda _done, _text: None)
    estimates: dict[str, Estimate] = {}

    def run(share: float, text: str, done: float, workers: int, probes: list[Probe]) -> None:
        tell(done, text)
        with _threads(workers):
            mark = "@all" if workers > 1 else ""
            found = run_probes(probes, share * seconds)
            estimates.update({name + mark: estimate for name, estimate in found.items()})

    many = description.threads
    streams = _stream_sizes(description)
    run(0.22, "instructions", 0.0, 1, instruction_probes())
    if description.vector_bits > _LEAST_BITS:
        half = description.vector_bits // 2
        first = cache_probes(description.l1d_bytes, description.l2_bytes)[:1]
        run(0.15, "narrow instructions", 0.22, 1, narrow([*instruction_probes(), *first], half))
    run(0.08, "caches", 0.37, 1, cache_probes(description.l1d_bytes, description.l2_bytes))
    for probe in stream_probes(streams):  # one at a time: each would push the others out of the cache
        run(0.15 / len(streams), "memory, one thread", 0.45, 1, [probe])
    for probe in far_probes(_far_pages(streams[-1])):
        run(0.01, "pages, one thread", 0.58, 1, [probe])
    run(0.02, "memory and arithmetic", 0.6, 1, [overlap_probe(streams[0])])
    run(0.1, "products, one thread", 0.62, 1, [*product_probes(1), thin_probe()])
    if many > 1:
        for probe in stream_probes(streams):
            run(0.12 / len(streams), "memory, all threads", 0.72, many, [probe])
        run(0.06, "products, all threads", 0.84, many, product_probes(many))
        _run_forks(run, many, estimates)
    contended = many > 1 and _share_of_cores(many, 0.02 * seconds) < _LEAST_SHARE
    busy = disturbance(before, cpu_times(), estimates, contended)
    if contended:
        estimates = {name: estimate for name, estimate in estimates.items() if not name.endswith("@all")}
    tell(1.0, "done; other work kept the cores busy: calibrate again on an idle machine" if contended else "done")
    numbers = assembled(description, estimates, streams)
    return CalibrationReport(description.with_calibration(numbers), estimates, contended, busy)


def _run_forks(run: _Run, many: int, found: Mapping[str, Estimate]) -> None:
    """Launches by one thread and by all, until their difference can be a time."""
    for _ in range(_FORK_TRIES):
        run(0.02, "launches", 0.9, 1, fork_probes(many))
        run(0.02, "fork and join", 0.92, many, fork_probes(many))
        if _fork_join_us(found, many) is not None:
            return


def _share_of_cores(workers: int, seconds: float) -> float:
    """CPU time over wall time and worker, while all workers multiply matrices."""
    probes = product_probes(workers)[:1]
    with _threads(workers):
        run_probes(probes, 0.0, least=1)  # what it compiles is kept
        wall, cpu = time.monotonic(), time.process_time()
        run_probes(probes, seconds, relative_interval=0.0)
        return (time.process_time() - cpu) / (time.monotonic() - wall) / workers


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = get_num_threads()
    set_num_threads(count)
    try:
        yield
    finally:
        set_num_threads(before)


def _stream_sizes(description: CpuDescription) -> list[int]:
    """Working sets from beyond the second-level caches to main memory, doubling."""
    size = 4 * description.l2_bytes
    wanted = max(_LARGEST_STREAM, _BEYOND_CACHE * description.l3_bytes)
    most = min(wanted, max(description.memory_bytes // _MEMORY_SHARE, 2 * size))
    sizes = [size]
    while sizes[-1] * 2 <= most:
        sizes.append(sizes[-1] * 2)
    return sizes


def _far_pages(most_bytes: int) -> list[int]:
    return [pages for pages in _FAR_PAGES if pages * PAGE_BYTES <= most_bytes]


def assembled(description: CpuDescription, found: Mapping[str, Estimate], streams: list[int]) -> Calibration:
    """The numbers of a calibration from what was measured, defaults elsewhere."""
    usual, threads = description.calibration, description.threads
    one, together = (
        {size: found[name].value for size in streams if (name := f"stream_{size}{mark}") in found}
        for mark in ("", "@all")
    )
    cache = last_cache_bytes(one) or usual.effective_l3_bytes
    fork_join_us = _fork_join_us(found, threads)
    numbers = {
        "l1_bytes_per_us": "l1",
        "l2_bytes_per_us": "l2",
        "l3_bytes_per_us": f"stream_{streams[0]}",
        "dram_bytes_per_us": f"stream_{streams[-1]}",
        "effective_l3_bytes": f"stream_{streams[0]}",
        "effective_l3_all_bytes": f"stream_{streams[0]}@all",
        "fork_join_us": "fork_1@all",
        "far_steps": f"far_read_{_FAR_PAGES[0]}",
        "unhidden": "overlap",
        "fma_flops_per_us": "fma/f32",
        "elements_per_us": "add/f32",
        "narrow_elements_per_us": "add/f32/narrow",
        "narrow_l1_bytes_per_us": "l1/narrow",
        "blas_gflops": "blas/f32",
        "packed_elements_per_us": "thin",
    }
    work = [f"{op_class}/{dtype}" for op_class in OP_CLASSES for dtype in DTYPES]
    elements = {name: _value(found, name, usual.elements_per_us[name]) for name in work}
    calibration = Calibration(
        source="measured",
        unmeasured=tuple(
            sorted(
                name
                for name, probe in numbers.items()
                if probe not in found or (name == "fork_join_us" and fork_join_us is None)
            )
        ),
        l1_bytes_per_us=_private(found, "l1", usual.l1_bytes_per_us, threads),
        l2_bytes_per_us=_private(found, "l2", usual.l2_bytes_per_us, threads),
        l3_bytes_per_us=_shared(found, f"stream_{streams[0]}", usual.l3_bytes_per_us),
        dram_bytes_per_us=_shared(found, f"stream_{streams[-1]}", usual.dram_bytes_per_us),
        effective_l3_bytes=cache,
        effective_l3_all_bytes=max(cache, last_cache_bytes(together) or 0),
        fork_join_us=usual.fork_join_us if fork_join_us is None else fork_join_us,
        far_steps=_far_steps(found) or usual.far_steps,
        unhidden=_unhidden(found, streams[0], usual.unhidden),
        headroom=usual.headroom,
        fma_flops_per_us={d: _value(found, f"fma/{d}", usual.fma_flops_per_us[d]) for d in DTYPES},
        elements_per_us=elements,
        narrow_elements_per_us={
            name: _value(found, f"{name}/narrow", rate) for name, rate in narrow_of(elements).items()
        },
        narrow_l1_bytes_per_us=_value(found, "l1/narrow", _value(found, "l1", usual.l1_bytes_per_us.one) / 2),
        blas_gflops={
            d: Rate(rate.one / 1e3, rate.all / 1e3)
            for d in DTYPES
            for rate in [_shared(found, f"blas/{d}", _scaled(usual.blas_gflops[d], 1e3))]
        },
        packed_elements_per_us=usual.packed_elements_per_us,
    )
    if "thin" not in found:
        return calibration
    return replace(
        calibration,
        packed_elements_per_us=_packed(description.with_calibration(calibration), 1.0 / found["thin"].value),
    )


def _packed(description: CpuDescription, thin_us: float) -> float:
    """Elements that BLAS lays out per microsecond: what a thin product takes beside multiplying."""
    dot = DotFeatures(THIN_ROWS, THIN_COLUMNS, THIN_DEPTH, 1, THIN_ROWS, "f32", True, 0.0)
    model = AnalyticalCpuModel(description)
    rest_us = thin_us - model.multiplying_us(dot)
    return model.laid_out(dot) / max(rest_us, _LEAST_PACKING * thin_us)


def _value(found: Mapping[str, Estimate], name: str, default: float) -> float:
    return found[name].value if name in found else default


def _scaled(rate: Rate, factor: float) -> Rate:
    return Rate(rate.one * factor, rate.all * factor)


def _private(found: Mapping[str, Estimate], name: str, default: Rate, threads: int) -> Rate:
    """Each core has a cache of its own: together they are as much faster as there are."""
    return Rate(found[name].value, found[name].value * threads) if name in found else default


def _shared(found: Mapping[str, Estimate], name: str, default: Rate) -> Rate:
    one = _value(found, name, default.one)
    usual = one * default.all / default.one
    return Rate(one, max(one, _value(found, f"{name}@all", usual)))


def last_cache_bytes(stream: Mapping[int, float]) -> int | None:
    """Of working sets and their bandwidths, the largest set served nearer to the first speed than to the last.

    A set is served at least as fast as a larger one. Between two sizes that were measured, the logarithm of the
    bandwidth is taken to fall with that of the size.
    """
    if not stream:
        return None
    sizes = sorted(stream)
    rates = list(accumulate((stream[size] for size in reversed(sizes)), max))[::-1]
    middle = (rates[0] * rates[-1]) ** 0.5
    slow = next((at for at, rate in enumerate(rates) if rate < middle), None)
    if slow is None:
        return sizes[-1]
    served, beyond = sizes[slow - 1], sizes[slow]
    share = math.log(rates[slow - 1] / middle) / math.log(rates[slow - 1] / rates[slow])
    return round(served * (beyond / served) ** share)


def _fork_join_us(found: Mapping[str, Estimate], threads: int) -> float | None:
    """What all workers add to a share each of a launch that follows another; None where it was not measured.

    The first of a row, which may wake them, is left out. A difference that is no time at all tells of other work.
    """
    names = [f"fork_{number}" for number in range(1, FORKS)]
    if not all(name in found and f"{name}@all" in found for name in names):
        return None
    alone, shared = (median([1.0 / found[name + mark].value for name in names]) for mark in ("", "@all"))
    us = shared - alone / threads
    return us if us >= _LEAST_FORK_US else None


def _far_steps(found: Mapping[str, Estimate]) -> tuple[FarStep, ...]:
    """What a step costs beyond one among the fewest pages; at least what it costs among fewer."""
    steps: list[FarStep] = []
    for pages in _FAR_PAGES:
        kinds = [f"far_{kind}_{pages}" for kind in ("read", "write")]
        if not all(name in found for name in kinds):
            break
        nearest = [found[f"far_{kind}_{_FAR_PAGES[0]}"].value for kind in ("read", "write")]
        cost = [max(0.0, 1.0 / found[name].value - 1.0 / near) for name, near in zip(kinds, nearest, strict=True)]
        before = steps[-1] if steps else FarStep(pages, 0.0, 0.0)
        steps.append(FarStep(pages, max(cost[0], before.read_us), max(cost[1], before.write_us)))
    return tuple(steps)


def _unhidden(found: Mapping[str, Estimate], total: int, default: float) -> float:
    """How far beyond the longer of its parts the time of exponentials of a stream lies, of the shorter one."""
    if not {"overlap", "exp/f32", f"stream_{total}"} <= set(found):
        return default
    together, computing = 1.0 / found["overlap"].value, 1.0 / found["exp/f32"].value
    moving = 8.0 / found[f"stream_{total}"].value
    return min(1.0, max(0.0, (together - max(computing, moving)) / min(computing, moving)))
