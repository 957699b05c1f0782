"""Programs of JAX on the simulated device: the interpreter's answers."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.measurement.workloads import WORKLOADS_DIRECTORY, arrays, load

jax = pytest.importorskip("jax")
FOLDER = WORKLOADS_DIRECTORY / "jax"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("[!_]*.py")))
def test_a_program_of_jax_gives_the_interpreters_answer(name: str) -> None:
    workload = load(name, FOLDER)
    given = workload.inputs("small", 0)
    text = jax.jit(workload.function, keep_unused=True).lower(*given).as_text()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(given)]
    plan = af.compile(af.from_stablehlo(text), *leaves, backend="simulated", deadline=None)
    results = arrays(plan(*leaves))
    expected, bounds = interpret(plan.graph, *leaves), bounds_of(plan.graph, leaves)
    for value, actual, right, bound in zip(plan.graph.outputs, results, expected, bounds, strict=True):
        check(value.name, np.asarray(actual), right, bound)
