"""Results that take the memory of an operand: a kernel computes and stores only what changes.

`x[i, :k] = new` is `dynamic_update_slice(x, select(mask, new, x[i]), i, 0)` in the graph. Where the node says that its
result may take the memory of x, the kernel walks the update, not x, and stores where the mask holds. The result's
buffer `holds` x: whoever runs the kernel sees to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.fusion.candidate import KernelCandidate, part_of
from autofuse.fusion.domain import is_contraction
from autofuse.ir.graph import Value
from autofuse.ir.oprecord import Role
from autofuse.ir.ops.dynamic import overwrites
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.librarykernels import coded_in, holder_of
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import Effect, Load, Map, Scalar, Statement, Store
from autofuse.lower.tile import Dot, OpaqueProgram, Phase, RowGroup, Space, Stage, Step, TileProgram


@dataclass(frozen=True, slots=True)
class Overwriting:
    """An output that differs from an input of the kernel in one block."""

    output: Value
    source: Value
    update: Value
    """The block's new elements."""
    starts: tuple[Value, ...]
    """Where the block begins, along each axis: integers that are clamped."""


def overwritings(candidate: KernelCandidate) -> tuple[Overwriting, ...]:
    """The outputs of a kernel that may be stored so."""
    inputs, reads = candidate.inputs, [v for node in candidate.nodes for v in candidate.graph.reads(node)]
    producers = candidate.graph.producers
    found: list[Overwriting] = []
    for value in candidate.outputs:
        node = producers.get(value)
        if node is None or not overwrites(node) or node.inputs[0] not in inputs or value in reads:
            continue
        source, update, *starts = node.inputs
        maker = producers.get(update)
        is_direct = maker is not None and maker in candidate.nodes and is_contraction(maker)
        if not (is_direct or update in candidate.outputs or any(source is one.source for one in found)):
            found.append(Overwriting(value, source, update, tuple(starts)))
    return tuple(found)


def without_updates(candidate: KernelCandidate, found: Sequence[Overwriting]) -> KernelCandidate:
    """The kernel that computes the new elements in place of the outputs, and where they begin."""
    by_output = {one.output: one for one in found}
    outputs = tuple(by_output[v].update if v in by_output else v for v in candidate.outputs)
    return part_of(candidate, outputs, [start for one in found for start in one.starts])


def stored_where_new(program: TileProgram, holders: Mapping[str, str]) -> TileProgram | None:
    """The program with outputs that hold inputs; None if one of them reads an input's element after it is replaced.

    `holders`: by the name of an output that is stored in part, the input that it holds. What is stored as it was is
    not stored.
    """
    buffers = tuple(replace(b, holds=holders[b.name]) if b.name in holders else b for b in program.buffers)
    launches = tuple(tuple(_changed(phase, holders) for phase in launch) for launch in program.launches)
    made = replace(program, buffers=buffers, launches=launches)
    safe = all(may_write_in_place(made, source, target) for target, source in holders.items())
    return made if safe else None


def _changed(phase: Phase, holders: Mapping[str, str]) -> Phase:
    return replace(phase, steps=tuple(_changed_step(step, holders) for step in phase.steps))


def _changed_step(step: Step, holders: Mapping[str, str]) -> Step:
    if isinstance(step, Dot):
        return step
    return RowGroup(tuple(_changed_stage(stage, step.stages[n + 1 :], holders) for n, stage in enumerate(step.stages)))


def _changed_stage(stage: Stage, later: Sequence[Stage], holders: Mapping[str, str]) -> Stage:
    made: Mapping[Scalar, Statement] = {s.result: s for s in stage.body if not isinstance(s, Effect)}
    body = [_masked(s, made, holders) if isinstance(s, Store) and s.buffer in holders else s for s in stage.body]
    if all(new is old for new, old in zip(body, stage.body, strict=True)):
        return stage
    read_later = {n for other in later for s in (*other.before, *other.body) for n in operands(s)}
    return replace(stage, body=_live(body, read_later))


def _masked(store: Store, made: Mapping[Scalar, Statement], holders: Mapping[str, str]) -> Store:
    """A store of what is new under a mask, else as it was, without the latter."""
    chosen = made.get(store.value)
    if store.mask is not None or not isinstance(chosen, Map) or chosen.opcode != "select":
        return store
    mask, new, old = chosen.operands
    before = made.get(old)
    if not isinstance(before, Load) or before.mask is not None:
        return store
    same = before.buffer == holders[store.buffer] and before.offset == store.offset
    return replace(store, value=new, mask=mask) if same else store


def _live(body: Sequence[Statement], read_later: set[Scalar]) -> tuple[Statement, ...]:
    """The statements that something needs."""
    needed, kept = set(read_later), list[Statement]()
    for statement in reversed(body):
        if isinstance(statement, Effect) or statement.result in needed or _lives_on(statement):
            kept.append(statement)
            needed.update(operands(statement))
    return tuple(reversed(kept))


def _lives_on(statement: Statement) -> bool:
    return not isinstance(statement, Load | Map)


def may_write_in_place(program: TileProgram | OpaqueProgram, source: str, target: str) -> bool:
    """Whether the OUTPUT `target` may share memory with the INPUT `source`: each element is read where it is written.

    True only if one stage holds every access to either, all at one offset, and reads before it writes, or if it is a
    scatter into `source`.
    """
    if isinstance(program, OpaqueProgram):
        return _scatters_into(program, source, target)
    found: list[Stage] = []
    for step in (s for phase in program.phases() for s in phase.steps):
        if isinstance(step, Dot):
            if not {source, target}.isdisjoint((step.out.buffer, step.lhs.buffer, step.rhs.buffer)):
                return False
            continue
        found += [stage for stage in step.stages if _accesses(stage, source, target)]
    if len(found) != 1:
        return False
    accesses = _accesses(found[0], source, target)
    stores = [isinstance(access, Store) for access in accesses]
    return stores == sorted(stores) and len({access.offset for access in accesses}) == 1


def _scatters_into(program: OpaqueProgram, source: str, target: str) -> bool:
    """Whether a scatter into `source`, which the kernel reads for nothing else, is done in `target`."""
    graph = program.graph
    node = coded_in(graph)
    held = [buffer.name for buffer in program.buffers if buffer.space is not Space.WORKSPACE]
    values = dict(zip(held, (*graph.inputs, *graph.outputs), strict=True))
    reads = [value for reader in graph.nodes for value in graph.reads(reader)].count(values[source])
    if node is None or role_of(node) is not Role.SCATTER:
        return False
    return values[target] is holder_of(graph, node) and node.inputs[0] is values[source] and reads == 1


def _accesses(stage: Stage, *buffers: str) -> list[Load | Store]:
    return [s for s in stage.body if isinstance(s, Load | Store) and s.buffer in buffers]
