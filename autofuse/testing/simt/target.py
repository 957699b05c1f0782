"""The simulated device as a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.compiled import CompiledFacts
from autofuse.lazydataclass import dataclass, fields, replace
from autofuse.lower.limits import Limits
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.identity import GpuIdentity
from autofuse.targets.cuda.target import CudaTarget
from autofuse.testing.simt.device import SLOWER, SimulatedDriver, SimulatedModel


@dataclass(frozen=True, slots=True)
class SimulatedIdentity(GpuIdentity):
    """For what a plan was made: as of the GPU that it is like."""

    backend: ClassVar[str] = "simulated"


class SimulatedTarget(CudaTarget):
    """See `autofuse.targets.base.Target`."""

    def __init__(self, device: Gpu, driver: SimulatedDriver, backend: str) -> None:
        """`device`: what the driver is like."""
        super().__init__(device, driver, backend)
        self.driver: SimulatedDriver = driver

    def cost_model(self) -> GpuModel:
        return SimulatedModel(self.device, self.rates)

    def compiled(self, programs: Sequence[TileProgram | OpaqueProgram]) -> list[CompiledFacts | None]:
        """Nothing: the host's compiler compiles what runs here."""
        return [None] * len(programs)

    def joined_us(self, kernels: Sequence[KernelFacts]) -> float:
        return SLOWER * super().joined_us(kernels)

    @property
    def limits(self) -> Limits:
        found = super().limits
        iteration_us = None if found.iteration_us is None else SLOWER * found.iteration_us
        return replace(found, small_us=SLOWER * found.small_us, iteration_us=iteration_us)

    def entry_us(self, arrays: int) -> float:  # noqa: ARG002  # kernels start alike, whatever is before them
        return 0.0

    def pause(self, seconds: float) -> None:
        self.driver.advance(round(1e9 * seconds))

    @property
    def identity(self) -> SimulatedIdentity:
        like = super().identity
        return SimulatedIdentity(**{field.name: getattr(like, field.name) for field in fields(like)})
