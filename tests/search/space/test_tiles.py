"""Candidates in overlapped tiles: what the search prices is what a plan's kernel becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.lazydataclass import replace
from autofuse.lower.lowering import lower, plain_scalars
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.passes.pipeline import clean
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from autofuse.testing.fusions import LIMITS
from autofuse.testing.partitions import context_of
from tests.lower.test_overlapped import heat

TARGET = CpuTarget(server(2), replace(LIMITS, overlaps=True))
U = np.random.default_rng(0).standard_normal((40, 24))


def solid(u: Any) -> Any:
    """Two steps in three dimensions: seven points each, computed anew at seven places."""
    for _ in range(2):
        around = sum(np.roll(u, shift, axis)[1:-1, 1:-1, 1:-1] for axis in range(3) for shift in (1, -1))
        u = np.pad(u[1:-1, 1:-1, 1:-1] * 0.5 + around * 0.1, 1)
    return u


def is_tiled(program: object) -> bool:
    return isinstance(program, TileProgram) and any(phase.tile is not None for phase in program.phases())


@pytest.mark.parametrize(
    ("function", "array"), [(heat(2), U), (heat(5), U), (solid, U.reshape(8, 10, 12))], ids=["two", "five", "solid"]
)
def test_candidates_are_what_plans_run(function: Any, array: Any) -> None:
    space = context_of(clean(af.trace(function, array)), target=TARGET).space
    for candidate in space.candidates:
        limits = replace(TARGET.limits, scalars=max(TARGET.limits.scalars, plain_scalars(candidate.kernel)))
        assert is_tiled(candidate.program) == is_tiled(lower(candidate.kernel, Schedule(), "k", limits))
    found = any(is_tiled(candidate.program) for candidate in space.candidates)
    assert found == (function is not solid and len(space.atom_graph.graph.nodes) > 40)
