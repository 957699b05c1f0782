"""One GPU as a target: one of this machine, or one that is only described."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import sleep

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.compiled import CompiledFacts
from autofuse.cost_models.features import KernelFeatures
from autofuse.errors import AutofuseError, BackendError
from autofuse.fusion.candidate import KernelCandidate
from autofuse.lazydataclass import asdict
from autofuse.lower.limits import Limits
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.plan.document import PlanDocument
from autofuse.plan.verify import MAX_GROUP_PLACES
from autofuse.runtime.planlowering import LoweredKernel, lower_plan
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen.producttiles import SIDE
from autofuse.targets.cuda.codes import codes_of
from autofuse.targets.cuda.cost.counts import features
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cost.rates import Rates, sheet_rates
from autofuse.targets.cuda.decisions import CUDA_DECISIONS, LIBRARY
from autofuse.targets.cuda.devicearrays import DeviceArrays
from autofuse.targets.cuda.driver import Driver
from autofuse.targets.cuda.executable import CudaExecutable, build_executable
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.horizontal import StartedProgram, joined_us, most_parameter_bytes, started
from autofuse.targets.cuda.identity import GpuIdentity, gpu_identity
from autofuse.targets.cuda.librarysteps import library_note
from autofuse.targets.cuda.passes.prepare import CudaPasses
from autofuse.targets.cuda.passes.splits import SplitByDevice
from autofuse.targets.cuda.resources import compiled_facts, launch_lines
from autofuse.targets.cuda.runners import CudaRunner, cuda_runners
from autofuse.targets.cuda.streams import streams_of
from autofuse.targets.cuda.workspaces import CudaWorkspaces

_ITERATION_US = 15.0
"""That the host takes for an iteration of a loop beside its kernels: a guess, of what Python does for one."""
_DRIVEN = "the host starts the kernels inside; what they compute stays on the device"


class CudaTarget:
    """See `autofuse.targets.base.Target`."""

    threads = 1
    """Kernels of a plan run one after another."""
    computes_references = True

    def __init__(self, device: Gpu, driver: Driver | None, backend: str = "cuda", rates: Rates | None = None) -> None:
        """`driver`: of the device; None if it is not here, and kernels can only be made for it.

        `rates`: by default those of the data sheet.
        """
        self.device, self.driver, self.backend = device, driver, backend
        self.rates = sheet_rates(device) if rates is None else rates

    @property
    def identity(self) -> GpuIdentity:
        if self.driver is None:
            return gpu_identity(self.device, nvrtc=nvrtc.version_text())
        return gpu_identity(
            self.device,
            nvrtc=nvrtc.version_text(),
            driver=self.driver.version(),
            library=self.driver.library(),
            cublas=self.driver.cublas_version(),
        )

    @property
    def limits(self) -> Limits:
        return Limits(
            scratch_bytes=self.device.shared_bytes_per_block,
            workers=self.device.multiprocessors,
            least_rows=SIDE,
            doubts_rows=True,
            cuts_rows=True,
            widens=True,
            decisions=CUDA_DECISIONS if self._has_cublaslt else CUDA_DECISIONS.without_trying(LIBRARY),
            passes=CudaPasses(self.device.arch),
            workspaces=CudaWorkspaces(self.device.arch),
            updates=True,
            splitting=SplitByDevice(self.device.multiprocessors),
            most_together=MAX_GROUP_PLACES,
            replays=True,
            iteration_us=_ITERATION_US,
        )

    @property
    def _has_cublaslt(self) -> bool:
        return self.driver is not None and bool(self.driver.cublas_version())

    def cost_model(self) -> GpuModel:
        return GpuModel(self.device, self.rates)

    def features(self, program: TileProgram | OpaqueProgram) -> KernelFeatures:
        return features(program, self.device.arch)

    def compiled(self, programs: Sequence[TileProgram | OpaqueProgram]) -> list[CompiledFacts | None]:
        return compiled_facts(programs, self.device.arch)

    def joined_us(self, kernels: Sequence[KernelFacts]) -> float:
        return joined_us(kernels, self.device, most_parameter_bytes(self.driver))

    def executable(self, document: PlanDocument, kernels: tuple[LoweredKernel, ...] | None = None) -> CudaExecutable:
        lowered = lower_plan(document, self.limits) if kernels is None else kernels
        return build_executable(document, lowered, self.device, self.driver)

    def runners(self, kernel: KernelCandidate, schedules: Sequence[Schedule]) -> Sequence[CudaRunner | AutofuseError]:
        if self.driver is None:
            return [self._absent()] * len(schedules)
        return cuda_runners(kernel, schedules, self.limits, self.driver)

    def _absent(self) -> BackendError:
        return BackendError(
            f"nothing can be measured for {self.device.name}: there is no such GPU here; compile makes a plan for it"
        )

    @property
    def arrays(self) -> DeviceArrays:
        return DeviceArrays(self.backend, self.driver)

    def remarks(self, kernels: Sequence[LoweredKernel]) -> dict[str, tuple[str, ...]]:
        """Of each kernel, its launches and stream, what it needs and leaves of the device, and the model's terms."""
        codes = codes_of(kernels, self.device.arch)
        program = started(kernels, codes, self.device, most_parameter_bytes(self.driver))
        made = program.codes()
        said = launch_lines(made, self.device, GpuModel(self.device, self.rates))
        lines = {id(code): each for code, each in zip(made, said, strict=True)}
        return self._remarks(program, kernels, lines, streams_of(program.starts, kernels, self.device))

    def _remarks(
        self,
        program: StartedProgram,
        kernels: Sequence[LoweredKernel],
        lines: Mapping[int, tuple[str, ...]],
        streams: Sequence[int],
    ) -> dict[str, tuple[str, ...]]:
        """Of the kernels of a program, and of those inside. `lines`: of launches, by identity of their code."""
        found: dict[str, tuple[str, ...]] = {}
        count = max(streams, default=0) + 1
        for start, stream in zip(program.starts, streams, strict=True):
            first, *others = [kernels[number].planned.name for number in start.kernels]
            kernel = kernels[start.kernels[0]]
            if start.code is not None:
                found[first] = lines[id(start.code)]
            else:
                found[first] = (_DRIVEN if kernel.regions else str(self.library_note(kernel.program)),)
            for inner, region in zip(program.inside.get(start.kernels[0], ()), kernel.regions, strict=False):
                found |= self._remarks(inner, region.kernels, lines, [0] * len(inner.starts))
            if others:
                found[first] = (f"together with {len(others)} more:", *found[first])
            if count > 1:
                found[first] = (*found[first], f"stream {stream + 1} of {count}")
            found |= dict.fromkeys(others, (f"together with {first}",))
        return found

    def library_note(self, program: TileProgram | OpaqueProgram) -> str | None:
        return library_note(program)

    @property
    def cache_bytes(self) -> int:
        return self.device.l2_bytes

    def entry_us(self, arrays: int) -> float:  # noqa: ARG002  # its clock reads events around the launches
        return self.rates.alone_us

    def conditions(self) -> str | None:
        found = None if self.driver is None else self.driver.conditions()
        return found if found is None or isinstance(found, str) else found.text()

    def fingerprint(self) -> str:
        known = {"backend": self.backend, "nvrtc": nvrtc.version_text(), "rates": asdict(self.rates)}
        return json.dumps({**known, **asdict(self.device)}, sort_keys=True)

    def clock(self) -> int:
        if self.driver is None:
            raise self._absent()
        return self.driver.clock()

    def pause(self, seconds: float) -> None:
        sleep(seconds)

    def __repr__(self) -> str:
        return f"<autofuse target {self.backend}: {self.device.name}{'' if self.driver else ', which is not here'}>"
