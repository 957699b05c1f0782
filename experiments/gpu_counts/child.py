"""The kernels of one program's plan for a GPU that is not here, counted: child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import autofuse as af
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.tree import flatten
from autofuse.lower.tile import Space, TileProgram
from autofuse.measurement.workloads import load
from autofuse.runtime.planlowering import LoweredKernel, canonical
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.machinecode import machine_code
from autofuse.targets.cuda.occupancy import occupancy
from autofuse.testing.simt.counters import count


def counted(kernel: LoweredKernel, known: dict[Any, Any], gpu: Gpu, most_blocks: int) -> list[dict[str, Any]]:
    """A record for each launch of a kernel."""
    code = generate(kernel.program, gpu.arch)  # pyright: ignore[reportArgumentType] - asked for generated kernels only
    names = [b.name for b in kernel.program.buffers if b.space is Space.INPUT]
    inputs = {name: known[value] for name, value in zip(names, kernel.reads, strict=True) if value in known}
    resources = machine_code(code.source, gpu.arch, code.name).resources if nvrtc.is_available() else {}
    found: list[dict[str, Any]] = []
    for launch, counts in zip(code.launches, count(code, inputs, most_blocks), strict=True):
        record = asdict(counts) | {"name": kernel.planned.name, "kind": kernel.planned.kind}
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
    seen: dict[TileProgram, int] = {}
    records: list[dict[str, Any]] = []
    for kernel in plan.lowered:
        if not isinstance(kernel.program, TileProgram):
            continue
        key = canonical(kernel.program)
        if key in seen:
            records[seen[key]]["times"] += 1
            continue
        launches = counted(kernel, known, target.device, task["most_blocks"])
        seen[key] = len(records)
        records += [{**launch, "times": 1} for launch in launches]
    outcome = {"kernels": len(plan.kernels), "launches": records, "multiprocessors": target.device.multiprocessors}
    Path(sys.argv[2]).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
