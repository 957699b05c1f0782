"""Which loops of a kernel with few grid points are long, and in how many parts they are cut: a target's to say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Buffer, Phase, Stage

AUTOMATIC_PARTS = 16
"""Fewest parts of an automatic split. The number is a function of the loop alone, so that a result does not depend on
the number of threads."""
_MOST_PARTS = 64
_PART_ITERATIONS = 1 << 14
_LEAST_ITERATIONS = 1 << 15
_FEW_POINTS = 8
_ROUND = 64
"""Parts of vectorised loops hold a multiple of these iterations where they are long: whole vectors in flight."""


class Splitting(Protocol):
    """What a target says about long loops. Equal programs are cut alike."""

    @property
    def combines_once(self) -> bool:
        """Whether a launch combines partial results for all who need them later; else each of them does."""
        ...

    def parts(self, phase: Phase, stage: Stage, buffers: Mapping[str, Buffer]) -> int:
        """Parts of a stage's loop over all grid points of its phase; 1: it is not long."""
        ...

    def chunk(self, phase: Phase, stage: Stage, symbol: Symbol, least: int) -> int:
        """Iterations of a part of the loop over `symbol`: `least`, or somewhat more."""
        ...


@dataclass(frozen=True, slots=True)
class SplitBySize:
    """For a few workers with vectors: 16 to 64 parts, by the length of the loop alone."""

    combines_once: bool = False

    def parts(self, phase: Phase, stage: Stage, buffers: Mapping[str, Buffer]) -> int:  # noqa: ARG002
        """Loops of few grid points are long."""
        points = math.prod(symbol.extent for symbol in phase.grid)
        lanes = 64 if phase.vectorised is not None else 1
        if points // lanes >= _FEW_POINTS or iterations_of(stage) * min(points, 64) < _LEAST_ITERATIONS:
            return 1
        return min(_MOST_PARTS, max(AUTOMATIC_PARTS, iterations_of(stage) // _PART_ITERATIONS))

    def chunk(self, phase: Phase, stage: Stage, symbol: Symbol, least: int) -> int:  # noqa: ARG002
        """Long parts of vectorised loops are whole vectors."""
        return -(-least // _ROUND) * _ROUND if symbol == stage.vectorised and least >= _ROUND * _ROUND else least


BY_SIZE = SplitBySize()


def iterations_of(stage: Stage) -> int:
    """Of a stage, at one grid point."""
    return math.prod(symbol.extent for symbol in stage.symbols)
