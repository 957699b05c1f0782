"""A whole kernel: a TileProgram to LLVM IR text."""

from __future__ import annotations

from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cpu.codegen.held import write_held
from autofuse.targets.cpu.codegen.metadata import Metadata, alias_scopes
from autofuse.targets.cpu.codegen.phase import write_phase
from autofuse.targets.cpu.codegen.widths import TASK_US, Widths
from autofuse.targets.cpu.llvmtext import ModuleText
from autofuse.targets.cpu.machine import Machine
from autofuse.targets.cpu.native.nativeprogram import KernelCode, PhaseCode


def generate(program: TileProgram, machine: Machine, task_us: float = TASK_US) -> KernelCode:
    """The code of a fused kernel: one LLVM function per phase, named after the kernel.

    `program`: as the passes left it. `task_us`: least work worth handing to another worker. Buffers are taken not to
    overlap. Element-wise results have the same bits whatever the vector width and however the
    blocks are split; reductions have the same bits from run to run, in an order fixed by the schedule and the target.
    Raises BackendError for what the scalar emitters do not know.
    """
    widths = Widths.chosen(program, machine.vector_bits, task_us)
    bits = widths.vector_bits
    legal = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    module, metadata = ModuleText(f"nounwind {legal}", machine.features), Metadata()
    scopes = alias_scopes(metadata, [buffer.space is not Space.INPUT for buffer in program.buffers])
    tags = {buffer.name: scope for buffer, scope in zip(program.buffers, scopes, strict=True)}
    tags |= {buffer.holds: tags[buffer.name] for buffer in program.buffers if buffer.holds}
    launches: list[tuple[PhaseCode, ...]] = []
    if any(buffer.holds for buffer in program.buffers):
        launches.append((write_held(module, program, f"{program.name}.held"),))
    number = 0
    for launch in program.launches:
        codes: list[PhaseCode] = []
        for phase in launch:
            symbol = f"{program.name}.p{number}" if number else program.name
            codes.append(write_phase(module, program, phase, symbol, widths, tags))
            number += 1
        launches.append(tuple(codes))
    lines = module.render().splitlines()
    declares = tuple(line for line in lines if line.startswith("declare "))
    kept = [line for line in lines if not line.startswith("declare ")]
    return KernelCode(program.name, "\n".join([*kept, metadata.render()]) + "\n", declares, tuple(launches))
