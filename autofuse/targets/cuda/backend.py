"""CUDA as a target. Kernels are generated and compiled; plans do not run on it yet."""

from __future__ import annotations

import ctypes.util
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from autofuse.errors import BackendError
from autofuse.plan.identity import Identity
from autofuse.targets.cuda.decisions import CUDA_DECISIONS
from autofuse.targets.cuda.identity import GpuIdentity

if TYPE_CHECKING:
    from autofuse.targets.base import Findings

_NOT_YET = (
    "plans are neither made for CUDA nor run on it by this version, though single kernels are (see"
    " autofuse.targets.cuda): use backend='cpu'"
)


class CudaBackend:
    """GPUs under CUDA. See `autofuse.targets.base.Backend`."""

    name = "cuda"
    decisions = CUDA_DECISIONS
    identity_type = GpuIdentity

    def target(self, threads: int | None = None) -> NoReturn:  # noqa: ARG002  # the protocol's
        raise BackendError(f"backend='cuda': {_NOT_YET}")

    def target_of(self, identity: Identity) -> NoReturn:
        raise BackendError(f"this plan is for {identity.backend}: {_NOT_YET}")

    def prepare(self) -> None:
        """Nothing takes time."""

    def ready(self, name: bytes) -> None:  # noqa: ARG002  # the protocol's
        return None

    def calibrate(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002  # the protocol's
        raise BackendError(f"backend='cuda': {_NOT_YET}")

    def diagnosis(self, *, ask_driver: bool) -> Findings:
        from autofuse.targets.base import Findings
        from autofuse.targets.cuda import nvrtc

        facts: dict[str, Any] = {
            "driver": ctypes.util.find_library("cuda"),
            "nvrtc": ".".join(map(str, nvrtc.version())) if nvrtc.is_available() else None,
        }
        facts |= _devices() if ask_driver else {}
        parts = [f"driver {facts['driver'] or 'not found'}", f"NVRTC {facts['nvrtc'] or 'not found'}"]
        if "devices" in facts:
            parts.append(f"devices: {', '.join(facts['devices']) or facts.get('problem', 'none')}")
        return Findings(facts, (("cuda", ", ".join(parts)),))


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
