"""What each launch of a plan for a GPU asks of it, counted and read from its machine code, as plain records.

    count_plan(plan, arguments, most_blocks=16)["launches"]

is a list of mappings: `Counts` of the blocks that ran, what the compiler says of registers, and what `gates` needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from autofuse.cost_models.base import KernelFacts
from autofuse.ir.graph import Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.tree import flatten
from autofuse.lazydataclass import asdict
from autofuse.lower.tile import Dot, Phase, Space, TileProgram
from autofuse.runtime.planlowering import LoweredKernel
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import CudaKernel, CudaLaunch
from autofuse.targets.cuda.codegen.producttiles import units_of
from autofuse.targets.cuda.cost.rates import LAUNCH_US
from autofuse.targets.cuda.driver import CudaCode
from autofuse.targets.cuda.horizontal import Start
from autofuse.targets.cuda.machinecode import machine_code
from autofuse.targets.cuda.occupancy import occupancy
from autofuse.targets.cuda.resources import compiled_facts
from autofuse.targets.cuda.target import CudaTarget
from autofuse.testing.simt.chains import chained_reads
from autofuse.testing.simt.counters import Counts, count
from autofuse.testing.simt.instructions import facts_of

if TYPE_CHECKING:
    from autofuse.api.plan import Plan
    from autofuse.targets.cuda.executable import CudaExecutable

Record = dict[str, Any]


def count_plan(plan: Plan, arguments: Sequence[Any], most_blocks: int) -> Record:
    """Records of the `launches` of a plan, and what judges them.

    `replay_calls`: of the driver, if all addresses are as before. `multiprocessors`: of the GPU. `program_bytes`:
    arguments and results. `starting_bytes`: what memory gives while a launch is started.

    `arguments`: those of the traced function, which indices are taken from. `most_blocks`: of each launch, at most so
    many run. Equal kernels are counted once, with `times`. Raises BackendError as `count` does.
    """
    target = cast("CudaTarget", plan.target)
    leaves, _ = flatten(arguments, lambda value: hasattr(value, "dtype"))
    known = dict(zip(plan.graph.inputs, leaves, strict=False))
    graph = plan.graph
    known |= {value: graph.producers[value].attrs["value"] for value in values_of(graph, Role.CONSTANT)}
    starts = cast("CudaExecutable", plan.executable).starts
    seen: dict[int, list[Record]] = {}
    for start in starts:
        if start.code is None:
            continue
        if id(start.code) in seen:
            for record in seen[id(start.code)]:
                record["times"] += 1
            continue
        inputs = _inputs_of(start, plan.lowered, known)
        seen[id(start.code)] = [{**launch, "times": 1} for launch in _launches(start.code, inputs, target, most_blocks)]
    return {
        "launches": [record for records in seen.values() for record in records],
        "replay_calls": sum(on_device for on_device, _ in groupby(start.code is not None for start in starts)),
        "multiprocessors": target.device.multiprocessors,
        "program_bytes": sum(value.type.nbytes for value in {*graph.inputs, *graph.outputs}),
        "starting_bytes": round(LAUNCH_US * 1e-6 * target.device.memory_bytes_per_s),
    }


def _inputs_of(start: Start, kernels: Sequence[LoweredKernel], known: Mapping[Value, Any]) -> dict[str, Any]:
    """What is known of the parameters of a start, by name."""
    assert start.code is not None
    names = iter(start.code.kernel.parameters)
    found: dict[str, Any] = {}
    for kernel in (kernels[number] for number in start.kernels):
        reads = iter(kernel.reads)
        for buffer in kernel.program.buffers:
            if buffer.space is Space.SCRATCH:
                continue
            name = next(names).name
            if buffer.space is Space.INPUT and (value := next(reads)) in known:
                found[name] = known[value]
    return found


def _launches(code: CudaCode, inputs: Mapping[str, Any], target: CudaTarget, most_blocks: int) -> Iterator[Record]:
    """A record for each launch of a kernel."""
    kernel, program = code.kernel, code.program
    bounds: list[str] = []
    is_one = not kernel.members and isinstance(program, TileProgram)
    if is_one:
        (facts,) = compiled_facts([program], kernel.arch)
        bounds = [terms.bound for terms in target.cost_model().launches(KernelFacts(program, facts))]
    for number, (launch, counts) in enumerate(zip(kernel.launches, count(kernel, inputs, most_blocks), strict=True)):
        record = asdict(counts) | {"name": kernel.name, "members": len(kernel.members) or 1}
        record |= {"threads": math.prod(launch.block), "shared_bytes": launch.shared_bytes, "grid": launch.grid[0]}
        record |= _compiled(kernel, launch, target, counts.copied_bytes)
        if is_one:
            assert isinstance(program, TileProgram)
            record["bound"] = bounds[number]
            record |= _products(program, program.launches[number], kernel, counts)
        yield record


def _compiled(kernel: CudaKernel, launch: CudaLaunch, target: CudaTarget, copied_bytes: int) -> Record:
    """What machine code says; nothing without NVRTC. `copied_bytes`: of copies, that a thread has under way."""
    if not nvrtc.is_available():
        return {}
    compiled = machine_code(kernel.source, kernel.arch, kernel.name)
    used, code = compiled.resources[launch.function], facts_of(compiled.cubin)[launch.function]
    threads = math.prod(launch.block)
    resident = occupancy(target.device, used, threads, launch.shared_bytes)
    return {
        "registers": used.registers,
        "spill_bytes": used.spill_bytes,
        "stack_bytes": used.stack_bytes,
        "resident_blocks": resident.blocks,
        "limit": resident.limit,
        "flight_bytes": code.flight_bytes + min(copied_bytes, launch.shared_bytes // threads),
        "code_instructions": code.instructions,
        "code_bytes": code.moved_bytes,
        "matrix_instructions": code.matrix,
    }


def _products(program: TileProgram, phases: Sequence[Phase], kernel: CudaKernel, counts: Counts) -> Record:
    """Of a launch that multiplies: whether matrix units could, and what chained products read again."""
    dots = [step for phase in phases for step in phase.steps if isinstance(step, Dot)]
    if not dots:
        return {}
    buffers = {buffer.name: buffer for buffer in program.buffers}

    def units(dot: Dot) -> str:
        return units_of(dot, buffers[dot.lhs.buffer].type.dtype, buffers[dot.rhs.buffer].type.dtype, kernel.arch)

    found: Record = {"narrow_products": any(units(dot) == "matrix" for dot in dots)}
    fetched = {
        b.name: nbytes * counts.blocks / counts.ran
        for b, nbytes in zip(kernel.parameters, counts.fetched_of, strict=True)
    }
    chained = chained_reads(phases, buffers, fetched)
    if chained is not None:
        found["chained"] = asdict(chained)
    return found
