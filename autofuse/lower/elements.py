"""Elements of values as a straight line of scalar statements, for kernels whose loops are no stages.

A scatter's updates and a sort's keys are computed where they are read, what is made of their results where these are
complete: `wanted` says which elements, by symbols that the kernel's own loops walk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.dimensions import Dimensions
from autofuse.ir import index
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph, Value
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.demand import PhaseBuilder
from autofuse.lower.phasedrafts import BufferTable, StageDraft
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.rewrite import affines, number_elements, operands, rewritten
from autofuse.lower.statements import Effect, Scalar, Statement
from autofuse.lower.tile import Space


@dataclass(frozen=True, slots=True)
class Elements:
    """Statements that compute elements."""

    statements: tuple[Statement, ...]
    """Buffers are named as in the kernel's program."""
    results: tuple[Scalar, ...]
    """The wanted elements, in order."""

    def needed(self, results: Sequence[Scalar]) -> frozenset[Scalar]:
        """The scalars that some of the results are computed from, these included."""
        found = set(results)
        for statement in reversed(self.statements):
            if not isinstance(statement, Effect) and statement.result in found:
                found.update(operands(statement))
        return frozenset(found)

    def depths(self, order: Sequence[Symbol]) -> Mapping[Scalar, int]:
        """In how many of the loops `order`, from the outermost on, each scalar must be computed: the fewest."""
        place = {symbol: number + 1 for number, symbol in enumerate(order)}
        found: dict[Scalar, int] = {}
        for statement in self.statements:
            assert not isinstance(statement, Effect)
            own = [place[symbol] for value in affines(statement) for symbol in index.symbols_of(value)]
            found[statement.result] = max([*own, *(found[number] for number in operands(statement))], default=0)
        return found


Result = Callable[[PhaseBuilder, StageDraft, tuple[Affine, ...], Scalar | None], Scalar]
"""(builder, stage, index, guard) -> an element of what the kernel's loops make."""


def elements_of(
    graph: Graph,
    wanted: Sequence[tuple[Value, tuple[Affine, ...]]],
    given: Sequence[DType] = (),
    results: Mapping[Value, Result] | None = None,
) -> Elements:
    """The elements of values of a kernel's graph, each at an index. Raises LegalityError for more than can be made.

    `given`: dtypes of the scalars 0, 1, ..., which the kernel makes; indices may hold them, as an `Element` of `%0`.
    `results`: where elements of the scatter's or sort's results come from.
    """
    buffers = BufferTable()
    for value in graph.inputs:
        buffers.add_value(value, Space.INPUT)
    for value in graph.outputs:
        buffers.add_value(value, Space.OUTPUT)
    kernel = KernelCandidate(graph, graph.nodes, graph.outputs)
    phase = PhaseBuilder(kernel, Dimensions((), ()), (), buffers, {}, None)
    for dtype in given:
        phase.draft.scalar(dtype)
    for value, result in (results or {}).items():
        phase.row_results[value] = _reader(phase, result)
    stage = phase.draft.stage(0, ())
    scalars = tuple(phase.value(stage, value, at, None) for value, at in wanted)
    return Elements(tuple(rewritten(statement, number_elements) for statement in stage.body), scalars)


def _reader(phase: PhaseBuilder, result: Result) -> Callable[..., Scalar]:
    def read(frame: PhaseFrame, stage: StageDraft, at: tuple[Affine, ...], guard: Scalar | None) -> Scalar:
        assert frame is phase
        return result(phase, stage, at, guard)

    return read
