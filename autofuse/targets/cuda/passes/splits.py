"""In how many parts a GPU has long loops cut: as many blocks as all of its multiprocessors hold at a time.

A block of a part takes its loop by `_THREADS` threads. Four such blocks on a multiprocessor have 64 KiB of loads on the
way, which is more than memory of today needs (bandwidth times latency: 36 KiB on an H200), and up to 64 registers a
thread are enough for all of them to be there at once: one wave, whose blocks have equally much to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import Schedule
from autofuse.lower.splitting import iterations_of
from autofuse.lower.tile import Buffer, Phase, RowGroup, Stage
from autofuse.targets.cuda.codegen.columns import column_vector

_THREADS = 256
_BLOCKS_EACH = 4
"""Of a part, on a multiprocessor."""
_LEAST_ITERATIONS = 1 << 15
"""Of a loop over a row: one block walks less in about the time that a second launch takes."""
_PART_ITERATIONS = 1 << 12
"""Of a part, at least: four packs of f32 for each thread of its block."""
_FEW_ROWS = 8
"""From here on, rows that are walked more than once are not split: they may be kept on chip."""
_WIDE = 32
"""Packs of columns that a block of a part walks side by side."""
_NARROW = 8
"""The same where nothing is split: 128 bytes."""
_LEAST_SHARE = 32
"""Iterations of a thread of an unsplit block, from which on it takes as long as a second launch."""
_PART_SHARE = 8
"""Iterations of a thread of a part, at least."""
_AT_ONCE = 4
"""Iterations that a thread begins at a time, or neighbours that it takes together."""
_MOST_TRIED = 1 << 12
"""Lengths of parts that are tried."""
_PACK = 16
"""Elements of a pack of the narrowest type."""


@dataclass(frozen=True, slots=True)
class SplitByDevice:
    """See `autofuse.lower.splitting.Splitting`."""

    multiprocessors: int
    combines_once: bool = True

    @property
    def blocks(self) -> int:
        """Of parts, on the whole device."""
        return _BLOCKS_EACH * self.multiprocessors

    def parts(self, phase: Phase, stage: Stage, buffers: Mapping[str, Buffer]) -> int:
        """As many as fill the device, if its grid points alone do not."""
        points = math.prod(symbol.extent for symbol in phase.grid)
        if not points or not stage.symbols:
            return 1
        if phase.vectorised is None:
            return self._of_rows(phase, stage, points)
        return self._of_columns(phase, stage, points, buffers)

    def chunk(self, phase: Phase, stage: Stage, symbol: Symbol, least: int) -> int:
        """Whole rounds of a block's threads, and parts that are all alike, where that makes them little longer."""
        fewest = least
        if phase.vectorised is not None:
            units = [_THREADS // _WIDE * _AT_ONCE, _THREADS // _WIDE, 1]
        else:
            units = [_THREADS * _AT_ONCE, _PACK, 1] if symbol == stage.vectorised else [1]
            points = math.prod(point.extent for point in phase.grid)
            fewest = max(least * 3 // 4, -(-symbol.extent * points // self.blocks))
        for unit in (unit for unit in units if least >= unit > least // _MOST_TRIED):
            above = range(-(-least // unit) * unit, least * 5 // 4 + 1, unit)
            below = range(least // unit * unit, fewest - 1, -unit)
            alike = next((size for size in chain(above, below) if symbol.extent % size == 0), None)
            if alike is not None:
                return alike
        unit = next((unit for unit in units if least >= 8 * unit), 1)
        return -(-least // unit) * unit

    def _of_rows(self, phase: Phase, stage: Stage, points: int) -> int:
        iterations = iterations_of(stage)
        again = sum(iterations_of(other) >= _PART_ITERATIONS for other in _stages(phase)) > 1
        if iterations < _LEAST_ITERATIONS or (again and points >= _FEW_ROWS):
            return 1
        return max(1, min(self.blocks // points, iterations // _PART_ITERATIONS))

    def _of_columns(self, phase: Phase, stage: Stage, points: int, buffers: Mapping[str, Buffer]) -> int:
        iterations = iterations_of(stage)
        packs = -(-points // column_vector(phase, buffers, Schedule()))
        narrow, wide = min(packs, _NARROW), min(packs, _WIDE)
        if packs >= _NARROW * self.blocks or iterations * narrow < _LEAST_SHARE * _THREADS:
            return 1
        return max(1, min(self.blocks // -(-packs // _WIDE), iterations * wide // (_PART_SHARE * _THREADS)))


def _stages(phase: Phase) -> list[Stage]:
    return [stage for step in phase.steps if isinstance(step, RowGroup) for stage in step.stages]
