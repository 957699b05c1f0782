"""Blocks that take tasks in turn: a grid of any size does all of a launch's work, so that a device may choose it.

for (number = blockIdx.x; number < tasks; number += gridDim.x) { ... }
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from autofuse.targets.cuda.codegen.ctext import Writer

MOST_TASKS = 1 << 30
"""That an `int` counts in steps of as many."""


@contextmanager
def in_turn(out: Writer, tasks: int, shared_bytes: int) -> Generator[None]:
    """What is written within is done for each task of a block, by its `number`; if there are 0 tasks, once.

    `shared_bytes`: of what is written within.
    """
    if not tasks:
        yield
        return
    out.line("#pragma unroll 1")
    with out.braces(f"for (int number = (int)blockIdx.x; number < {tasks}; number += (int)gridDim.x)"):
        yield
        if shared_bytes:
            out.line("__syncthreads();  // the next task's values lie where this one's do")
