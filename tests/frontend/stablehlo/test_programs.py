"""Programs that JAX wrote (`programs/export.py`), beside what XLA:CPU made of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autofuse as af
from autofuse.passes.pipeline import clean

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

FOLDER = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.mlir"))
COMPILED = {"attention", "mlp_step", "conv_net", "rnn", "draws"}
"""Compiled in the quick suite."""


def given(name):
    """The arguments of a program, and its results by XLA:CPU."""
    with np.load(FOLDER / f"{name}.npz") as arrays:
        sides = ([arrays[key] for key in arrays.files if key.startswith(side)] for side in ("in_", "out_"))
        return tuple(sides)


def require_close(found, expected):
    found = found if isinstance(found, tuple) else (found,)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_interpreter_agrees_with_xla(name):
    arguments, results = given(name)
    require_close(af.from_stablehlo(FOLDER / f"{name}.mlir")(*arguments), results)


@pytest.mark.parametrize(
    "name", [name if name in COMPILED else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_plan_agrees_with_xla(name):
    arguments, results = given(name)
    fn = af.from_stablehlo(FOLDER / f"{name}.mlir")
    require_close(af.compile(fn, *fn.example_specs)(*arguments), results)


def test_nodes_come_from_the_lines_of_the_jax_program():
    fn = af.from_stablehlo(FOLDER / "attention.mlir")
    graph = af.trace(fn, *fn.example_specs)
    (exp,) = [node for node in graph.nodes if node.op == "exp"]
    assert exp.location.file.endswith("programs/export.py")
    assert exp.location.function == "attention"
    assert exp.location.line > 1


def test_counted_loops_become_scans_and_ciphers_one_op():
    rnn, draws = (af.from_stablehlo(FOLDER / f"{name}.mlir") for name in ("rnn", "draws"))
    assert "scan" in {node.op for node in clean(af.trace(rnn, *rnn.example_specs)).nodes}
    ops = [node.op for node in af.trace(draws, *draws.example_specs).nodes]
    assert ops.count("threefry2x32") == 8
    assert "while" not in ops


def test_a_loop_may_be_called_twice_in_one_trace():
    arguments, results = given("rnn")
    fn = af.from_stablehlo(FOLDER / "rnn.mlir")
    xs, h, w, u = arguments
    found = af.compile(lambda h: fn(xs, fn(xs, h, w, u)[0], w, u), h)(h)
    require_close(found, [np.asarray(array) for array in fn(xs, results[0], w, u)])


def test_argmax_is_found_in_a_reduction_of_two_operands():
    fn = af.from_stablehlo(FOLDER / "cross_entropy.mlir")
    assert "argmax" in {node.op for node in af.trace(fn, *fn.example_specs).nodes}


def test_a_loaded_plan_needs_neither_jax_nor_jaxlib(tmp_path):
    arguments, results = given("mlp_step")
    fn = af.from_stablehlo(FOLDER / "mlp_step.mlir")
    path = af.compile(fn, *fn.example_specs).save(tmp_path / "step.json")
    np.savez(tmp_path / "arguments.npz", *arguments)
    code = f"""
import sys
import numpy as np
import autofuse as af
with np.load({str(tmp_path / "arguments.npz")!r}) as held:
    results = af.load({str(path)!r})(*(held[name] for name in held.files))
assert not [name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib")]
print(float(results[0]))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose(float(printed), results[0], rtol=1e-5)
