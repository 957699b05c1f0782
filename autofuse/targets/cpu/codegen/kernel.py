"""A whole kernel: a TileProgram to LLVM IR text."""

from __future__ import annotations

from autofuse.lower.streaming import streams_stores, streams_turned
from autofuse.lower.tile import Space, TileProgram
from autofuse.targets.cpu.codegen.metadata import Metadata, alias_scopes
from autofuse.targets.cpu.codegen.phase import write_phase
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.machine import Target
from autofuse.targets.cpu.native.program import KernelCode, PhaseCode
from autofuse.targets.cpu.passes.prepare import prepare
from autofuse.targets.cpu.text import ModuleText


def generate(program: TileProgram, target: Target) -> KernelCode:
    """The code of a fused kernel: one LLVM function per phase, named after the kernel.

    Buffers are taken not to overlap. Element-wise results have the same bits whatever the vector width and however the
    blocks are split; reductions have the same bits from run to run, in an order fixed by the schedule and the target.
    Raises BackendError for what the scalar emitters do not know.
    """
    vector_bits = min(program.schedule.vector_bits, target.vector_bits)
    schedule = program.schedule
    registers = 32 if target.has("avx512vl") else 16
    widths = Widths(
        vector_bits, schedule.unroll, registers, streams_stores(program), schedule.dots, streams_turned(program)
    )
    legal = f'"prefer-vector-width"="{vector_bits}" "min-legal-vector-width"="{vector_bits}"'
    program = prepare(program, widths)
    module, metadata = ModuleText(f"nounwind {legal}", target.features), Metadata()
    scopes = alias_scopes(metadata, [buffer.space is not Space.INPUT for buffer in program.buffers])
    tags = {buffer.name: scope for buffer, scope in zip(program.buffers, scopes, strict=True)}
    launches: list[tuple[PhaseCode, ...]] = []
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
