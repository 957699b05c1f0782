"""What a schedule of a CUDA kernel decides."""

from __future__ import annotations

from autofuse.lower.decisions import KEEPS, WALKS, Decisions, Rule
from autofuse.lower.schedule import PRODUCTS, Decision, Range, Schedule, Value

THREADS: Decision[int] = Decision("threads", 256, Range(1, 1024), "threads of a block")
ITEMS: Decision[int] = Decision("items", 4, Range(1, 1024), "elements of a thread, or as many times 4 bytes")

CUDA_DECISIONS = Decisions(
    (
        *(rule for rule in WALKS if rule.decision is not PRODUCTS),
        Rule(THREADS, lambda shape: (64, 128, 256, 512) if shape.staged else ()),
        Rule(ITEMS, lambda shape: (1, 2, 4, 8, 16) if shape.staged and not shape.in_row_blocks else ()),
        *KEEPS,
    )
)
"""The kernels of all devices leave the same things open."""


def cuda_schedule(**values: Value) -> Schedule:
    """The schedule of a CUDA kernel that decides so, by name. Raises PlanError for what there is not."""
    return CUDA_DECISIONS.read(values)
