"""Kernels that read in one order and write in another: through tiles, with the same bits, by whole sectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.lazydataclass import replace
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.codegen.transposes import wavefronts
from autofuse.testing.simt import run_simt
from autofuse.testing.simt.counters import Counts, count

TYPES = (np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.uint8, np.bool_)


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def random(like: Any, seed: int) -> Any:
    """Any bits that the dtype has."""
    raw = np.random.default_rng(seed).integers(0, 256, like.nbytes, np.uint8).tobytes()
    found = np.frombuffer(raw, np.uint8)
    if like.dtype == np.bool_:
        return (found % 2).astype(np.bool_).reshape(like.shape)
    return found.view(like.dtype).reshape(like.shape).copy()


def kernels(function: Any, *arguments: Any) -> list[Any]:
    """Lowered kernels of a plan for an H200."""
    return [
        lowered.program
        for lowered in af.compile(function, *arguments, backend="cuda", device="h200", deadline=None).lowered
    ]


def assert_same(function: Any, *like: Any, order: Any = "forward", tiles: int | None = None) -> None:
    """The one kernel of a function gives NumPy's bits on the host; `tiles`: that it has."""
    (program,) = kernels(function, *like)
    made = generate(program, "sm_90")
    if tiles is not None:
        assert made.source.count("_tile = reinterpret_cast") == tiles, made.source
    arguments = [random(array, seed) for seed, array in enumerate(like)]
    with np.errstate(all="ignore"):
        results = function(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    inputs = [b.name for b in made.parameters if b.space.name == "INPUT"]
    outputs = [b for b in made.parameters if b.space.name == "OUTPUT"]
    given = dict(zip(function.__code__.co_varnames, arguments, strict=False))
    arrays = {name: given[name] for name in inputs}
    arrays |= {b.name: random(np.empty(b.type.shape, b.type.dtype.numpy), 9) for b in outputs}
    run_simt(made, arrays, order=order)
    for buffer, right in zip(outputs, results, strict=True):
        np.testing.assert_array_equal(arrays[buffer.name], right)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [pytest.param((256, 128), marks=pytest.mark.slow), (131, 77)])
def test_every_type_in_even_and_odd_sizes(dtype: Any, shape: tuple[int, int]) -> None:
    assert_same(lambda x: np.where(x.T == x.T, x.T, x.T), zeros(*shape, dtype=dtype), tiles=1)


PROGRAMS = {
    "before_and_after": (lambda x, y: np.abs(x.T) + y, (zeros(90, 120), zeros(120, 90)), 1),
    "batched": (lambda x: -x.transpose(0, 2, 1), (zeros(3, 70, 50),), 1),
    "rotated": (lambda x: -x.transpose(2, 0, 1), (zeros(12, 40, 50),), 1),
    "heads": (lambda x: -x.reshape(2, 40, 4, 24).transpose(0, 2, 3, 1), (zeros(2, 40, 96),), 1),
    "narrow": (lambda x: -x.T, (zeros(3001, 3),), 1),
    "wide": (lambda x: -x.T, (zeros(3, 3001),), 1),
    "stacked": (lambda x, y, z: -np.stack([x, y, z], -1), (zeros(3001),) * 3, 1),
    "both_orders": (lambda x: (-x, np.abs(x.T)), (zeros(77, 131),), 1),
    "padded": (lambda x: np.pad(-x.T, ((1, 2), (3, 4))), (zeros(77, 131),), 1),
    "joined": (lambda x, y: np.concatenate([x.T, y], 1), (zeros(77, 131), zeros(131, 40)), 1),
    "twice": (lambda x, y, z: x.T * z - y.T, (zeros(77, 131), zeros(77, 131), zeros(131, 77)), 2),
    "mixed": (lambda x, y: x.T + y, (zeros(77, 130, dtype=np.int16), zeros(130, 77, dtype=np.int64)), 1),
}


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_numpys(name: str, order: Any) -> None:
    function, arguments, tiles = PROGRAMS[name]
    assert_same(function, *arguments, order=order, tiles=tiles)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x: -x.transpose(1, 0, 2), (zeros(30, 20, 64),)),  # rows stay rows
        (lambda x: -x.T, (zeros(20, 30),)),  # over before its barrier pays
        (lambda x, i: x[i] * 2, (zeros(100, 64), np.zeros(100, np.int32))),
    ],
)
def test_what_gains_nothing_has_no_tile(function: Any, arguments: tuple[Any, ...]) -> None:
    (program,) = kernels(function, *arguments)
    assert "_tile" not in generate(program, "sm_90").source


