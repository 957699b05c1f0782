"""What walking a block of elements takes beside the work itself: state in the first cache, packed sides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from autofuse.lazydataclass import dataclass
from autofuse.lower.raresides import with_rare_sides
from autofuse.lower.sidesegments import Line, cut_at_sides, packed_sides_of
from autofuse.lower.statements import Carry, Effect, Load, Next
from autofuse.lower.tile import Phase, Stage
from autofuse.lower.varying import varying_scalars
from autofuse.targets.cpu.codegen.blockline import is_contiguous
from autofuse.targets.cpu.codegen.phaselayout import Layout
from autofuse.targets.cpu.codegen.widths import Widths
from autofuse.targets.cpu.cost.scalarwork import Scalar


@dataclass(frozen=True, slots=True)
class BlockWork:
    """Of a stage that is walked in blocks (see `BlockLine`)."""

    inside: frozenset[int]
    """Scalars that are computed for packed elements alone."""
    sides: int
    """Sides whose elements are collected."""
    moved: tuple[int, ...]
    """Scalars stored, or loaded again, once for each vector of the block: between segments, and as the loop's state."""
    picked: tuple[int, ...]
    """Scalars gathered for each vector of packed elements."""
    placed: tuple[int, ...]
    """Scalars scattered for each of these."""


def block_work(
    phase: Phase, stage: Stage, layout: Layout, widths: Widths, known: Mapping[int, Scalar]
) -> BlockWork | None:
    """Of a stage of a phase; None where it is not walked in blocks. `known`: scalars of earlier stages."""
    strip = layout.strip
    if strip is not None and strip.together:
        lane, packs = strip.vectorised, strip.packs(stage)
    elif phase.vectorised is None and stage.vectorised is not None and widths.sides == "packed":
        lane, packs = stage.vectorised, bool(packed_sides_of(phase, stage))
        if not packs:
            return None
    else:
        return None
    varying = {number for number, scalar in known.items() if scalar.varying}
    varies = varying_scalars(stage, varying, lane).__contains__
    items = with_rare_sides(stage.body, varies) if packs else stage.body
    return _of_line(cut_at_sides(items, varies, partial(is_contiguous, lane=lane, varies=varies)))


def _of_line(line: Line) -> BlockWork:
    moved: list[int] = []
    picked: list[int] = []
    placed: list[int] = []
    inside: set[int] = set()
    sides = 0
    met: set[int] = set()
    for segment in line.segments:
        moved += [*segment.reads, *segment.keeps]
        for statement in segment.statements:
            if isinstance(statement, Next):
                moved.append(statement.carry)
            elif isinstance(statement, Carry) or (isinstance(statement, Load) and statement.result in met):
                moved.append(statement.result)  # what is loaded again is no longer far away
            if isinstance(statement, Load):
                met.add(statement.result)
        if segment.packed is not None:
            sides += 1
            inside.update(s.result for s in segment.packed.side.inside if not isinstance(s, Effect))
            loads = [s.result for s in segment.packed.again if isinstance(s, Load)]
            picked += [*segment.packed.gathered, *loads]
            placed += segment.packed.results
    return BlockWork(frozenset(inside), sides, tuple(moved), tuple(picked), tuple(placed))
