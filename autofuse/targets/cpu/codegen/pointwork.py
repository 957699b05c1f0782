"""A crude estimate of the work in a grid point, good enough to choose how much of it to hand to one worker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

from autofuse.ir.dtypes import DType
from autofuse.ir.optable import scalar_op
from autofuse.lower.statements import ArgReduce, Load, Map, Position, Reduce, Scan, Store
from autofuse.lower.tile import Dot, Phase, RowGroup, Stage
from autofuse.targets.cpu.codegen.widths import register_bits

_NS_PER_BYTE = 0.08
_NS_PER_VECTOR = 0.3
_NS_PER_FLOP = 0.03


def map_weight(statement: Map) -> float:
    """Vector instructions of a Map, roughly."""
    return scalar_op(statement.opcode).work.vectors


@cache
def _weight(opcode: str, dtype: DType) -> float:
    """The same on registers of 32 bits."""
    return scalar_op(opcode).work.vectors * register_bits(dtype) / 32


_LIKE_TWO: frozenset[type] = frozenset((Reduce, ArgReduce, Scan, Position))
"""Statements that count as two instructions."""


def stage_ns(stage: Stage, lanes: int) -> float:
    """Nanoseconds of one stage at one grid point, its iterations or the points spread over `lanes`."""
    per_iteration = 0.0
    for statement in cast("Sequence[Any]", stage.body):
        kind = type(statement)
        if kind is Map:
            per_iteration += _weight(statement.opcode, statement.dtype) * _NS_PER_VECTOR / lanes
        elif kind is Load or kind is Store:
            size = statement.dtype.itemsize if kind is Load else 4
            per_iteration += size * _NS_PER_BYTE + _NS_PER_VECTOR / lanes
        elif kind in _LIKE_TWO:
            per_iteration += 2 * _NS_PER_VECTOR / lanes
    return per_iteration * math.prod(stage.trips) + _NS_PER_VECTOR


def stages_ns(stages: Iterable[Stage], lanes: int) -> float:
    """Nanoseconds of all stages at one grid point."""
    return sum(stage_ns(stage, lanes if stage.vectorised is not None or lanes > 1 else 1) for stage in stages)


def point_ns(phase: Phase, lanes: int) -> float:
    """Nanoseconds of one grid point; with a row block, of one row of it."""
    total = 0.0
    for number, step in enumerate(phase.steps):
        times = phase.times(number)
        match step:
            case RowGroup(stages):
                total += times * stages_ns(stages, lanes)
            case Dot():
                rows = 1 if phase.row_block is not None else step.rows
                total += times * 2 * rows * step.columns * step.depth * _NS_PER_FLOP
    return total