def test_blocks_may_be_wider_or_narrower() -> None:
    """As where phases, or kernels, share a launch."""
    from autofuse.targets.cuda.codegen.together import Copies, generate_together

    (program,) = kernels(lambda x: -x.T, zeros(77, 131))
    for threads in (32, 96, 1024):
        made = generate_together("k", [Copies(program, 2)], "sm_90", threads)
        x = np.random.default_rng(0).standard_normal((77, 131)).astype(np.float32)
        arrays = {b.name: x + n if b.space.name == "INPUT" else zeros(131, 77) for n, b in enumerate(made.parameters)}
        run_simt(made, arrays)
        inputs, outputs = ([arrays[b.name] for b in made.parameters if b.space.name == s] for s in ("INPUT", "OUTPUT"))
        for given, found in zip(inputs, outputs, strict=True):
            np.testing.assert_array_equal(found, -given.T)


def test_an_argument_is_replaced_by_its_transpose() -> None:
    def function(x: Any) -> None:
        x[...] = x.T.copy()

    x = np.random.default_rng(0).standard_normal((96, 96)).astype(np.float32)
    plan, right = af.compile(function, x.copy(), backend="simulated"), x.T.copy()
    plan(x)
    np.testing.assert_array_equal(x, right)


# ---- what it asks of memory ------------------------------------------------------------------------------------------


def counted(function: Any, *arguments: Any) -> Counts:
    (program,) = kernels(function, *arguments)
    (found,) = count(generate(replace(program, name="k"), "sm_90"), most_blocks=4)
    return found


@pytest.mark.parametrize(
    ("dtype", "wavefronts"), [(np.float64, 1.07), (np.float32, 1.0), (np.float16, 1.0), (np.int8, 1.0)]
)
def test_sectors_and_wavefronts_are_the_least(dtype: Any, wavefronts: float) -> None:
    found = counted(lambda x: -x.T, zeros(2048, 2048, dtype=dtype))
    assert found.scattered == found.repeated == 1.0
    assert found.wide == 1.0
    assert found.conflicted <= wavefronts


@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1.15), (np.float32, 1.15), (np.float16, 1.25)])
def test_odd_pitches_waste_little(dtype: Any, most: float) -> None:
    """The ends of lines: of 64 elements, 128 bytes for 16 bits."""
    found = counted(lambda x: -x.T, zeros(2001, 2003, dtype=dtype))
    assert found.scattered <= most
    assert found.conflicted <= 1.05


def test_wavefronts_are_counted_as_the_hardware_does() -> None:
    assert wavefronts([4 * n for n in range(32)], 4) == 1
    assert wavefronts([128 * n for n in range(32)], 4) == 32
    assert wavefronts([0] * 32, 4) == 1
    assert wavefronts([8 * n for n in range(32)], 8) == 2
    assert wavefronts([16 * n for n in range(32)], 8) == 4


def test_prices_know_of_tiles() -> None:
    """A transpose costs what a copy does, not eight times its sectors."""
    from autofuse.targets.cuda.cost.counts import features

    across, straight = (
        features(kernels(function, zeros(2048, 2048))[0], "sm_90").phases[0].stages[0].accesses.vector_bytes
        for function in (lambda x: -x.T, lambda x: -x)
    )
    assert across == straight
