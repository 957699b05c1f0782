"""Which decisions a kernel leaves open, and the values worth trying for each."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from autofuse.lower.schedule import Schedule
from autofuse.lower.streaming import streams_stores
from autofuse.lower.tile import Dot, OpaqueProgram, Reduce, RowGroup, Space, TileProgram

Choices = dict[str, tuple[Any, ...]]

_WIDE_BITS = 512
"""Narrower machines have one width that is worth using, which is what they get by default."""
_STREAMED_BYTES = 8 << 20
"""An output this large does not stay in a core's caches, so writing past them can pay."""


def choices_for(program: TileProgram | OpaqueProgram, vector_bits: int | None = None) -> Choices:
    """The decisions that change this kernel's code, each with its values; empty if there is nothing to decide.

    `vector_bits`: the widest vectors of the device; None if not known.
    """
    if isinstance(program, OpaqueProgram):
        return {}
    choices: Choices = {}
    stages = [
        stage
        for phase in program.phases()
        for step in phase.steps
        if isinstance(step, RowGroup)
        for stage in step.stages
    ]
    if any(phase.panel is not None for phase in program.phases()):
        choices["panel_rows"] = (0, 32, 64, 128, 256, 512, 1024)
    elif any(stage.symbols for stage in stages):
        choices["lane"] = ("auto", "grid", "stream")
    if any(isinstance(s, Dot) and s.dtype.name in ("f32", "f64") for p in program.phases() for s in p.steps):
        choices["dots"] = ("auto", "library")
    if stages:
        choices["unroll"] = (1, 2, 4, 8)
        if vector_bits is None or vector_bits >= _WIDE_BITS:
            choices["vector_bits"] = (_WIDE_BITS // 2, _WIDE_BITS)
    if any(b.space is Space.OUTPUT and b.type.nbytes >= _STREAMED_BYTES for b in program.buffers):
        choices["stream_stores"] = (None, not streams_stores(program))
    if any(buffer.space is Space.SCRATCH for buffer in program.buffers):
        choices["placement"] = ("scratch", "recompute")
    if any(isinstance(s, Reduce) for stage in stages for s in stage.body) and "panel_rows" not in choices:
        choices["split"] = (0, 1, 4, 8, 32)
    return choices


def illegal_decision(schedule: Schedule, program: TileProgram | OpaqueProgram) -> str | None:
    """Why a schedule of a CPU kernel is none that could have been chosen for it, beginning with the decision's name.

    `program`: the kernel under the default schedule. None if it is one. Vectors may be wider than those of the device,
    as by default: code is generated for those that it has.
    """
    for name, known in _foreign(schedule, program).items():
        options = ", ".join(map(repr, known))
        return f"{name}: must be one of {options} for this kernel, got {getattr(schedule, name)!r}"
    return None


def choosable(schedule: Schedule, program: TileProgram | OpaqueProgram) -> Schedule:
    """A schedule of a CPU kernel with the decisions that could not have been made for another one left as by default.

    `program`: the other kernel under the default schedule.
    """
    default = Schedule()
    return replace(schedule, **{name: getattr(default, name) for name in _foreign(schedule, program)})


def _foreign(schedule: Schedule, program: TileProgram | OpaqueProgram) -> Choices:
    """Decisions of a schedule that a search could not make for a kernel, each with the values that it could choose."""
    choices = choices_for(program)
    default = Schedule()
    found: Choices = {}
    for field in fields(Schedule):
        value, usual = getattr(schedule, field.name), getattr(default, field.name)
        known = choices.get(field.name, (usual,))
        if value != usual and value not in known:
            found[field.name] = known
    return found


def idle_decisions(program: TileProgram | OpaqueProgram) -> frozenset[str]:
    """Entries of a Schedule that surely change nothing in this kernel on a CPU, whatever the others are."""
    if isinstance(program, OpaqueProgram):
        return frozenset(field.name for field in fields(Schedule))
    steps = [step for phase in program.phases() for step in phase.steps]
    body = [s for step in steps if isinstance(step, RowGroup) for stage in step.stages for s in stage.body]
    idle = {"threads", "items"}
    if not any(isinstance(step, Dot) for step in steps):
        idle |= {"panel_rows", "dots"}
    if not any(isinstance(statement, Reduce) for statement in body):
        idle.add("split")
    return frozenset(idle)
