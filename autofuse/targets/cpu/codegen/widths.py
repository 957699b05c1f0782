"""How many lanes a vector has, and how many vectors are in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from autofuse.ir.dtypes import BOOL, DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.schedule import PRODUCTS, SIDES
from autofuse.lower.statements import EFFECTS, Leave, Load, Map, Next, Repeat, Store, Test
from autofuse.lower.tile import Stage, TileProgram
from autofuse.targets.cpu.codegen.cachestores import streams_stores, streams_transposed
from autofuse.targets.cpu.codegen.values import Value
from autofuse.targets.cpu.decisions import STATE, UNROLL, VECTOR_BITS

TASK_US = 5.0
"""Least work worth handing to another worker, in estimated microseconds."""
_MOST_LANES = 64


def scalar_dtypes(stages: Iterable[Stage], known: Mapping[int, Value]) -> dict[int, DType]:
    """The dtype of every scalar of the stages, and of those computed before."""
    found = {number: value.dtype for number, value in known.items()}
    for stage in stages:
        for statement in stage.body:
            match statement:
                case Test():
                    found[statement.result] = BOOL
                case Leave() | Repeat() | Next() | Store():
                    pass
                case _:
                    found[statement.result] = statement.dtype
    return found


def register_bits(dtype: DType) -> int:
    """Bits of one lane in the registers that compute on `dtype`: floats of 16 bits compute as f32."""
    return 32 if dtype.is_float and dtype.bits == 16 else dtype.bits


@dataclass(frozen=True, slots=True)
class Widths:
    """The schedule's vector width and unrolling, cut to what the target has."""

    vector_bits: int
    unroll: int
    registers: int
    """Vector registers of the target."""
    stream_stores: bool = False
    """Whether element-wise stages write outputs past the caches."""
    products: str = "auto"
    """Who multiplies matrices, as the schedule says."""
    stream_transposed: bool = False
    """Whether those that transpose squares do, which write a line here and a line there."""
    task_us: float = TASK_US
    """Least work worth handing to another worker."""
    sides: str = "auto"
    """When costly sides of choices are computed, as the schedule says."""
    state: str = "registers"
    """Where the state of loops is, as the schedule says."""

    @staticmethod
    def chosen(program: TileProgram, vector_bits: int, task_us: float = TASK_US) -> Widths:
        """What a program's schedule chose, on a machine with vectors of at most `vector_bits` bits."""
        schedule = program.schedule
        return Widths(
            vector_bits=power_of_two_at_most(min(schedule[VECTOR_BITS], vector_bits)),
            unroll=schedule[UNROLL],
            registers=32 if vector_bits > 256 else 16,
            stream_stores=streams_stores(program),
            products=schedule[PRODUCTS],
            stream_transposed=streams_transposed(program),
            task_us=task_us,
            sides=schedule[SIDES],
            state=schedule[STATE],
        )

    def of_stage(self, stage: Stage) -> tuple[int, int]:
        """(lanes, vectors in flight) of a stage that vectorises a loop."""
        assert stage.vectorised is not None
        return self.of((stage,), stage.vectorised.extent)

    def of(self, stages: Iterable[Stage], extent: int) -> tuple[int, int]:
        """(lanes, vectors in flight) for stages spread over `extent` iterations or grid points."""
        widest = max((register_bits(dtype) for dtype in _computed(stages)), default=32)
        lanes = min(max(self.vector_bits // widest, 1), _MOST_LANES, power_of_two_at_least(extent))
        return lanes, max(1, min(self.unroll, extent // lanes))


def _computed(stages: Iterable[Stage]) -> set[DType]:
    """The dtypes that fill registers; conditions cost no width unless there is nothing else."""
    found: set[DType] = set()
    for s in cast("Iterable[Any]", (s for stage in stages for s in stage.body)):
        if type(s) in _COMPUTING or (type(s) not in _NO_WIDTH and s.dtype != BOOL):
            found.add(s.dtype)
    return found - {BOOL} or found


_COMPUTING = frozenset((Load, Map))
_NO_WIDTH = EFFECTS | {Test}


def power_of_two_at_most(value: int) -> int:
    """The largest one; 1 for numbers below it."""
    return 1 << (max(value, 1).bit_length() - 1)


def power_of_two_at_least(value: int) -> int:
    """The smallest one; 1 for numbers below it."""
    return 1 << max(value - 1, 0).bit_length()
