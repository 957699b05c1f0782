"""The kernels of one program's plan for a GPU that is not here, counted: child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import autofuse as af
from autofuse.ir.graph import Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.tree import flatten
from autofuse.lower.tile import Space
from autofuse.measurement.workloads import load
from autofuse.runtime.planlowering import LoweredKernel
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import CudaKernel
from autofuse.targets.cuda.executable import CudaExecutable
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.horizontal import Start
from autofuse.targets.cuda.machinecode import machine_code
from autofuse.targets.cuda.occupancy import occupancy
from autofuse.testing.simt.counters import count


def inputs_of(start: Start, kernels: Sequence[LoweredKernel], known: dict[Value, Any]) -> dict[str, Any]:
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
            value = next(reads) if buffer.space is Space.INPUT else None
            if value in known:
                found[name] = known[value]
    return found


def counted(code: CudaKernel, inputs: dict[str, Any], gpu: Gpu, most_blocks: int) -> list[dict[str, Any]]:
    """A record for each launch of a kernel."""
    resources = machine_code(code.source, gpu.arch, code.name).resources if nvrtc.is_available() else {}
    found: list[dict[str, Any]] = []
    for launch, counts in zip(code.launches, count(code, inputs, most_blocks), strict=True):
        record = asdict(counts) | {"name": code.name, "members": len(code.members) or 1}
        record |= {"threads": launch.block[0], "shared_bytes": launch.shared_bytes}
        used = resources.get(launch.function)
        if used is not None:
            resident = occupancy(gpu, used, launch.block[0], launch.shared_bytes)
            record |= {
                "registers": used.registers,
                "spill_bytes": used.spill_bytes,
                "stack_bytes": used.stack_bytes,
                "resident_blocks": resident.blocks,
                "resident_threads": resident.blocks * launch.block[0],
                "limit": resident.limit,
            }
        found.append(record)
    return found


def main() -> None:
    """The task's outcome."""
    warnings.simplefilter("ignore")
    task = json.loads(Path(sys.argv[1]).read_text())
    program = load(task["program"])
    arguments = program.inputs(task["size"], 0)
    plan = af.compile(program.function, *arguments, backend="cuda", device=task["device"], deadline=None)
    graph, target = plan.graph, plan.target
    leaves, _ = flatten(arguments, lambda value: hasattr(value, "dtype"))
    known = dict(zip(graph.inputs, leaves, strict=False))
    known |= {value: graph.producers[value].attrs["value"] for value in values_of(graph, Role.CONSTANT)}
    seen: dict[int, list[dict[str, Any]]] = {}
    records: list[dict[str, Any]] = []
    for start in cast("CudaExecutable", plan.executable).starts:
        if start.code is None:
            continue
        if id(start.code) in seen:
            for record in seen[id(start.code)]:
                record["times"] += 1
            continue
        launches = counted(start.code.kernel, inputs_of(start, plan.lowered, known), target.device, task["most_blocks"])
        seen[id(start.code)] = [{**launch, "times": 1} for launch in launches]
        records += seen[id(start.code)]
    outcome = {"kernels": len(plan.kernels), "launches": records, "multiprocessors": target.device.multiprocessors}
    Path(sys.argv[2]).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
