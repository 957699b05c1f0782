"""GPUs under CUDA as a target: what the rest of autofuse asks of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from autofuse.errors import ArgumentError, BackendError

if TYPE_CHECKING:  # as of every backend: imported when it is asked for
    from collections.abc import Callable

    from autofuse.lower.decisions import Decisions
    from autofuse.plan.identity import Identity
    from autofuse.targets.base import Calibrated, Findings
    from autofuse.targets.cuda.identity import GpuIdentity
    from autofuse.targets.cuda.target import CudaTarget


class CudaBackend:
    """GPUs under CUDA. See `autofuse.targets.base.Backend`."""

    name = "cuda"

    @property
    def decisions(self) -> Decisions:
        from autofuse.targets.cuda.decisions import CUDA_DECISIONS

        return CUDA_DECISIONS

    @property
    def identity_type(self) -> type[GpuIdentity]:
        from autofuse.targets.cuda.identity import GpuIdentity

        return GpuIdentity

    def target(self, threads: int | None = None, device: str | None = None) -> CudaTarget:
        from autofuse.targets.cuda.gpus import gpu_by_name
        from autofuse.targets.cuda.launch import gpu_problem
        from autofuse.targets.cuda.target import CudaTarget

        require_no_threads(self.name, threads)
        wanted = None if device is None else gpu_by_name(device)
        problem = gpu_problem()
        if problem is None:
            from autofuse.targets.cuda.cost.ratestore import kept_rates
            from autofuse.targets.cuda.cupydriver import CupyDriver

            driver = CupyDriver.current()
            if wanted is None or wanted == driver.gpu:
                return CudaTarget(driver.gpu, driver, rates=kept_rates(driver))
        if wanted is None:
            raise BackendError(
                f"backend='cuda': {problem}; name a GPU to make plans for one that is not here: device='h200'"
            )
        return CudaTarget(wanted, None)

    def target_of(self, identity: Identity) -> CudaTarget:
        from autofuse.targets.cuda.gpus import ALL
        from autofuse.targets.cuda.launch import gpu_problem

        if gpu_problem() is None:
            return self.target()
        known = next((key for key, gpu in ALL.items() if gpu.name == identity.product), None)
        if known is None:
            raise BackendError(f"this plan is for a {identity.product}, and there is no GPU here to look at it for")
        return self.target(device=known)

    def apart(self, most: int) -> list[dict[str, str]]:
        from autofuse.targets.cuda.launch import cupy_with_gpu

        count = int(cupy_with_gpu().cuda.runtime.getDeviceCount())
        return [{"CUDA_VISIBLE_DEVICES": name} for name in _visible(count, os.environ)[:most]]

    def prepare(self) -> None:
        """Nothing takes time."""

    def ready(self, name: bytes) -> None:  # noqa: ARG002  # the protocol's
        return None

    def calibrate(
        self,
        seconds: float,
        report: Callable[[float, str], None],
        threads: int | None,
        *,
        force: bool,  # noqa: ARG002  # a GPU that others use is not told from a slow one
    ) -> Calibrated:
        from autofuse.targets.cuda.reporting import calibrated

        require_no_threads(self.name, threads)
        return calibrated(self.target(), seconds, report)

    def diagnosis(self, *, ask_driver: bool) -> Findings:
        from autofuse.targets.base import Findings
        from autofuse.targets.cuda import nvrtc
        from autofuse.targets.cuda.launch import driver_library

        facts: dict[str, Any] = {
            "driver": driver_library(),
            "nvrtc": ".".join(map(str, nvrtc.version())) if nvrtc.is_available() else None,
        }
        facts |= _devices() if ask_driver else {}
        parts = [f"driver {facts['driver'] or 'not found'}", f"NVRTC {facts['nvrtc'] or 'not found'}"]
        if "devices" in facts:
            parts.append(f"devices: {', '.join(facts['devices']) or facts.get('problem', 'none')}")
        return Findings(facts, (("cuda", ", ".join(parts)),))


def require_no_threads(name: str, threads: int | None) -> None:
    """Raise ArgumentError for threads: a GPU's are not chosen so."""
    if threads is not None:
        raise ArgumentError(
            f"threads={threads!r:.80}: must be None for backend={name!r}, whose kernels choose their own"
        )


def _visible(count: int, environment: Mapping[str, str]) -> list[str]:
    """What CUDA calls the devices that this process sees: by number, or as `CUDA_VISIBLE_DEVICES` lists them."""
    listed = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return (listed or [str(number) for number in range(count)])[:count]


def _devices() -> dict[str, Any]:
    try:
        cupy: Any = import_module("cupy")
    except ImportError as failure:
        return {"devices": [], "problem": f"CuPy cannot be imported: {failure}"}
    runtime = cupy.cuda.runtime
    try:
        names = [runtime.getDeviceProperties(n)["name"].decode() for n in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError as failure:
        return {"devices": [], "problem": str(failure)}
    return {"devices": names}
