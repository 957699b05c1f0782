"""The time that moving bytes takes: which level serves them, and at what rate."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.cost_models.features import BufferFeatures, KernelFeatures, PhaseFeatures, Visits
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.device.describe import CpuDescription, Rate

_FILL = 0.6
"""Share of a cache that a loop's data can count on: the rest holds what else runs, and lines collide."""
_READ, _WRITE, _WRITE_NEAR = 2 / 3, 1.0, 4 / 3
"""A copy's bandwidth counts bytes read plus written. A line that is written is read first and comes back later, so it
crosses twice where one that is read crosses once: into the first cache all the same, farther away in part beside other
work."""
_STREAMED = 4 / 3
"""A byte written past the caches: its line is not read first, but it goes all the way."""
_REST = 0.25
"""Share of the other boundaries' time that the slowest one does not hide."""

_BOTH = 2.0
"""Bytes that a kernel and the one before it touch, of those that it touches."""


@dataclass(frozen=True, slots=True)
class _Boundary:
    """Between a cache and the level that serves its misses."""

    capacity: Rate
    """Bytes of the cache that one thread uses alone, and of those that all use together."""
    rate: Rate
    """Bytes per microsecond of a copy out of the level beyond."""
    inner: int
    """Number of the cache's level: 0 for the first."""


class MemoryModel:
    """Memory times on one CPU. Bytes and microseconds."""

    def __init__(self, description: CpuDescription, *, alone: bool = False) -> None:
        """`alone`: see `AnalyticalCpuModel`."""
        numbers = description.calibration
        self._alone = alone
        self._threads = description.threads
        self._first = numbers.l1_bytes_per_us
        threads = description.threads
        private = (Rate(size, size * threads) for size in (description.l1d_bytes, description.l2_bytes))
        one, together = numbers.effective_l3_bytes, numbers.effective_l3_all_bytes
        last = Rate(max(one, description.l2_bytes), max(one, together, description.l2_bytes * threads))
        rates = numbers.l2_bytes_per_us, numbers.l3_bytes_per_us, numbers.dram_bytes_per_us
        self._boundaries = tuple(map(_Boundary, (*private, last), rates, range(3)))

    def phase_us(self, phase: PhaseFeatures, kernel: KernelFeatures, workers: float) -> float:
        """All bytes of a phase, moved by `workers` cores at once."""
        return _together(self._boundary_us(phase, kernel, workers))

    def near_and_far_us(self, phase: PhaseFeatures, kernel: KernelFeatures, workers: float) -> tuple[float, float]:
        """The same bytes: those that move between the two nearest caches, and those that come from beyond."""
        near, *far = self._boundary_us(phase, kernel, workers)
        return near, _together(far)

    def _boundary_us(self, phase: PhaseFeatures, kernel: KernelFeatures, workers: float) -> list[float]:
        least_read, least_written = phase.reuse.traffic(float("inf"))
        times: list[float] = []
        past = _STREAMED * least_written if kernel.stream_stores and not any(s.reduces for s in phase.stages) else 0.0
        for boundary in self._boundaries:
            read, written = phase.reuse.traffic(_FILL * self._rate(boundary.capacity, workers) / max(workers, 1.0))
            resident = self._resident(kernel, boundary, workers)
            read, written = read - resident * least_read, written - resident * least_written
            if past:
                written = past if boundary is self._boundaries[-1] else 0.0
            weight = _WRITE if boundary.inner else _WRITE_NEAR
            times.append((_READ * read + weight * written) / self._rate(boundary.rate, workers))
        return times

    def visited_us(self, visits: Visits, workers: int) -> float:
        """What loops that visit lines at run-time positions bring from beyond the second cache, with all workers.

        Between the first two caches, as many visits are under way at a time as hide what moves.
        """
        times = [0.0]
        for boundary in self._boundaries[1:]:
            read, written = visits.traffic(_FILL * self._rate(boundary.capacity, workers) / workers)
            times.append((_READ * read + _WRITE * written) / self._rate(boundary.rate, workers))
        return _together(times)

    def write_us(self, nbytes: int) -> float:
        """Writing one value, by all threads, to the nearest level that holds it and as much again."""
        for boundary in self._boundaries[1:]:
            if 2 * nbytes <= boundary.capacity.all:
                return _WRITE * nbytes / self._level_before(boundary).all
        return _WRITE * nbytes / self._boundaries[-1].rate.all

    def copy_bytes_per_us(self, footprint: int, workers: int = 1) -> float:
        """What so many threads together copy when `footprint` bytes are in use."""
        before = self._first
        for boundary in self._boundaries:
            if footprint <= self._rate(boundary.capacity, workers):
                break
            before = boundary.rate
        return self._rate(before, workers)

    def _level_before(self, boundary: _Boundary) -> Rate:
        """The rate out of the cache itself."""
        return self._boundaries[boundary.inner - 1].rate

    def _rate(self, rate: Rate, workers: float) -> float:
        if self._threads == 1:
            return rate.one
        return rate.one + (rate.all - rate.one) * (workers - 1) / (self._threads - 1)

    def _resident(self, kernel: KernelFeatures, boundary: _Boundary, workers: float) -> float:
        """The share of a kernel's buffers that lies in this cache when the kernel starts.

        They lie where the kernel before it in a plan leaves them, which is taken to touch as much: in the cache if the
        buffers of both fit, gone if they are twice as large. Caches of the last level do not add up: what one thread
        wrote another one reads. A kernel that runs alone, over and over, finds its own buffers where it left them.
        """
        capacity, total = self._rate(boundary.capacity, workers), float(sum(_touched(b) for b in kernel.buffers))
        if not self._alone:
            total *= _BOTH
            capacity = boundary.capacity.one if boundary is self._boundaries[-1] else capacity
        if total == 0:
            return 1.0
        return min(1.0, max(0.0, 2.0 - total / (_FILL * capacity)))


def _together(times: Sequence[float]) -> float:
    """Boundaries that work side by side."""
    slowest = max(times)
    return slowest + _REST * (sum(times) - slowest)


def _touched(buffer: BufferFeatures) -> int:
    return max(buffer.read_bytes, buffer.written_bytes)
