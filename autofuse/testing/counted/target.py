"""The device as a target: what the rest of autofuse asks of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.compiled import CompiledFacts
from autofuse.cost_models.features import KernelFeatures
from autofuse.errors import AutofuseError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.lazydataclass import replace
from autofuse.lower.limits import Limits
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.plan.document import PlanDocument
from autofuse.runtime.planlowering import LoweredKernel, lower_plan
from autofuse.targets.hostarrays import HostArrays
from autofuse.testing.counted.device import (
    COUNTED_DECISIONS,
    GENERATOR,
    CountedClock,
    CountedDevice,
    CountedIdentity,
)
from autofuse.testing.counted.executable import (
    Compiler,
    CountedExecutable,
    CountedKernel,
    build_executable,
    says_nothing,
)
from autofuse.testing.counted.hidden import Hidden
from autofuse.testing.counted.model import CountedModel
from autofuse.testing.counted.work import features


class CountedTarget:
    """See `autofuse.targets.base.Target`. Each has a clock of its own, which begins at 0."""

    backend = "counted"
    threads = 1
    computes_references = False

    def __init__(
        self, device: CountedDevice | None = None, hidden: Hidden | None = None, compiler: Compiler = says_nothing
    ) -> None:
        """`device`: by default the one that all processes have. `hidden`: what calls take, by default the work.

        `compiler`: what it says of kernels, which the model then adds to the work.
        """
        self.device, self.hidden, self.compiler = device or CountedDevice(), hidden or Hidden(), compiler
        self.clock = CountedClock()

    @property
    def identity(self) -> CountedIdentity:
        return CountedIdentity("work, counted", sha256(self.fingerprint().encode()).hexdigest(), GENERATOR)

    @property
    def limits(self) -> Limits:
        return Limits(scratch_bytes=self.device.scratch_bytes, workers=1, decisions=COUNTED_DECISIONS)

    def cost_model(self) -> CountedModel:
        return CountedModel(self.device)

    def features(self, program: TileProgram | OpaqueProgram) -> KernelFeatures:
        return features(program)

    def compiled(self, programs: Sequence[TileProgram | OpaqueProgram]) -> list[CompiledFacts | None]:
        return [self.compiler(program) for program in programs]

    def joined_us(self, kernels: Sequence[KernelFacts]) -> None:  # noqa: ARG002  # it counts the work of each
        return None

    def executable(self, document: PlanDocument, kernels: tuple[LoweredKernel, ...] | None = None) -> CountedExecutable:
        lowered = lower_plan(document, self.limits) if kernels is None else kernels
        return build_executable(document, lowered, self)

    def runners(
        self, kernel: KernelCandidate, schedules: Sequence[Schedule]
    ) -> Sequence[CountedKernel | AutofuseError]:
        return [self._runner(kernel, schedule) for schedule in schedules]

    def _runner(self, kernel: KernelCandidate, schedule: Schedule) -> CountedKernel | AutofuseError:
        scalars = max(self.limits.scalars, plain_scalars(kernel))
        try:
            program = lower(kernel, schedule, "kernel", replace(self.limits, scalars=scalars))
            return CountedKernel.of(program, kernel, schedule, self)
        except AutofuseError as refused:
            return refused

    def pause(self, seconds: float) -> None:
        """As long as it takes to say so."""
        self.clock.advance(round(1e9 * seconds))

    @property
    def arrays(self) -> HostArrays:
        return HostArrays(self.backend)

    def remarks(self, kernels: Sequence[LoweredKernel]) -> dict[str, tuple[str, ...]]:  # noqa: ARG002  # nothing to add
        return {}

    cache_bytes = 0
    """Its clock counts work, wherever data lie."""

    def entry_us(self, arrays: int) -> float:  # noqa: ARG002  # its clock counts kernels' work alone
        return 0.0

    def conditions(self) -> None:
        return None

    def library_note(self, program: TileProgram | OpaqueProgram) -> None:  # noqa: ARG002  # the protocol's
        return None

    def fingerprint(self) -> str:
        return json.dumps(self.device.to_json(), sort_keys=True)
