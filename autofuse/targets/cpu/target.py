"""One CPU as a target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING

from autofuse.errors import AutofuseError
from autofuse.targets.cpu.device.describe import CpuDescription
from autofuse.targets.cpu.identity import CpuIdentity, host_cpu_identity
from autofuse.targets.hostarrays import HostArrays

if TYPE_CHECKING:  # imported when it is asked for
    from autofuse.cost_models.base import KernelFacts
    from autofuse.cost_models.features import KernelFeatures
    from autofuse.fusion.candidate import KernelCandidate
    from autofuse.lower.limits import Limits
    from autofuse.lower.schedule import Schedule
    from autofuse.lower.tile import OpaqueProgram, TileProgram
    from autofuse.plan.document import PlanDocument
    from autofuse.runtime.planlowering import LoweredKernel
    from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
    from autofuse.targets.cpu.executable import CpuExecutable
    from autofuse.targets.cpu.runners import CpuRunner

_CLASSES_A_KIND = 8
"""See `Limits`: of the workloads, a plan with as many kernels tried as usual is 0.1 % better by the model at most."""


_ITERATION_US = 0.1
"""Of the driver: moving the pointers of a frame and looking at the clock."""


class CpuTarget:
    """One CPU. See `autofuse.targets.base.Target`."""

    backend = "cpu"
    computes_references = False

    def __init__(self, device: CpuDescription, limits: Limits | None = None) -> None:
        """`limits`: by default those of the device."""
        self.device, self._limits = device, limits
        self.threads = device.threads

    @property
    def identity(self) -> CpuIdentity:
        return self._known_identity

    @property
    def limits(self) -> Limits:
        return self._known_limits

    @cached_property
    def _known_identity(self) -> CpuIdentity:
        return host_cpu_identity(self.device)

    @cached_property
    def _known_limits(self) -> Limits:
        """Half of the L2 for values kept on chip, and the number of workers."""
        if self._limits is not None:
            return self._limits
        from autofuse.lower.limits import Limits
        from autofuse.targets.cpu.decisions import cpu_decisions
        from autofuse.targets.cpu.passes.prepare import CpuPasses
        from autofuse.targets.cpu.workspaces import CpuWorkspaces

        return Limits(
            scratch_bytes=max(self.device.l2_bytes // 2, 128 << 10),
            workers=self.device.threads,
            tile_columns=True,
            joins_rows=True,
            overlaps=True,
            decisions=cpu_decisions(self.device.vector_bits),
            passes=CpuPasses(self.device.vector_bits),
            workspaces=CpuWorkspaces(self.device.vector_bits),
            classes_a_kind=_CLASSES_A_KIND,
            estimates=True,
            sorts=True,
            prologues=True,
            iteration_us=_ITERATION_US,
            updates=True,
            overwrites=True,
        )

    def cost_model(self) -> AnalyticalCpuModel:
        from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel

        return AnalyticalCpuModel(self.device)

    def features(self, program: TileProgram | OpaqueProgram) -> KernelFeatures:
        from autofuse.targets.cpu.cost.extract import features

        return features(program, vector_bits=self.device.vector_bits)

    def compiled(self, programs: Sequence[TileProgram | OpaqueProgram]) -> list[None]:
        """Nothing: compiling takes as long as all else before a first call, so its model estimates what spills."""
        return [None] * len(programs)

    def joined_us(self, kernels: Sequence[KernelFacts]) -> None:  # the protocol's
        """Nothing: its model prices kernels alone, and what groups save shows where whole plans are compared."""

    def executable(self, document: PlanDocument, kernels: tuple[LoweredKernel, ...] | None = None) -> CpuExecutable:
        from autofuse.targets.cpu.executable import build_executable

        return build_executable(document, self.limits, kernels=kernels)

    def runners(self, kernel: KernelCandidate, schedules: Sequence[Schedule]) -> Sequence[CpuRunner | AutofuseError]:
        from autofuse.targets.cpu.runners import cpu_runners

        return cpu_runners(kernel, schedules, self.limits, self.threads, tells=True)

    @property
    def arrays(self) -> HostArrays:
        return HostArrays(self.backend)

    def remarks(self, kernels: Sequence[LoweredKernel]) -> dict[str, tuple[str, ...]]:  # noqa: ARG002  # nothing to add
        return {}

    @property
    def cache_bytes(self) -> int:
        return max(self.device.l2_bytes * self.device.cores, self.device.l3_bytes)

    def entry_us(self, arrays: int) -> float:
        from autofuse.targets.cpu.entrycost import entry_cost

        return entry_cost().of(arrays)

    def conditions(self) -> None:
        return None

    def library_note(self, program: TileProgram | OpaqueProgram) -> None:  # noqa: ARG002  # the protocol's
        return None

    def __repr__(self) -> str:
        return f"<autofuse target {self.backend}: {self.device.model}, {self.threads} threads>"

    def fingerprint(self) -> str:
        return json.dumps(self.device.to_json(), sort_keys=True)

    def clock(self) -> int:
        return perf_counter_ns()

    def pause(self, seconds: float) -> None:
        sleep(seconds)
