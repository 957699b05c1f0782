"""What the launches of a kernel need of a multiprocessor, as their compiler says: for the cost model, and in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from autofuse.cost_models.base import KernelFacts
from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.errors import BackendError, LegalityError
from autofuse.lazydataclass import replace
from autofuse.lower.split import parts_of
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.runtime.planlowering import canonical
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.codegen.cudakernel import CudaLaunch
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.machinecode import facts_of
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.targets.cuda.occupancy import occupancy
from autofuse.targets.cuda.productcalls import library_code


def compiled_facts(programs: Sequence[TileProgram | OpaqueProgram], arch: str) -> list[CompiledFacts | None]:
    """What compiling tells of kernels; equal ones are compiled once, all beside each other, and kept on disk.

    None for what the host or a library does, for what has no code on this architecture (making an executable of it says
    why), and where NVRTC or a header is not here, or does not know the architecture. Raises BackendError for code that
    NVRTC refuses: no plan is to have it.
    """
    if not nvrtc.is_available():
        return [None] * len(programs)
    keys = [
        canonical(program) if isinstance(program, TileProgram) and library_code(program) is None else None
        for program in programs
    ]
    distinct = list(dict.fromkeys(key for key in keys if key is not None))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC holds no lock while it compiles
        found = dict(zip(distinct, pool.map(partial(_facts, arch=arch), distinct), strict=True))
    return [None if key is None else found[key] for key in keys]


def _facts(program: TileProgram, arch: str) -> CompiledFacts | None:
    try:
        kernel = generate(replace(program, name="kernel"), arch)
    except LegalityError:
        return None
    return facts_of(kernel) if nvrtc.can_compile(kernel.source, arch) else None


def launch_lines(codes: Sequence[CudaCode], gpu: Gpu, model: GpuModel) -> list[tuple[str, ...]]:
    """For each code two lines for each launch: grid, block, registers, occupancy, its limit; and the model's terms.

    Without NVRTC the first line says so, and the terms are those of estimated registers.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(partial(_lines, gpu=gpu, model=model), codes))


def _lines(code: CudaCode, gpu: Gpu, model: GpuModel) -> tuple[str, ...]:
    if code.library is not None:
        costs = [terms.text() for terms in model.launches(KernelFacts(code.program))]
        return (f"one call of cuBLASLt, by its algorithm {code.library.algorithm}", *costs)
    launches, facts, said = code.kernel.launches, None, "registers estimated: NVRTC is not installed"
    if nvrtc.is_available():
        try:
            facts = facts_of(code.kernel)
        except BackendError as error:
            said = f"NVRTC refuses it: {str(error).splitlines()[0]}"
    uses = [said] * len(launches)
    if facts is not None:
        uses = [_use(launch, needs, gpu) for launch, needs in zip(launches, facts.launches, strict=True)]
    if code.together_us is not None:
        costs = [*[""] * (len(launches) - 1), f"by the model, us: {code.together_us:.3g} together"]
    elif isinstance(code.program, TileProgram):
        costs = [terms.text() for terms in model.launches(KernelFacts(code.program, facts))]
    else:
        (us,) = model.price([KernelFacts(code.program)]).us
        costs = [*[""] * (len(launches) - 1), f"by the model, us: {us:.3g} for all {len(launches)}"]
    shapes = [
        f"{_shape(launch)}{parts}; {use}" for launch, parts, use in zip(launches, _parts(code), uses, strict=True)
    ]
    return tuple(line for lines in zip(shapes, costs, strict=True) for line in lines if line)


def _shape(launch: CudaLaunch) -> str:
    blocks, threads = launch.grid[0], launch.block[0]
    shared = f", which take {launch.tasks} blocks' work in turn" if launch.tasks > blocks else ""
    return f"{blocks} block{'s' * (blocks != 1)} of {threads} threads{shared}"


def _parts(code: CudaCode) -> list[str]:
    """Of each launch, in how many parts it walks the loops that are split."""
    if code.together_us is not None or not isinstance(code.program, TileProgram):
        return [""] * len(code.kernel.launches)
    counts = [parts_of(launch) for launch in code.program.launches]
    return [f", loops in {count} parts" if count else "" for count in counts]


def _use(launch: CudaLaunch, needs: LaunchFacts, gpu: Gpu) -> str:
    used = Resources(needs.registers, needs.spill_bytes, needs.private_bytes, 0)
    found = occupancy(gpu, used, launch.block[0], needs.shared_bytes)
    parts = [f"{needs.registers} registers a thread"]
    if needs.shared_bytes:
        parts.append(f"{needs.shared_bytes} bytes of shared memory a block")
    if needs.spill_bytes:
        parts.append(f"{needs.spill_bytes} bytes spilled a thread")
    parts.append(f"{found.fraction:.0%} occupancy, limited by {found.limit}")
    return ", ".join(parts)
