"""Costly sides for packed elements, and the state of loops in the cache: the same bits as for all elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import LegalityError
from autofuse.lower.decisions import KernelShape
from autofuse.lower.schedule import SIDES
from autofuse.targets.cpu.cost.extract import features
from autofuse.targets.cpu.decisions import STATE, cpu_decisions
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.native.engine import Engine, default_engine
from autofuse.targets.cuda.decisions import CUDA_DECISIONS
from tests.fixtures.loopprograms import KEY, PROGRAMS
from tests.fixtures.randomloops import random_program
from tests.fixtures.sideprograms import random_sides
from tests.fixtures.tilekernels import generated
from tests.targets.cpu.test_rare_sides import elements, kernel, lowered, restarted

F32 = np.float32
PACKED, CACHED = {"sides": "packed"}, {"sides": "any", "state": "cache"}


def same(function: Any, arguments: Any, *schedules: dict[str, Any], parts: int = 1, **others: Any) -> None:
    """Whether each schedule gives the bits of both sides computed for every element."""
    engine = others.pop("engine", None) or default_engine()
    always, inputs = kernel(function, arguments, engine, sides="always", **others)
    expected = always.run(inputs)
    for schedule in schedules:
        made, _ = kernel(function, arguments, engine, **schedule, **others)
        for name, array in made.run(inputs, parts=parts).items():
            np.testing.assert_array_equal(array, expected[name], err_msg=f"{name} {schedule}")


def rows(x, y):
    costly = np.exp(x) * np.sin(y) * np.tanh(x)
    return np.where(x > y, costly, x).sum(axis=1)


def columns(x, y):
    costly = np.exp(x) * np.sin(y) * np.tanh(x)
    return np.where(x > y, costly, x).max(axis=0)


def several(x, y):
    """Sides that hang on one another, and that read what was gathered and computed before."""
    first = np.where(x > 1, np.exp(x) * np.sin(y[::-1]) * np.tanh(x), np.sqrt(np.abs(y)))
    second = np.where(first > y, x, np.tanh(first) * np.cos(x) * np.sin(y))
    return np.where(second > 0, second, first), second > x


ALL = [(function, bits) for function in (elements, rows, columns, several) for bits in (128, 256, 512)]
QUICK = [(elements, 512), (rows, 256), (columns, 128), (several, 512)]


@pytest.mark.parametrize(
    ("function", "bits"), [*QUICK, *(pytest.param(*c, marks=pytest.mark.slow) for c in ALL if c not in QUICK)]
)
def test_bits_are_those_of_always(function, bits):
    rng = np.random.default_rng(bits)
    shape = (21, 147) if function in (rows, columns) else (1003,)
    x, y = (rng.standard_normal(shape).astype(F32) for _ in range(2))
    x[..., 5], y[..., 8] = np.nan, np.inf
    same(function, (x, y), PACKED, parts=2, vector_bits=bits, unroll=2)


def test_none_some_most_or_all_take_the_side():
    """Where most of a block do, the side is computed for all of it; 433 elements end in a part of a vector."""
    engine, rng = default_engine(), np.random.default_rng(0)
    x, y = np.zeros(433, F32), rng.standard_normal(433).astype(F32)
    (always, _), (packed, _) = (kernel(several, (x, y), engine, sides=sides) for sides in ("always", "packed"))
    assert "dense" in packed.unit
    for share in (0.0, 0.1, 0.5, 0.8, 1.0):
        x[:] = np.where(rng.random(433) < share, F32(3), F32(0.5))
        inputs = {"x": x, "y": y}
        expected = always.run(inputs)
        for name, array in packed.run(inputs).items():
            np.testing.assert_array_equal(array, expected[name], err_msg=f"{name} {share}")


@pytest.mark.parametrize("isa", ["avx2", pytest.param("sse4", marks=pytest.mark.slow)])
def test_machines_that_compress_no_vectors_look_places_up(isa):
    engine = Engine(host_machine(isa))
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((5, 131)).astype(F32) for _ in range(2))
    same(rows, (x, y), PACKED, engine=engine)
    program, _ = lowered(rows, (x, y), **PACKED)
    assert "af_places_of_bits" in generated(program, engine.machine).ir


@pytest.mark.parametrize("extent", [1, 2])
def test_blocks_of_an_element_or_two(extent):
    x = np.full(extent, 3.0, F32)
    same(elements, (x, x + F32(0.25)), PACKED)


@pytest.mark.parametrize("extent", [35, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 700))])
def test_loops_over_time_run_in_blocks(extent):
    x = np.abs(np.random.default_rng(extent).standard_normal(extent).astype(F32))
    same(restarted, (KEY, x), PACKED, CACHED, parts=2 if extent > 100 else 1)


@pytest.mark.parametrize("name", ["stacked_state", "summed_over_time", "backward", "turned_around"])
def test_state_in_the_cache(name):
    same(*PROGRAMS[name], CACHED)


def test_packed_code_is_in_the_kernel():
    x, machine = np.ones(99, F32), default_engine().machine
    for function, arguments in ((elements, (x, x)), (rows, (x.reshape(3, 33),) * 2), (restarted, (KEY, x))):
        program, _ = lowered(function, arguments, **PACKED)
        text = generated(program, machine).ir
        assert "%chosen" in text
        assert "taken" not in text


def test_long_loops_pack_by_themselves():
    machine = default_engine().machine
    few = 3 * machine.vector_bits // 32 - 3  # in three vectors
    for extent, sides, packs in ((500, "auto", True), (500, "any", False), (few, "auto", False)):
        program, _ = lowered(restarted, (KEY, np.ones(extent, F32)), sides=sides)
        text = generated(program, machine).ir
        assert ("%chosen" in text) == packs
        assert ("taken" in text) != packs
    program, _ = lowered(elements, (np.ones(500, F32),) * 2)
    assert "%chosen" not in generated(program, machine).ir


def choices_of(function: Any, *arguments: Any, decisions: Any = None) -> Any:
    program, _ = lowered(function, arguments)
    return (decisions or cpu_decisions()).choices(program)


def test_it_is_tried_where_there_are_such_sides():
    x = np.ones(64, F32)
    assert "packed" in choices_of(elements, x, x)[SIDES]
    assert STATE not in choices_of(elements, x, x)
    assert "packed" in choices_of(restarted, KEY, x)[SIDES]
    assert choices_of(restarted, KEY, x)[STATE] == ("registers", "cache")
    assert SIDES not in choices_of(np.add, x, x)
    assert "packed" not in choices_of(elements, x, x, decisions=CUDA_DECISIONS)[SIDES]


def resting(x, k):
    """Elements that leave a circle stay; those that are close to its edge are moved at a cost."""

    def step(carry, _):
        z, n = carry
        moves = z * z < F32(4)
        costly = np.exp(np.sin(z)) * np.tanh(z) * np.cos(z) + np.sin(z * F32(2))
        new = np.where(z > F32(1), costly, z * z + k)
        return (np.where(moves, new, z), n + moves), None

    return af.scan(step, (x, np.zeros(x.shape, np.int32)), None, length=20)[0]


def test_blocks_end_early_when_all_of_them_rest():
    rng = np.random.default_rng(0)
    x, k = (rng.standard_normal(203).astype(F32) * F32(2) for _ in range(2))
    same(resting, (x, k), PACKED, CACHED, {**PACKED, "early_end": False})
    machine = default_engine().machine
    program, _ = lowered(resting, (x, k), **PACKED)
    assert "left" in generated(program, machine).ir
    unasked, _ = lowered(resting, (x, k))
    assert "%chosen" not in generated(unasked, machine).ir


def test_loops_that_data_end_are_not_walked_in_blocks():
    program, _ = lowered(*PROGRAMS["converged"])
    shape = KernelShape.of(program)
    assert not shape.packs
    assert not shape.carries


def test_a_packed_side_is_priced_for_half_of_the_elements():
    x = np.ones(4096, F32)
    counted = {}
    for sides in ("always", "any", "packed"):
        program, _ = lowered(elements, (x, x), sides=sides)
        (stage,) = features(program).phases[0].stages
        counted[sides] = stage.operations
    assert counted["any"] == counted["always"]
    assert counted["packed"]["exp", "f32"] == counted["any"]["exp", "f32"] / 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_many_random_sides(seed):
    _random(seed)


@pytest.mark.parametrize("seed", [6, 27])
def test_random_sides(seed):
    _random(seed)


def _random(seed: int) -> None:
    function, arguments = random_sides(seed)
    bits, unroll = (512, 256, 128)[seed % 3 if seed % 2 else 0], (1, 2, 4)[seed % 3]
    try:
        same(function, arguments, PACKED, CACHED, parts=1 + seed % 3, vector_bits=bits, unroll=unroll)
    except LegalityError:
        pytest.skip("not one kernel")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_many_random_loops(seed):
    try:
        same(*random_program(seed), PACKED, CACHED)
    except LegalityError:
        pytest.skip("not one kernel")
