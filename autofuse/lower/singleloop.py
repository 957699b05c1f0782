"""A loop over the elements of one value, stored in an output or in a part of one."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.dimensions import Dimensions
from autofuse.ir import index
from autofuse.ir.graph import Value
from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.demand import PhaseBuilder
from autofuse.lower.finish import finish_phase
from autofuse.lower.overwriting import Overwriting
from autofuse.lower.phasedrafts import BufferTable
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Store
from autofuse.lower.tile import Phase


@dataclass(frozen=True, slots=True)
class Target:
    """Where a loop's elements go: into an output, moved along one axis."""

    output: Value
    axis: int = 0
    begin: int = 0

    def offset(self, at: Sequence[index.Affine]) -> index.Affine:
        moved = [position + self.begin if n == self.axis else position for n, position in enumerate(at)]
        return index.linearize(moved, self.output.type.shape)


def single_loop(
    part: KernelCandidate,
    value: Value,
    buffers: BufferTable,
    schedule: Schedule,
    scalars: int,
    target: Target | Overwriting,
) -> Phase:
    """A loop over one value whose axes are loops of their own, whatever they are tied to."""
    dims = Dimensions((), ())
    phase = PhaseBuilder(part, dims, (), buffers, {}, None)
    phase.draft.limit = scalars
    symbols = [Symbol(f"i{axis}", extent) for axis, extent in enumerate(value.type.shape)]
    at = tuple(index.of(symbol) for symbol in symbols)
    stage = phase.draft.stage(0, ())
    scalar = phase.value(stage, value, at, None)
    if isinstance(target, Overwriting):
        phase.store_block(stage, target, at, scalar, None)
    else:
        stage.body.append(Store(buffers.of(target.output).name, target.offset(at), scalar))
    grid = [symbol for symbol in symbols if symbol.extent != 1]
    return finish_phase(phase.draft, grid, (), None, schedule, ())
