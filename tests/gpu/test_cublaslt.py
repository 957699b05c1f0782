"""Products by cuBLASLt on a real GPU, each algorithm that it proposes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.errors import AutofuseError
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.passes.pipeline import clean
from autofuse.runtime.planlowering import candidate_of
from autofuse.targets.base import find_target
from autofuse.targets.cuda import cublaslt
from autofuse.targets.cuda.decisions import cuda_schedule
from autofuse.targets.cuda.launch import gpu_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_problem() is not None, reason=f"needs a GPU: {gpu_problem()}"),
    pytest.mark.skipif(cublaslt.bindings() is None, reason=f"needs nvmath-python: {cublaslt.INSTALL}"),
]


def random(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


BF16 = ml_dtypes.bfloat16
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "plain": (lambda a, b: a @ b, (random(300, 256), random(256, 500))),
    "turned": (lambda a, b: a.T @ b.T, (random(256, 300), random(500, 256))),
    "batched": (lambda a, b: a @ b, (random(5, 64, 96), random(5, 96, 72))),
    "bf16": (lambda a, b: a @ b, (random(300, 256, dtype=BF16), random(256, 504, dtype=BF16))),
    "bias": (lambda x, w, b: x @ w + b, (random(300, 256), random(256, 512), random(512))),
    "layer": (lambda x, w, b: np.maximum(x @ w + b, 0), (random(300, 256), random(256, 512), random(512))),
}


@pytest.mark.parametrize("numerics", ["strict", "fast"])
@pytest.mark.parametrize("name", CASES)
def test_products_are_right_under_every_algorithm(name: str, numerics: Any) -> None:
    fn, args = CASES[name]
    if (name, numerics) == ("layer", "strict"):
        pytest.skip("a clip is for fast numerics")
    graph = clean(af.trace(fn, *args), numerics)
    kernel = candidate_of(graph, [node.name for node in graph.nodes], [value.name for value in graph.outputs])
    schedules = [cuda_schedule(library=number) for number in range(1, 5)]
    (right,), (bound,) = af.interpret(graph, *args), bounds_of(graph, args)
    given = dict(zip(graph.inputs, args, strict=True))
    for runner in find_target("cuda").runners(kernel, schedules):
        assert not isinstance(runner, AutofuseError), runner
        outs = [np.full(value.type.shape, 99, value.type.dtype.numpy) for value in graph.outputs]
        assert runner.run_into([given[value] for value in kernel.inputs], outs)
        check(name, outs[0], right, bound)
