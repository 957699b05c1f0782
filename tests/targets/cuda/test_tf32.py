"""Products of f32 that may be rounded to TF32: on matrix units, of every layout; races and wrong answers are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.ir.graph import Graph
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.measurement.checks import WrongAnswerError, check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.errorbounds.approximations import to_tf32
from autofuse.passes.pipeline import clean
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import CudaKernel, generate
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.registry import backend_named
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.counters import count

F32 = np.float32


def random(*shape: int, dtype: Any = F32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def fast(fn: Callable[..., Any], *args: Any) -> Graph:
    return clean(af.trace(fn, *args), "fast")


def whole(graph: Graph, schedule: Schedule = Schedule(), arch: str = "sm_90") -> CudaKernel:  # noqa: B008
    """A graph as one kernel."""
    kernel = candidate_of(graph, [node.name for node in graph.nodes], [value.name for value in graph.outputs])
    program = lower(kernel, schedule, "product", backend_named("cuda").target(device="h200").limits)
    assert isinstance(program, TileProgram)
    return generate(program, arch)


def plain(a, b):
    return a @ b


def turned_right(a, b):
    return a @ b.T


def turned_left(a, b):
    return a.T @ b


def both_turned(a, b):
    return a.T @ b.T


def layer(x, w, b):
    return np.maximum(x @ w + b, 0)


def scaled(x, w):
    return (x / x.sum(1, keepdims=True)) @ w


def widened(a, b):
    return a.astype(F32) @ b


CASES = {
    "aligned": (plain, (random(64, 64), random(64, 64))),
    "deep": (plain, (random(33, 300), random(300, 41))),
    "odd": (plain, (random(33, 37), random(37, 41))),
    "right": (turned_right, (random(130, 96), random(72, 96))),
    "left": (turned_left, (random(70, 136), random(70, 72))),
    "both": (both_turned, (random(20, 40), random(64, 20))),
    "layer": (layer, (random(100, 64), random(64, 128), random(128))),
    "scaled": (scaled, (4 + np.abs(random(50, 40)), random(40, 256))),
    "batched": (plain, (random(3, 40, 64), random(3, 64, 48))),
    "widened": (widened, (random(40, 64, dtype=ml_dtypes.bfloat16), random(64, 72))),
    "few_rows": (turned_left, (random(24, 9), random(24, 64))),
    "no_depth": (layer, (random(40, 0), random(0, 64), random(64))),
}
GRAPHS = {name: fast(fn, *args) for name, (fn, args) in CASES.items()}
KERNELS = {name: whole(graph) for name, graph in GRAPHS.items()}
KERNELS |= {f"layer_{size}": whole(GRAPHS["layer"], cuda_schedule(tile=size, stages=2)) for size in ("32x64", "16x128")}
KERNELS |= {"left_large": whole(GRAPHS["left"], cuda_schedule(tile="128x128", stages=4))}


@pytest.fixture(scope="module")
def module() -> SimtModule:
    return SimtModule(list(KERNELS.values()), races=True)


@pytest.mark.parametrize("name", KERNELS)
def test_products_are_right(module: SimtModule, name: str) -> None:
    kernel, graph, args = KERNELS[name], *((of[name.split("_")[0]] if name not in of else of[name]) for of in GIVEN)
    given = dict(zip((value.name for value in graph.inputs), args, strict=True))
    (out,) = (buffer for buffer in kernel.parameters if buffer.space is Space.OUTPUT)
    (right,), (bound,) = af.interpret(graph, *args), bounds_of(graph, args)
    found: list[bytes] = []
    for order in ("forward", "reverse"):
        answer = np.full(out.type.shape, 99, out.type.dtype.numpy)
        inputs = {b.name: given[b.name] for b in kernel.parameters if b.space is Space.INPUT}
        module.run(kernel, {**inputs, out.name: answer}, order=order)
        check(name, answer, right, bound)
        found.append(answer.tobytes())
    assert found[0] == found[1]


GIVEN = (GRAPHS, {name: args for name, (_, args) in CASES.items()})


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "no_depth"])
def test_they_are_for_the_matrix_units(name: str) -> None:
    assert "multiply_tf32(" in KERNELS[name].source
    assert "fmaf(" not in KERNELS[name].source


def test_strict_products_f64_and_old_devices_multiply_as_ever() -> None:
    graph = af.trace(plain, *CASES["aligned"][1])
    assert "tf32" not in whole(graph).source
    wide = fast(plain, *(array.astype(np.float64) for array in CASES["aligned"][1]))
    assert "tf32" not in whole(wide).source
    assert whole(GRAPHS["aligned"], arch="sm_75") == whole(graph, arch="sm_75")
    short = fast(plain, *(array.astype(np.float16) for array in CASES["aligned"][1]))
    assert "multiply_half(" in whole(short).source


@pytest.mark.parametrize(("fn", "shapes"), [(plain, ((4096, 64), (64, 4096))), (turned_left, ((64, 4096), (64, 4096)))])
def test_large_products_ask_for_16_bytes_and_share_no_banks(fn: Callable[..., Any], shapes: Any) -> None:
    kernel = whole(fast(fn, *(np.zeros(shape, F32) for shape in shapes)))
    (found,) = count(kernel, most_blocks=1)
    assert (found.wide, found.repeated) == (1.0, 1.0)
    assert found.conflicted <= 1.05


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed (pip install 'autofuse[cuda]')")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["layer", "left_large"])
def test_they_compile_without_spills(name: str, arch: str) -> None:
    graph = GRAPHS[name.split("_")[0]]
    kernel = whole(graph, cuda_schedule(tile="128x128"), arch)
    for used in nvrtc.compile_source(kernel.source, arch).resources.values():
        assert used.spill_bytes == 0


def judged(change: Callable[[Any], Any]) -> None:
    """Raise WrongAnswerError unless what `change` makes of the exact factors is within the bound of their product."""
    x, w = random(96, 1024), random(1024, 48)
    graph = fast(plain, x, w)
    (bound,) = bounds_of(graph, [x, w])
    check("product", change(x) @ w, x @ w, bound)


def test_the_bound_is_of_tf32_and_of_no_fewer_bits() -> None:
    judged(lambda x: x)
    x, w = random(96, 1024), random(1024, 48)
    graph = fast(plain, x, w)
    check("product", to_tf32(x) @ to_tf32(w), x @ w, bounds_of(graph, [x, w])[0])
    with pytest.raises(WrongAnswerError):
        judged(lambda x: x.astype(ml_dtypes.bfloat16).astype(F32))
    with pytest.raises(WrongAnswerError):
        judged(lambda x: np.where(np.arange(1024) == 700, 0, x))  # one of 1,024 terms is missing


def test_a_constant_factor_errs_to_one_side_and_is_right() -> None:
    x, w = np.full((16, 4096), 0.1, F32), np.abs(random(4096, 16))
    graph = fast(plain, x, w)
    check("product", to_tf32(x) @ to_tf32(w), x @ w, bounds_of(graph, [x, w])[0])


def test_infinities_and_nan_come_out_as_of_exact_factors(module: SimtModule) -> None:
    x, w = (array.copy() for array in CASES["aligned"][1])
    x[0, 0], x[1, 1], w[2, 2], x[3, 3] = np.inf, np.nan, -np.inf, 2.0**-130
    kernel, graph = KERNELS["aligned"], GRAPHS["aligned"]
    (out,) = (buffer for buffer in kernel.parameters if buffer.space is Space.OUTPUT)
    answer = np.full(out.type.shape, 99, F32)
    names = [value.name for value in graph.inputs]
    module.run(kernel, {names[0]: x, names[1]: w, out.name: answer})
    (right,), (bound,) = af.interpret(graph, x, w), bounds_of(graph, [x, w])
    check("product", answer, right, bound)
    np.testing.assert_array_equal(np.isnan(answer), np.isnan(right))


def test_two_products_in_one_kernel_keep_a_bound() -> None:
    q, k, v = (random(40, 64) + n for n in range(3))

    def attention(q, k, v):
        scores = q @ k.T * np.float32(0.125)
        grown = np.exp(scores - scores.max(-1, keepdims=True))
        return grown / grown.sum(-1, keepdims=True) @ v

    plan = af.compile(attention, q, k, v, backend="simulated", numerics="fast")
    (right,), (bound,) = af.interpret(plan.graph, q, k, v), bounds_of(plan.graph, [q, k, v])
    assert bound is not None
    check("attention", np.asarray(plan(q, k, v)), right, bound)
    assert np.median(bound / np.abs(right)) < 0.05


@pytest.mark.parametrize("name", ["deep", "left", "right", "both", "batched"])
def test_factors_are_rounded_to_nearest(module: SimtModule, name: str) -> None:
    """As near to the product of rounded factors as f32 sums are."""
    kernel, graph, (fn, args) = KERNELS[name], GRAPHS[name], CASES[name]
    (out,) = (buffer for buffer in kernel.parameters if buffer.space is Space.OUTPUT)
    answer = np.full(out.type.shape, 99, F32)
    module.run(kernel, {**{v.name: a for v, a in zip(graph.inputs, args, strict=True)}, out.name: answer})
    wanted = fn(*(to_tf32(array).astype(np.float64) for array in args))
    np.testing.assert_allclose(answer, wanted, rtol=0, atol=1e-6 * float(np.abs(wanted).max()))
