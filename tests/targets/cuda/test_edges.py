"""What only the edges of an array need is loaded at the edges alone: the same bits, fewer bytes, at a lower price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autofuse as af
from autofuse.cost_models.base import KernelFacts
from autofuse.lazydataclass import replace
from autofuse.lower.rewrite import statements
from autofuse.lower.statements import Load, Map
from autofuse.lower.tile import RowGroup, Stage, TileProgram
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.gpus import H200
from autofuse.targets.cuda.passes.edges import load_at_edges
from autofuse.testing.simt import run_simt
from autofuse.testing.simt.counters import count

Array = NDArray[Any]


def inside(x: Array, y: Array) -> Array:
    """`y` with new values inside, in any number of dimensions."""
    found = y.copy()
    middle = (slice(1, -1),) * x.ndim
    found[middle] = np.maximum(x[middle], x[tuple(slice(None, -2) for _ in x.shape)])
    return found


def two_margins(x: Array, y: Array) -> Array:
    found = y.copy()
    found[2:-1, 3:] = x[2:-1, 3:] * 2
    return found


def all_of_some_rows(x: Array, y: Array) -> Array:
    found = y.copy()
    found[3:] = x[3:] + x[3:]
    return found


CASES: dict[str, tuple[Callable[..., Array], tuple[int, ...], Any]] = {
    "line": (inside, (1003,), np.float32),
    "plane": (inside, (37, 45), np.float64),
    "plane of bytes": (inside, (37, 48), np.uint8),
    "cube": (inside, (9, 12, 31), np.float32),
    "margins": (two_margins, (33, 41), np.float16),
    "rows": (all_of_some_rows, (40, 33), np.int32),
}


def program_of(function: Callable[..., Array], *arguments: Array) -> TileProgram:
    plan = af.compile(function, *arguments, backend="cuda", device="h200", deadline=None)
    (lowered,) = plan.lowered
    assert isinstance(lowered.program, TileProgram)
    return lowered.program


def stages_of(program: TileProgram) -> list[Stage]:
    groups = [step for phase in program.phases() for step in phase.steps if isinstance(step, RowGroup)]
    return [stage for group in groups for stage in group.stages]


def masked(program: TileProgram) -> set[str]:
    """The arguments of which every load has a mask."""
    loads = [s for phase in program.phases() for _, s in statements(phase.steps) if isinstance(s, Load)]
    return {s.buffer for s in loads} - {s.buffer for s in loads if s.mask is None}


@pytest.mark.parametrize("name", CASES)
def test_edges_come_from_one_array_and_the_inside_from_another(name: str) -> None:
    function, shape, dtype = CASES[name]
    rng = np.random.default_rng(len(name))
    x, y = (rng.integers(0, 99, shape).astype(dtype) for _ in range(2))
    program = program_of(function, x, y)
    assert "y" in masked(program)
    made = generate(program, "sm_90")
    (result,) = (b.name for b in made.parameters if b.space.name == "OUTPUT")
    for order in ("forward", "reverse"):
        arrays = {"x": x, "y": y, result: np.full_like(y, 77)}
        run_simt(made, arrays, order=order)
        np.testing.assert_array_equal(arrays[result], function(x, y))


def test_the_inside_of_what_edges_come_from_is_not_read() -> None:
    x, y = np.ones((400, 640), np.float32), np.ones((400, 640), np.float32)
    made = generate(program_of(inside, x, y), "sm_90")
    (counts,) = count(made, {"x": x, "y": y}, most_blocks=10**6)
    fetched = dict(zip((b.name for b in made.parameters), counts.fetched_of, strict=True))
    assert fetched["x"] > 0.95 * x.nbytes
    assert fetched["y"] <= 4 * 2 * (400 + 640)


def test_the_price_is_of_what_is_read() -> None:
    x, y = (np.zeros((4096, 4096), np.float32) for _ in range(2))

    def moved(function: Callable[..., Array]) -> float:
        (terms,) = GpuModel(H200).launches(KernelFacts(program_of(function, x, y), None))
        return terms.memory

    assert moved(inside) < 1.05 * moved(lambda x, y: np.maximum(x, x + 1)) < 0.8 * moved(np.maximum)


def no_edges(x: Array, y: Array) -> Array:
    """A few new values in the middle: most of `y` is needed."""
    found = y.copy()
    found[10:20, 10:20] = x[10:20, 10:20] * 2
    return found


def inside_too(x: Array, y: Array) -> Array:
    """The inside is made of `y` as well."""
    found = y.copy()
    found[1:-1, 1:-1] = x[1:-1, 1:-1] + y[1:-1, 1:-1]
    return found


@pytest.mark.parametrize("function", [no_edges, inside_too])
def test_what_is_needed_inside_or_nearly_everywhere_is_loaded_as_before(function: Callable[..., Array]) -> None:
    x, y = np.ones((37, 45), np.float32), np.ones((37, 45), np.float32)
    program = program_of(function, x, y)
    assert load_at_edges(program) is program
    assert "y" not in masked(program)


def test_what_another_stage_reads_is_loaded_as_before() -> None:
    """Stages of a thread hand scalars on."""
    x, y = np.ones((37, 45), np.float32), np.ones((37, 45), np.float32)
    program = program_of(inside, x, y)
    ((phase,),) = program.launches
    (group,) = phase.steps
    assert isinstance(group, RowGroup)
    (stage,) = group.stages
    body = [replace(s, mask=None) if isinstance(s, Load) and s.buffer == "y" else s for s in stage.body]
    plain = replace(stage, body=tuple(s for s in body if not (isinstance(s, Map) and s.opcode == "not")))
    (edge,) = (s for s in plain.body if isinstance(s, Load) and s.buffer == "y")
    more = Stage((), (Map(999, edge.dtype, "negate", (edge.result,)),), None)

    def of_stages(*stages: Stage) -> TileProgram:
        return replace(program, launches=((replace(phase, steps=(RowGroup(stages),)),),))

    assert "y" in masked(load_at_edges(of_stages(plain)))
    assert "y" not in masked(load_at_edges(of_stages(plain, more)))
    both = load_at_edges(of_stages(plain, plain))
    own = [{s.result for s in stage.body if isinstance(s, Map) and s.opcode == "not"} for stage in stages_of(both)]
    assert all(own)
    assert own[0].isdisjoint(own[1]), "masks of two stages stand in one scope"
