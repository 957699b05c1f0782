"""The CPU as a target: what the rest of autofuse asks of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from autofuse.errors import ArgumentError

if TYPE_CHECKING:  # a plan that an earlier process made ready needs none of these
    from autofuse.lower.decisions import Decisions
    from autofuse.plan.identity import Identity
    from autofuse.targets.base import Calibrated, Findings
    from autofuse.targets.cpu.identity import CpuIdentity
    from autofuse.targets.cpu.native.entry import NativeProgram
    from autofuse.targets.cpu.target import CpuTarget


class CpuBackend:
    """The CPU. See `autofuse.targets.base.Backend`."""

    name = "cpu"

    @property
    def decisions(self) -> Decisions:
        from autofuse.targets.cpu.decisions import CPU_DECISIONS

        return CPU_DECISIONS

    @property
    def identity_type(self) -> type[CpuIdentity]:
        from autofuse.targets.cpu.identity import CpuIdentity

        return CpuIdentity

    def target(self, threads: int | None = None, device: str | None = None) -> CpuTarget:
        from autofuse.targets.cpu.device.calibrationstore import described_cpu
        from autofuse.targets.cpu.target import CpuTarget

        if device is not None:
            raise ArgumentError(f"device={device!r:.80}: must be None for backend='cpu', which is this machine's CPU")
        return CpuTarget(described_cpu(threads))

    def target_of(self, identity: Identity) -> CpuTarget:
        if isinstance(identity, self.identity_type):
            try:
                return self.target(identity.threads)
            except ArgumentError:  # a smaller machine
                return self.target()
        return self.target()

    def apart(self, most: int) -> list[dict[str, str]]:
        return [{}][:most]

    def prepare(self) -> None:
        from autofuse.targets.cpu.native.nativeruntime import prepare_runtime

        prepare_runtime()

    def ready(self, name: bytes) -> NativeProgram | None:
        from autofuse.targets.cpu.native import prepared

        return prepared.find(name)

    def calibrate(
        self, seconds: float, report: Callable[[float, str], None], threads: int | None, *, force: bool
    ) -> Calibrated:
        from autofuse.targets.cpu.cost.calibration import calibrate
        from autofuse.targets.cpu.reporting import cpu_calibrated

        return cpu_calibrated(calibrate(seconds, report, threads, force=force))

    def diagnosis(self, *, ask_driver: bool) -> Findings:  # noqa: ARG002  # there is none to ask
        from autofuse.targets.cpu.reporting import cpu_findings

        target = self.target()
        return cpu_findings(target.device, target.identity)
