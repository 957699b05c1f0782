"""Short spellings for hand-built TilePrograms, and the check that a compiled kernel computes what the program means."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.host.objectcache import ObjectCache
from autofuse.ir.dtypes import DType
from autofuse.ir.index import Symbol
from autofuse.ir.types import parse_type
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Dot, Panel, Phase, RowGroup, Space, Stage, Statement, TileProgram
from autofuse.targets.cpu.codegen.widths import TASK_US
from autofuse.targets.cpu.native.engine import Engine
from autofuse.testing.tilekernels import Kernel, random_inputs

TOLERANCE: Mapping[str, float] = {"f16": 4e-3, "bf16": 2e-2, "f32": 2e-5, "f64": 1e-12}
"""Relative: a few units in the last place of results, times what a sum of some hundred terms in another order adds."""


@functools.cache
def engine() -> Engine:
    """A compiler for this machine that keeps nothing on disk."""
    return Engine(cache=ObjectCache(None))


def buffers(inputs: str = "", outputs: str = "", scratch: str = "", workspace: str = "") -> tuple[Buffer, ...]:
    """Buffers from text: `buffers("x=f32[3,4] y=f32[3]", "z=f32[4]")`."""
    spaces = (Space.INPUT, inputs), (Space.OUTPUT, outputs), (Space.WORKSPACE, workspace), (Space.SCRATCH, scratch)
    return tuple(
        Buffer(name, parse_type(text), space)
        for space, listed in spaces
        for name, _, text in (item.partition("=") for item in listed.split())
    )


def stage(*body: Statement, over: Sequence[Symbol] = (), lane: Symbol | None = None) -> Stage:
    """A stage over `over`; `lane` is the symbol spread over vector lanes."""
    return Stage(tuple(over), body, lane)


def phase(
    grid: Sequence[Symbol], *steps: Stage | RowGroup | Dot, lane: Symbol | None = None, panel: Panel | None = None
) -> Phase:
    """A phase; neighbouring stages become one RowGroup."""
    grouped: list[RowGroup | Dot] = []
    pending: list[Stage] = []
    for step in (*steps, None):
        if isinstance(step, Stage):
            pending.append(step)
            continue
        if pending:
            grouped.append(RowGroup(tuple(pending)))
            pending = []
        if step is not None:
            grouped.append(step)
    return Phase(tuple(grid), tuple(grouped), lane, panel)


def program(
    name: str, listed: Sequence[Buffer], *launches: Phase | Sequence[Phase], schedule: Schedule | None = None
) -> TileProgram:
    """A program of one launch per argument."""
    grouped = tuple((launch,) if isinstance(launch, Phase) else tuple(launch) for launch in launches)
    return TileProgram(name, tuple(listed), grouped, schedule or Schedule())


def check(
    tested: TileProgram,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    *,
    exact: bool = False,
    compiler: Engine | None = None,
    task_us: float = TASK_US,
) -> dict[str, NDArray[Any]]:
    """Assert that the compiled program gives what `evaluate_program` gives, and the same bits however it is split.

    `compiler` defaults to one for this machine. `task_us`: least work worth handing to another worker.
    """
    given = random_inputs(tested.buffers) if inputs is None else inputs
    kernel = Kernel(tested, compiler or engine(), task_us)
    found, split = kernel.run(given), kernel.run(given, parts=3)
    expected = evaluate_program(tested, given)
    for buffer in tested.buffers:
        if buffer.space is Space.OUTPUT:
            name = buffer.name
            assert found[name].tobytes() == split[name].tobytes(), f"{name}: the split of blocks shows in the bits"
            compare(found[name], expected[name], buffer.type.dtype, exact=exact, name=name)
    return found


def compare(found: NDArray[Any], expected: NDArray[Any], dtype: DType, *, exact: bool = False, name: str = "") -> None:
    """Assert equality: of integers and bools, and of floats when `exact`; else within the dtype's tolerance."""
    if exact or not dtype.is_float:
        np.testing.assert_array_equal(found, expected, err_msg=name)
        return
    wide = np.float64
    tolerance = TOLERANCE[dtype.name]
    scale = np.max(np.abs(expected[np.isfinite(expected)].astype(wide)), initial=1.0)
    np.testing.assert_allclose(
        found.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance * float(scale), err_msg=name
    )
