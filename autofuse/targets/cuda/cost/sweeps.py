"""What the two products of a sweep cost beside their multiplications, and what a thread keeps for them.

once                     the left operand of the first product from the L2
for each tile            a tile of each right operand from the L2, while the other product is made
                         fragments of both from shared memory; weights from there too, if ordinary units multiply
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autofuse.ir import index
from autofuse.lazydataclass import dataclass
from autofuse.lower.rewrite import affines, operands
from autofuse.lower.statements import Constant, Effect, Load, Map, Position, Scalar
from autofuse.lower.tile import Buffer, Dot, Stage
from autofuse.targets.cuda.codegen.access import words
from autofuse.targets.cuda.codegen.blockplans import RowBlockPlan
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES, TileShape, compute_dtype
from autofuse.targets.cuda.codegen.program import Planned
from autofuse.targets.cuda.codegen.sweepshapes import SweepShape, swept_steps
from autofuse.targets.cuda.cost.products import (
    LOAD_SLOTS,
    ROUNDED_SLOTS,
    WARP,
    WAVEFRONT_BYTES,
    ProductCounts,
    brought,
    fragments_of,
    itemsize_of,
)

_REGISTERS = 80
"""Of a thread, beside the elements of scores and of the second product: rows, fragments, addresses. From kernels that
were compiled (docs/decisions/0062-sums-over-a-softmax-are-rescaled.md)."""


@dataclass(frozen=True, slots=True)
class SweptTiles:
    """What a stage between the products of a sweep is done to."""

    visible: float
    """Share of its elements that some row of a block sees."""
    each_row: float
    """Tiles of a row: what is alike for all of its elements is computed once for each."""


def swept_tiles(planned: Planned, stage: Stage) -> SweptTiles | None:
    """Of a stage that a sweep takes tile by tile; None for others."""
    plan = planned.plan
    if not isinstance(plan, RowBlockPlan) or plan.sweep is None:
        return None
    scores, group, *_ = swept_steps(planned.phase)
    if stage not in group.stages[:2]:
        return None
    return SweptTiles(plan.visible, -(-scores.columns // plan.sweep.scores.columns) * plan.visible)


def invariants(stage: Stage) -> frozenset[Scalar]:
    """Scalars that are the same for all elements of a stage: ptxas computes them before the loop over these."""
    made = {s.result for s in stage.body if not isinstance(s, Effect)}
    found: set[Scalar] = set()
    for statement in stage.body:
        if isinstance(statement, Constant | Position | Load | Map):
            needed = made.intersection(operands(statement))
            walked = any(symbol in index.symbols_of(value) for value in affines(statement) for symbol in stage.symbols)
            if needed <= found and not walked:
                found.add(statement.result)
    return frozenset(found)


def swept_products(plan: RowBlockPlan, buffers: Mapping[str, Buffer]) -> tuple[ProductCounts, ...]:
    """The products of a sweep, in order."""
    assert plan.sweep is not None
    shapes = {id(plan.sweep.scores): True, id(plan.sweep.product): False}
    return tuple(
        _swept(plan, plan.sweep, dot, shape, buffers, is_first=shapes[id(shape)])
        for dot, shape in plan.dots
        if id(shape) in shapes
    )


def swept_registers(sweep: SweepShape, scores: Dot, product: Dot) -> float:
    """Of a thread: ordinary sums of the second product are there twice, as those of a tile are added at its end."""
    twice = 2 if sweep.units == "plain" else 1
    first = sweep.scores.rows * sweep.scores.columns * words(compute_dtype(scores))
    second = sweep.product.rows * sweep.product.columns * words(compute_dtype(product))
    return _REGISTERS + (first + twice * second) / sweep.workers


def swept_copies(sweep: SweepShape) -> int:
    """Bytes of tiles that are under way at a time."""
    return min(sweep.right_bytes, sweep.values_bytes)


def _swept(
    plan: RowBlockPlan, sweep: SweepShape, dot: Dot, shape: TileShape, buffers: Mapping[str, Buffer], *, is_first: bool
) -> ProductCounts:
    tiles = -(-(dot.columns if is_first else dot.depth) // sweep.scores.columns)
    rounds = plan.blocks * tiles * plan.visible
    """Of all blocks."""
    right = itemsize_of(dot.rhs, buffers)
    from_right = plan.blocks * dot.columns * dot.depth * (plan.visible if is_first else 1.0)
    from_left, left = (
        (float(plan.blocks * plan.rows * dot.depth), itemsize_of(dot.lhs, buffers)) if is_first else (0.0, 0)
    )
    stored = rounds * shape.columns * shape.depth * shape.element.itemsize
    if is_first:
        stored += plan.blocks * sweep.left_bytes
        moved = brought(left, shape, from_left)
    else:
        stored += rounds * sweep.weights_bytes
        each = ROUNDED_SLOTS if sweep.interleaved else LOAD_SLOTS
        moved = rounds * sweep.product.rows * shape.depth * shape.element.itemsize / CHUNK_BYTES * each / WARP
    deep = shape.reached(dot.depth, shape.instruction_depth) if is_first else shape.depth
    fragments = fragments_of(dot, shape, left_in_registers=not is_first)
    row_tiles = 1 if plan.row_block is None else plan.row_block.extent
    return ProductCounts(
        units=shape.units,
        dtype=compute_dtype(dot),
        element=shape.element,
        flops=2.0 * rounds * shape.rows * shape.columns * deep,
        slots=rounds * deep * fragments.slots + moved + brought(right, shape, from_right),
        wavefronts=rounds * deep * fragments.wavefronts + stored / WAVEFRONT_BYTES,
        requested_bytes=from_left * left + from_right * right,
        left_bytes=0,  # a block has whole rows, and reads them once
        right_bytes=dot.depth * dot.columns * right,
        others=max(1, plan.blocks // max(row_tiles, 1)),
        row_tiles=row_tiles,
        column_tiles=1,
        together=1,
        times=1,
        rounds=math.ceil(tiles * plan.visible),
        stages=2,  # a tile comes in while the other product is made
    )
