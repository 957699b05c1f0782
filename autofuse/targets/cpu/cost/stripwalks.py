"""How the stages of a strip walk memory: some iterations of the innermost loop for one vector before the next one."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.cost_models.loopnest import LoopNest, grouped
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import Buffer, Stage
from autofuse.targets.cpu.codegen.strips import Strip, iterations_together
from autofuse.targets.cpu.cost.farsteps import PAGE_BYTES

_SET_BYTES, _WAYS = 4096, 12
"""Of a common first cache: lines that lie so far apart share a set, which holds so many."""


class StripWalk:
    """A stage in a strip; of a stage in none, the loops as they are."""

    def __init__(self, stage: Stage, nest: LoopNest, buffers: Mapping[str, Buffer], strip: Strip | None) -> None:
        self._stage, self._buffers = stage, buffers
        self.together = 1 if strip is None or not stage.symbols else iterations_together(stage, strip)
        """Iterations that are done for one vector before the next one."""
        self.nest = nest
        """The loops as memory is walked: lines of lanes that lie apart are met again within these iterations."""
        if self.together > 1 and self._lines_of_a_set(nest) <= _WAYS:
            self.nest = grouped(nest, stage.symbols[-1], self.together)

    def on_a_page(self, statement: Load | Store) -> int:
        """Iterations together that visit the page of the first one, where each lane is on a page of its own."""
        if self.together == 1:
            return 1
        step = abs(statement.offset.coefficient(self._stage.symbols[-1]))
        nbytes = self.together * step * self._buffers[statement.buffer].type.dtype.itemsize
        return self.together if nbytes <= PAGE_BYTES else 1

    def _lines_of_a_set(self, nest: LoopNest) -> int:
        """Lines of one vector of all accesses that fall into the same set of the first cache."""
        if nest.vectorised is None:
            return 0
        apart = [
            abs(statement.offset.coefficient(nest.vectorised)) * self._buffers[statement.buffer].type.dtype.itemsize
            for statement in self._stage.body
            if isinstance(statement, Load | Store)
        ]
        return nest.lanes * sum(nbytes > 0 and nbytes % _SET_BYTES == 0 for nbytes in apart)
