"""Costly sides of choices, computed where a lane takes them: the same bits as computed for all."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from autofuse.fusion.atoms import AtomGraph
from autofuse.lower.lowering import lower
from autofuse.passes.pipeline import clean
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.native.engine import default_engine
from tests.fixtures.loopprograms import KEY
from tests.fixtures.tilekernels import Kernel

F32 = np.float32


def elements(x, y):
    costly = np.exp(x) * np.sin(y) * np.tanh(x)
    return (
        np.where(x > 1.5, costly, x + 1),
        np.where(x > 1.5, costly * 2, y),
        np.where(y < x, y, np.cos(x) * np.tanh(y) * np.exp(y)),
    )


def whole_numbers(x, y):
    seldom = (np.sin(x) * np.exp(y) * np.cos(y) * 3).astype(np.int32)
    return np.where(x > 1, seldom, 7), np.where(x > 2, np.sin(x) * np.exp(y) * np.tanh(x) > 1, y > 0)


def restarted(key, x):
    """Lanes that are done begin anew, at random places."""

    def step(carry, _):
        key, s = carry
        key, sub = af.random.split(key)
        fresh = af.random.uniform(sub, s.shape, F32)
        return (key, np.where(s > F32(1.5), fresh, s + F32(0.4) * np.abs(s))), None

    return af.scan(step, (key, x), None, length=9)[0][1]


def lowered(function, arguments, **schedule):
    """All of a function as one kernel, and its inputs by name."""
    atoms = AtomGraph(clean(af.trace(function, *arguments)))
    outputs = tuple(dict.fromkeys(atoms.graph.outputs))
    program = lower(atoms.candidate(frozenset(atoms.atoms), outputs), cpu_schedule(**schedule), "kernel")
    return program, {v.name: a for v, a in zip(atoms.graph.inputs, arguments, strict=True)}


def kernel(function, arguments, engine, **schedule):
    program, inputs = lowered(function, arguments, **schedule)
    return Kernel(program, engine), inputs


@pytest.mark.parametrize("extent", [5, 200, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 16, 35))])
@pytest.mark.parametrize("function", [elements, whole_numbers, restarted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("bits", [64, 256, 512])
def test_bits_are_those_of_always(function, extent, bits):
    engine = default_engine()
    rng = np.random.default_rng(extent)
    x, y = (rng.standard_normal(extent).astype(F32) for _ in range(2))
    arguments = (KEY, np.abs(x)) if function is restarted else (x, y)
    found = []
    for sides in ("always", "any"):
        for unroll in (1, 4):
            made, inputs = kernel(function, arguments, engine, sides=sides, unroll=unroll, vector_bits=bits)
            found.append(made.run(inputs, parts=2 if extent > 35 else 1))
    for other in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(other[name], array)


def test_a_loop_branches_by_itself():
    engine = default_engine()
    x = np.ones(3 * engine.machine.vector_bits // 32 - 3, F32)  # in three vectors: more would be packed
    made, _ = kernel(restarted, (KEY, x), engine)
    always, _ = kernel(restarted, (KEY, x), engine, sides="always")
    assert "taken" in made.unit
    assert "taken" not in always.unit


def test_elements_without_a_loop_do_not():
    engine = default_engine()
    made, _ = kernel(elements, (np.ones(9, F32), np.ones(9, F32)), engine)
    assert "taken" not in made.unit
