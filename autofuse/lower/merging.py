"""A scan and the loop that reads its running values where it makes them become one loop.

    stage (k1<4096) { %1 = scan add %0; store s[k1] %1 }  stage (k0<4096) { %2 = load s[k0]; store y[.. k0] %2 }
 -> stage (k1<4096) { %1 = scan add %0; %2 = convert %1; store y[.. k1] %2 }

The scratch between them, and the second walk, are gone. Two scans of the same length become one loop too, and so do
neighbouring loops that load the same elements and compute nothing from each other: what both compute, one computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from autofuse.ir import index
from autofuse.lazydataclass import replace
from autofuse.lower.rewrite import affines, operands, rewritten, sources
from autofuse.lower.statements import (
    ArgReduce,
    Constant,
    Load,
    Map,
    Position,
    Reduce,
    Scalar,
    Scan,
    Statement,
    Store,
    Test,
)
from autofuse.lower.tile import Dot, Phase, RowGroup, Space, Stage, Step, TileProgram
from autofuse.lower.vectorscans import is_plain


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
        if isinstance(step, RowGroup) and len(step.stages) > 1:
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
    if first.before or second.before or not (_walk_alike(first, second) or _loop_alike(first, second)):
        return None
    renamed = {b: index.of(a) for a, b in zip(first.symbols, second.symbols, strict=True)}
    body = [rewritten(s, lambda a: index.renamed(a, renamed)) for s in second.body]
    if not _reads_only_values(first, body):
        return None
    if any(isinstance(s, Scan) for s in first.body):
        side_by_side = all(is_plain(s.offset, first.symbols[0]) for s in body if isinstance(s, Load | Store))
        if phase.vectorised is None and not side_by_side:
            return None
        vectorised = None
    elif _share_loads(first, body):
        vectorised = first.vectorised
    else:
        return None
    made = _with_values(first, body)
    return None if made is None else Stage(first.symbols, once([*first.body, *made]), vectorised)


def _loop_alike(first: Stage, second: Stage) -> bool:
    """Whether two stages of reductions have the same loops, in the same order, of which the same is vectorised."""
    vectorised = [
        stage.symbols.index(stage.vectorised) if stage.vectorised is not None else -1 for stage in (first, second)
    ]
    extents = [[symbol.extent for symbol in stage.symbols] for stage in (first, second)]
    plain = not any(isinstance(s, Scan | ArgReduce) for stage in (first, second) for s in stage.body)
    reduces = all(any(isinstance(s, Reduce) for s in stage.body) for stage in (first, second))
    return plain and reduces and bool(extents[0]) and extents[0] == extents[1] and vectorised[0] == vectorised[1]


def _share_loads(first: Stage, body: Sequence[Statement]) -> bool:
    """Whether both read an element that changes from iteration to iteration."""
    here = {(s.buffer, s.offset) for s in first.body if isinstance(s, Load)}
    both = [s.offset for s in body if isinstance(s, Load) and (s.buffer, s.offset) in here]
    return any(index.symbols_of(offset) & set(first.symbols) for offset in both)


def once(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements less those that compute what one before them does. Nothing here is loaded after it is stored."""
    if any(True for s in body for a in affines(s) for _ in sources(a)):
        return tuple(body)
    known: dict[object, Scalar] = {}
    same: dict[Scalar, Scalar] = {}
    found: list[Statement] = []
    for statement in body:
        s = _renumbered(statement, same)
        if isinstance(s, Constant | Position | Load | Map | Test):
            key = replace(s, result=0), repr(s.value) if isinstance(s, Constant) else ""
            if key in known:
                same[s.result] = known[key]
                continue
            known[key] = s.result
        found.append(s)
    return tuple(found)


def _renumbered(statement: Statement, same: Mapping[Scalar, Scalar]) -> Statement:
    def of(number: Scalar | None) -> Scalar | None:
        return None if number is None else same.get(number, number)

    match statement:
        case Load(mask=mask, fill=fill):
            return replace(statement, mask=of(mask), fill=of(fill))
        case Store(value=value, mask=mask):
            return replace(statement, value=same.get(value, value), mask=of(mask))
        case Map(operands=numbers):
            return replace(statement, operands=tuple(same.get(n, n) for n in numbers))
        case Reduce(operand=number) | Scan(operand=number) | ArgReduce(operand=number):
            return replace(statement, operand=same.get(number, number))
        case _:
            return statement


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
