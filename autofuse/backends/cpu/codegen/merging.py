"""A scan and the loop that reads its running values where it makes them become one loop.

    stage (k1<4096) { %1 = scan add %0; store s[k1] %1 }  stage (k0<4096) { %2 = load s[k0]; store y[.. k0] %2 }
 -> stage (k1<4096) { %1 = scan add %0; %2 = convert %1; store y[.. k1] %2 }

The scratch between them, and the second walk, are gone. Two scans of the same length become one loop too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autofuse.backends.cpu.codegen.scanlanes import is_plain
from autofuse.ir import index
from autofuse.lower.rewrite import operands, rewritten
from autofuse.lower.tile import (
    ArgReduce,
    Dot,
    Load,
    Map,
    Phase,
    Reduce,
    RowGroup,
    Scan,
    Space,
    Stage,
    Statement,
    Step,
    Store,
    TileProgram,
)


def merge_scans(program: TileProgram) -> TileProgram:
    """The same program with the stages that can follow a scan's walk merged into it."""
    scratch = frozenset(buffer.name for buffer in program.buffers if buffer.space is Space.SCRATCH)
    launches = tuple(tuple(_phase(phase, scratch) for phase in launch) for launch in program.launches)
    used = {name for launch in launches for phase in launch for name in _buffers(phase.steps)}
    buffers = tuple(b for b in program.buffers if b.space is not Space.SCRATCH or b.name in used)
    return replace(program, buffers=buffers, launches=launches)


def _buffers(steps: Iterable[Step]) -> Iterator[str]:
    """The names of what the steps read and write."""
    for step in steps:
        match step:
            case RowGroup(stages):
                yield from (s.buffer for stage in stages for s in stage.body if isinstance(s, Load | Store))
            case Dot():
                yield from (step.out.buffer, step.lhs.buffer, step.rhs.buffer)


def _phase(phase: Phase, scratch: frozenset[str]) -> Phase:
    steps = list(phase.steps)
    for place, step in enumerate(steps):
        if isinstance(step, RowGroup) and any(isinstance(s, Scan) for stage in step.stages for s in stage.body):
            kept = frozenset(_buffers(other for other in steps if other is not step))
            steps[place] = RowGroup(_merged(step.stages, phase, scratch, kept))
    return replace(phase, steps=tuple(steps))


def _merged(stages: Sequence[Stage], phase: Phase, scratch: frozenset[str], kept: frozenset[str]) -> tuple[Stage, ...]:
    found: list[Stage] = []
    for stage in stages:
        joined = _joined(found[-1], stage, phase) if found else None
        if joined is None:
            found.append(stage)
        else:
            found[-1] = joined
    read = {a.buffer for stage in found for a in stage.body if isinstance(a, Load)} | kept
    return tuple(
        replace(s, body=tuple(a for a in s.body if not (isinstance(a, Store) and a.buffer in scratch - read)))
        for s in found
    )


def _joined(first: Stage, second: Stage, phase: Phase) -> Stage | None:
    """The two as one stage, if the first one scans and the second needs nothing of it but what it has at hand."""
    if not _walk_alike(first, second):
        return None
    walk = first.symbols[0]
    renamed = {second.symbols[0]: index.of(walk)}
    body = [rewritten(s, lambda a: index.renamed(a, renamed)) for s in second.body]
    side_by_side = all(is_plain(s.offset, walk) for s in body if isinstance(s, Load | Store))
    if not _reads_only_values(first, body) or (phase.lane is None and not side_by_side):
        return None
    made = _with_values(first, body)
    return None if made is None else Stage(first.symbols, (*first.body, *made), None)


def _walk_alike(first: Stage, second: Stage) -> bool:
    scans = [s for s in first.body if isinstance(s, Scan)]
    more = [s for s in second.body if isinstance(s, Scan)]
    if not scans or len({scan.reverse for scan in (*scans, *more)}) != 1 or len(second.symbols) != 1:
        return False
    same_length = second.symbols[0].extent == first.symbols[0].extent
    return same_length and not any(isinstance(s, ArgReduce) for s in second.body)


def _with_values(first: Stage, body: Sequence[Statement]) -> list[Statement] | None:
    """`body` with the values that the first stage stores in place of the loads of them; None if it loads others."""
    values = {(s.buffer, s.offset): s.value for s in first.body if isinstance(s, Store) and s.mask is None}
    written = {s.buffer for s in first.body if isinstance(s, Store)}
    made: list[Statement] = []
    for s in body:
        if not isinstance(s, Load) or s.buffer not in written:
            made.append(s)
            continue
        value = values.get((s.buffer, s.offset))
        if value is None or s.mask is not None:
            return None
        made.append(Map(s.result, s.dtype, "convert", (value,)))
    return made


def _reads_only_values(first: Stage, body: Sequence[Statement]) -> bool:
    """Whether `body` needs no reduction of the first stage, and writes nothing that the first one reads."""
    reduced = {s.result for s in first.body if isinstance(s, Reduce | ArgReduce)}
    if any(number in reduced for s in body for number in operands(s)):
        return False
    loaded = {s.buffer for s in first.body if isinstance(s, Load)}
    return not any(isinstance(s, Store) and s.buffer in loaded for s in body)
