"""Limits: what lowering and planning must know of a target on a device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from autofuse.lazydataclass import dataclass
from autofuse.lower.decisions import LOWERING, Decisions
from autofuse.lower.splitting import BY_SIZE, Splitting
from autofuse.lower.tile import LoweredProgram, TileProgram

P = TypeVar("P", bound=LoweredProgram)


def as_it_is(program: P) -> P:
    """No rewrite."""
    return program


@dataclass(frozen=True, slots=True)
class Limits:
    """What lowering and planning must know of a target on a device."""

    scratch_bytes: int = 1 << 20
    """On-chip memory one worker may use for values kept between stages."""
    workers: int = 2
    """Workers that a kernel's row blocks should keep busy."""
    tile_columns: bool = False
    """Whether products with elementwise epilogues are cut into tiles of columns here; a backend may do so itself."""
    least_rows: int = 1
    """Of a row block: blocks of fewer would take as long, and read the right operands of products more often."""
    doubts_rows: bool = False
    """Whether no time was ever held against the prices of loops in blocks of rows: other ways need only be cheaper."""
    cuts_rows: bool = False
    """Whether its code takes fewer rows of a row block at a time where they would keep more than there is on chip."""
    joins_rows: bool = False
    """Whether short loops of rows become one, whose number says by division where in each a row is."""
    widens: bool = False
    """Whether products of f32 read operands of 16-bit floats as they are: such products are exact in f32."""
    scalars: int = 1200
    """Most scalar values in one phase: recomputation (a stencil of a stencil of ...) can multiply them without end."""
    splitting: Splitting = BY_SIZE
    """Which loops of few grid points are cut into parts, and into how many."""
    overlaps: bool = False
    """Whether a worker has caches for tiles of what is read at several positions (`autofuse.lower.overlapped`)."""
    decisions: Decisions = LOWERING
    """What schedules of the target's kernels decide."""
    passes: Callable[[TileProgram], TileProgram] = as_it_is
    """The target's rewrites of what was lowered: whoever asks about a kernel sees it as its code will be."""
    workspaces: Callable[[LoweredProgram], LoweredProgram] = as_it_is
    """Adds the buffers that a target's code works in beside those of the program: for plans of memory, and for calls.
    Prices are of programs without them."""
    updates: bool = False
    """Whether its code has loops that read and store single elements of an output (`Buffer.is_state`)."""
    overwrites: bool = False
    """Whether outputs may hold an input's elements, of which a kernel stores those that change: its code copies the
    others where the two have no memory in common."""
    small_us: float = 40.0
    """A kernel that takes at least so long is worth the whole device; shorter ones may run at the same time."""
    classes_a_kind: float = math.inf
    """For plans that are not measured: how many distinct kernels are worth trying for each distinct one of a single
    fusion atom. More take time, and differ by less than the target's model can tell."""
    estimates: bool = False
    """For plans that are not measured: whether what kernels of the target cost follows from their parts well enough to
    choose by that which are lowered at all."""
    most_together: int = 128
    """Most kernels that are planned to run at the same time; more are as well served by two groups."""
    sorts: bool = False
    """Whether the target has code for sorts, but for those that are faster by NumPy; else they are calls of a library.
    Scatters are code on all targets."""
    prologues: bool = False
    """Whether its code for scatters and sorts computes what these read, and what is made of their results, where that
    is elementwise work."""
    replays: bool = False
    """Whether the target may replay kernels that follow each other at once, in place of starting each."""
    iteration_us: float | None = None
    """What the target's driver takes for an iteration of a loop whose body is kernels, beside these. None: it runs no
    such loops, and those that are no kernel are the interpreter's."""
