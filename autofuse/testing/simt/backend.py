"""The kind of target whose only device is simulated: CUDA without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from autofuse.errors import BackendError
from autofuse.targets.cuda.backend import CudaBackend, require_no_threads

if TYPE_CHECKING:  # as of every backend: imported when it is asked for
    from autofuse.plan.identity import Identity
    from autofuse.targets.base import Findings
    from autofuse.targets.cuda.target import CudaTarget
    from autofuse.testing.simt.device import SimulatedDriver
    from autofuse.testing.simt.target import SimulatedIdentity


class SimulatedBackend(CudaBackend):
    """See `autofuse.targets.base.Backend`. `device`: which GPU to be like, by default an H200."""

    name = "simulated"

    def __init__(self) -> None:
        self._devices: dict[str, SimulatedDriver] = {}
        """Those of this process, by name: one of each."""

    @property
    def identity_type(self) -> type[SimulatedIdentity]:
        from autofuse.testing.simt.target import SimulatedIdentity

        return SimulatedIdentity

    def target(self, threads: int | None = None, device: str | None = None) -> CudaTarget:
        from autofuse.targets.cuda.gpus import gpu_by_name
        from autofuse.testing.simt.device import SimulatedDriver
        from autofuse.testing.simt.target import SimulatedTarget

        require_no_threads(self.name, threads)
        gpu = gpu_by_name(device or "h200")
        if gpu.name not in self._devices:
            self._devices[gpu.name] = SimulatedDriver(gpu)
        return SimulatedTarget(gpu, self._devices[gpu.name], self.name)

    def target_of(self, identity: Identity) -> CudaTarget:
        from autofuse.targets.cuda.gpus import ALL

        return self.target(device=next((key for key, gpu in ALL.items() if gpu.name == identity.product), None))

    def apart(self, most: int) -> list[dict[str, str]]:
        return [{} for _ in range(most)]

    def calibrate(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002  # the protocol's
        raise BackendError("backend='simulated': its times are the model's, so there is nothing to measure")

    def diagnosis(self, *, ask_driver: bool) -> Findings:  # noqa: ARG002  # there is none to ask
        from autofuse.targets.base import Findings

        return Findings({"device": "h200"}, (("simulated", "runs CUDA kernels on the host, for tests"),))
